"""Store files: what is refused, and that it stays as it was."""

import re
from pathlib import Path

import lmdb
import pytest

from shardmq.errors import StartupRefused, StoreRefused, StoreUnreadable
from shardmq.message.record import pack_many
from shardmq.message.record_batch import RecordBatch
from shardmq.shards.segments.segment import Segment
from shardmq.shards.storage.schema import SEGMENTS, segment_key
from shardmq.shards.storage.store import Store, meeting_damage
from shardmq.shards.storage.write_batch import WriteBatch
from shardmq.storage.pages.page_check import free_pages
from shardmq.topology.entities import Queue as Declared

DECLARED = Declared("/", "q", 1, 0)


def segment_of(first: int, count: int) -> Segment:
    records = pack_many([b"%d" % i * 50 for i in range(count)])
    segment = Segment(1, first, durable=True, born=0.0)
    segment.end, segment.count, segment.live, segment.bytes = first + count, count, count, len(records)
    segment.batches = [(first, RecordBatch("ex", "key", 1, 5, 9, 0, count, records))]
    return segment


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed store with a queue and two segments."""
    store = Store.open(tmp_path / "shard-0")
    store.load()
    store.write(WriteBatch(queues=[DECLARED], put=[segment_of(0, 400), segment_of(500, 9)], marks={(1, 0): 44}))
    store.close()
    return tmp_path / "shard-0"


def refused(folder: Path, match: str) -> None:
    before = (folder / "data.mdb").read_bytes()
    with pytest.raises(StoreRefused, match=match) as caught:
        Store.open(folder).load()
    assert str(folder) in caught.value.text
    assert (folder / "data.mdb").read_bytes() == before


def damaged(folder: Path, queue: int, match: str) -> None:
    """The store is opened; what is wrong with it is that queue's alone."""
    store = Store.open(folder)
    (found,) = store.load().damaged
    assert found.queue == queue
    assert re.search(match, found.text)
    store.close()


def rewrite_meta(folder: Path, key: bytes, value: bytes | None) -> None:
    env = lmdb.open(str(folder), max_dbs=1)
    meta = env.open_db(b"meta")
    with env.begin(write=True, db=meta) as transaction:
        if value is None:
            transaction.delete(key)
        else:
            transaction.put(key, value)
    env.close()


def test_what_was_written_is_read_back(folder: Path) -> None:
    store = Store.open(folder)
    contents = store.load()
    assert contents.queues == [DECLARED]
    assert contents.marks == {(1, 0): 44}
    assert [store.read(segment) for segment in contents.segments] == [
        segment_of(0, 400).batches,
        segment_of(500, 9).batches,
    ]
    store.close()


def test_a_store_in_use_is_refused(folder: Path) -> None:
    store = Store.open(folder)
    refused(folder, "in use")
    store.close()


@pytest.mark.parametrize("kept", [0.0, 0.001, 0.3, 0.999])
def test_a_file_cut_short_is_refused(folder: Path, kept: float) -> None:
    whole = (folder / "data.mdb").read_bytes()
    (folder / "data.mdb").write_bytes(whole[: int(len(whole) * kept)])
    refused(folder, "cut short|cannot be opened")


def test_a_short_file_that_has_every_page_in_use_is_opened(tmp_path: Path) -> None:
    folder = tmp_path / "shard-0"
    Store.open(folder).close()
    env = lmdb.open(str(folder), max_dbs=8)
    with env.begin(write=True, db=env.open_db(b"segments")) as transaction:
        transaction.put(b"1", b"x" * 50_000)
    with env.begin(write=True, db=env.open_db(b"segments")) as transaction:
        transaction.put(b"2", b"x" * 50_000)
    for key in (b"1", b"2"):
        with env.begin(write=True, db=env.open_db(b"segments")) as transaction:
            transaction.delete(key)
    needed = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    assert any(env.info()["last_pgno"] in pages for pages in free_pages(folder / "data.mdb").values())
    env.close()
    with (folder / "data.mdb").open("r+b") as file:
        file.truncate(needed - 4096)
    store = Store.open(folder)
    store.load()
    store.close()


def test_garbage_is_refused(folder: Path) -> None:
    (folder / "data.mdb").write_bytes(b"no database at all\n" * 5000)
    refused(folder, "no LMDB file")


def test_another_programs_store_is_refused(folder: Path) -> None:
    rewrite_meta(folder, b"format", None)
    refused(folder, "another program's")


def test_a_coordinators_store_is_refused(folder: Path) -> None:
    rewrite_meta(folder, b"format", b"shardmq-coordinator")
    refused(folder, "shardmq-coordinator")


def test_a_newer_store_is_refused(folder: Path) -> None:
    rewrite_meta(folder, b"version", b"3")
    refused(folder, "version 3")


def test_a_damaged_body_is_refused_when_it_is_read(folder: Path) -> None:
    file = folder / "data.mdb"
    file.write_bytes(file.read_bytes().replace(b"399" * 50, b"999" * 50))
    store = Store.open(folder)
    contents = store.load()
    with pytest.raises(StoreRefused, match=r"queue 1, \[0, 400\)"):
        store.read(contents.segments[0])
    store.close()


@pytest.mark.parametrize(
    ("lost", "named", "what"),
    [(b"segments", "index", "the entry of a segment has no row"), (b"index", "segments", "a segment has no row")],
)
def test_a_body_without_its_entry_and_an_entry_without_its_body_are_their_queues_damage(
    folder: Path, lost: bytes, named: str, what: str
) -> None:
    env = lmdb.open(str(folder), max_dbs=1)
    key = (1).to_bytes(8, "big") + (500).to_bytes(8, "big")
    with env.begin(write=True, db=env.open_db(lost)) as transaction:
        assert transaction.delete(key)
    env.close()
    damaged(folder, 1, f"in database '{named}', key {key.hex()}: {what} in '{lost.decode()}'")


def test_a_row_at_another_key_is_damage_of_whose_key_that_is(folder: Path) -> None:
    env = lmdb.open(str(folder), max_dbs=1)
    with env.begin(write=True, db=env.open_db(b"queues")) as transaction:
        transaction.put((2).to_bytes(8, "big"), transaction.get((1).to_bytes(8, "big")))
    env.close()
    damaged(folder, 2, "in database 'queues', key 0000000000000002: the queue is not what was written")


def test_what_is_in_the_lock_files_means_nothing(folder: Path) -> None:
    for content in (b"", b"\xff" * 8192, bytes(100)):
        (folder / "lock.mdb").write_bytes(content)
        (folder / "lock").write_bytes(content)
        store = Store.open(folder)
        assert len(store.load().segments) == 2
        store.close()


def test_messages_of_an_unknown_queue_are_that_queues_damage_alone(folder: Path) -> None:
    store = Store.open(folder)
    store.write(WriteBatch(cleared=[1], dropped=[1]))
    store.write(WriteBatch(cleared=[1]))
    store.close()
    store = Store.open(folder)
    (damage,) = store.load().damaged
    assert (damage.queue, damage.database) == (1, "index")
    assert "messages of queue 1" in damage.text
    store.close()


def test_damage_that_is_met_at_work_ends_the_process_and_is_no_refused_start(folder: Path) -> None:
    store = Store.open(folder)
    (segment, _) = store.load().segments
    store.engine.apply([(SEGMENTS, segment_key(segment), b"these are no messages")])
    said = re.escape(f"{store.file} is damaged in database 'segments'")
    with pytest.raises(StoreUnreadable, match=said) as met, meeting_damage():
        store.read(segment)
    assert not isinstance(met.value, StartupRefused), "which `shardmq up` does not try again"
    store.close()
