"""One replica's store: what a full disk refuses, and what is there when its process has ended."""

import resource
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from shardmq.replication.core.effects import Commit
from shardmq.replication.core.note import BEGINNING, Key, Note
from shardmq.replication.node import store as node_store
from shardmq.replication.node.store import ReplicaStore, TooMuch
from shardmq.replication.store.faults import ReplicaFull
from shardmq.runtime import clock as runtime_clock
from shardmq.shards.storage.schema import LAYOUT, STATE
from shardmq.storage.lmdb_engine import LmdbEngine
from shardmq.storage.redo.log import REDO_BYTES
from tests.replication.store.stores import room

VALUE = bytes(500_000)


@pytest.fixture
def small_files() -> Iterator[None]:
    """Files of this process end where a redo log does, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (REDO_BYTES, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def opened(folder: Path) -> ReplicaStore:
    return ReplicaStore.started(LmdbEngine(folder, LAYOUT, reserve_bytes=1 << 16, margin_bytes=0))


def crashed(store: ReplicaStore, folder: Path, name: str) -> ReplicaStore:
    """The store as it is on disk at this moment, which is opened anew."""
    (folder / name).mkdir()
    for file in ("data.mdb", "redo"):
        shutil.copy(store.engine.file.with_name(file), folder / name / file)
    store.close()
    return opened(folder / name)


def put(store: ReplicaStore, note: Note, place: Key, number: int) -> Key | None:
    """Put a range with one row; returns where the next one begins, None where there is no room."""
    end = (STATE, b"%02d" % (number + 1))
    rows = [(STATE, b"%02d" % number, VALUE)]
    commit = Commit(2 + number, replace(note, copied=end), 0.0, rows, clear=(place, end))
    try:
        store.write([commit])
    except ReplicaFull as fault:
        assert "make room on it: until then this replica cannot follow" in fault.text
        return None
    return end


@pytest.mark.usefixtures("small_files")
def test_a_full_disk_is_a_refusal_and_what_is_there_stays() -> None:
    with room() as folder:
        store = opened(folder / "a")
        note = Note("i1", 1, 1, 30, 30, ((1, 1),), BEGINNING)
        store.write([Commit(1, note, 0.0, cut=0)])
        place, number = BEGINNING, 0
        while (end := put(store, note, place, number)) is not None:
            place, number = end, number + 1
        assert number > 3
        store = crashed(store, folder, "b")
        assert store.note.copied == place
        there = [store.engine.get(STATE, b"%02d" % each) is not None for each in range(number + 1)]
        assert there == [True] * number + [False]
        large = [(STATE, b"more %d" % each, VALUE) for each in range(9)]
        record = replace(note, index=31, copied=place)
        with pytest.raises(ReplicaFull):
            store.write([Commit(99, record, 0.0, large, touched=((31, ((STATE, b"more"),)),))])
        with closing(crashed(store, folder, "c")) as store:
            assert (store.note.index, store.note.copied) == (30, place)
            assert store.engine.get(STATE, b"more 0") is None


def test_an_answer_to_a_rejoin_may_have_one_row_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a large message: a join would have to bring it in one range, too."""
    monkeypatch.setattr(node_store, "ANSWER_BYTES_MAX", 1000)
    sizes = {b"a": 900, b"b": 100_000, b"c": 50, b"d": 2000}
    with closing(opened(tmp_path)) as store:
        rows = [(STATE, key, bytes(size)) for key, size in sizes.items()]
        store.write([Commit(1, replace(store.note, index=1), 0.0, rows)])
        for keys in (b"b", b"bc", b"abc"):
            read = store.read_keys([(STATE, bytes([key])) for key in keys])
            assert [(key, len(value or b"")) for _, key, value in read] == [
                (bytes([k]), sizes[bytes([k])]) for k in keys
            ]
        with pytest.raises(TooMuch):
            store.read_keys([(STATE, b"b"), (STATE, b"d")])


@pytest.mark.parametrize("boot", ["same", "other"])
def test_the_clock_goes_on_while_a_replica_is_away_as_long_as_its_machine_runs(
    boot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(opened(tmp_path)) as store:
        store.write([Commit(1, replace(store.note, index=1), 1000.0, ())])
    began = time.monotonic()
    time.sleep(0.2)
    if boot == "other":
        monkeypatch.setattr(runtime_clock, "_boot_id", lambda: "another")
    with closing(opened(tmp_path)) as store:
        stored = store.stored()
    assert stored.is_clock_old == (boot == "other")
    least, most = (1000.0, 1000.0) if stored.is_clock_old else (1000.2, 1000.1 + time.monotonic() - began + 1.0)
    assert least <= stored.clock <= most
