"""A replica's note: one machine's stores have none, a store with one is opened by nobody else, and tools know it."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from shardmq.coordinator.storage import store as coordinator_store
from shardmq.coordinator.storage.check import ClosedCoordinatorStore
from shardmq.coordinator.storage.check import mend as mend_registry
from shardmq.coordinator.storage.schema import LAYOUT as REGISTRY
from shardmq.coordinator.storage.store import Store as CoordinatorStore
from shardmq.errors import StoreRefused
from shardmq.replication.core.note import Note
from shardmq.replication.node.store import ReplicaStore
from shardmq.replication.store.note import NOTE, NoteRow, decode_note, make_single, read_note
from shardmq.shards.check.check import check_shard
from shardmq.shards.check.closed_store import ClosedStore, is_well, mend
from shardmq.shards.storage import store as shard_store
from shardmq.shards.storage.schema import LAYOUT, NUMBER, QUEUES, REPLICA, STATE
from shardmq.shards.storage.store import Store
from shardmq.shards.storage.write_batch import WriteBatch
from shardmq.storage import lmdb_engine, lmdb_environment
from shardmq.storage.memory_engine import MemoryEngine
from shardmq.storage.redo.log import REDO, RedoLog
from shardmq.storage.versions import VERSION
from shardmq.topology.entities import Queue
from tests.replication.node.alone import leading

from .stores import room

NEXT = 16
"""A version of the format as the next one could be."""


@pytest.fixture
def folder() -> Iterator[Path]:
    with room() as folder:
        yield folder


def fill(store: Store) -> None:
    store.write(WriteBatch(queues=[Queue("/", "orders", 1, 0, durable=True)]))


def shard_of_a_replica(folder: Path) -> None:
    """Leave a shard's store that is a replica's, with a queue."""
    with leading(folder, LAYOUT) as node:
        fill(Store(node.engine))
        assert node.store.note.index > 1
        assert node.store.note.history == ((1, 1),)


def registry_of_a_replica(folder: Path) -> None:
    """Leave a coordinator's store that is a replica's."""
    with leading(folder, REGISTRY) as node:
        CoordinatorStore(node.engine, "boot").load(1)


def opened_by_the_next_version(folder: Path, *, has_risen: bool = False) -> int:
    """Open and close a replica's store as the next version does; returns what format it has.

    Args:
        folder: of the store.
        has_risen: whether all hosts have that version.
    """
    with pytest.MonkeyPatch.context() as patch:
        for module in (lmdb_environment, lmdb_engine):
            patch.setattr(module, "VERSION", NEXT)
        patch.setitem(lmdb_environment._VERSIONS, b"%d" % NEXT, NEXT)
        with closing(ReplicaStore.open(folder, LAYOUT)) as store:
            assert [*store.engine.keys(QUEUES)] == [NUMBER.pack(1)]
            if has_risen:
                store.engine.raise_version(NEXT)
            return store.engine.version


def test_a_newer_version_leaves_a_replicas_store_as_it_is_and_earlier_ones_refuse_it_once_it_has_risen(
    folder: Path,
) -> None:
    shard_of_a_replica(folder)
    assert opened_by_the_next_version(folder) == VERSION
    ReplicaStore.open(folder, LAYOUT).close()
    assert opened_by_the_next_version(folder, has_risen=True) == NEXT
    assert opened_by_the_next_version(folder) == NEXT
    with pytest.raises(StoreRefused, match=f"has format version {NEXT}; this shardmq reads {VERSION} and older"):
        ReplicaStore.open(folder, LAYOUT)


def test_a_store_of_one_machine_has_no_note_and_is_never_replaced_by_a_replicas(folder: Path) -> None:
    with closing(Store.open(folder / "a")) as store:
        fill(store)
        assert read_note(store.engine) is None
        assert list(store.engine.keys(REPLICA)) == []
    with pytest.raises(StoreRefused, match=r"is the store of a broker on one machine \(it has queues, state\)"):
        ReplicaStore.open(folder / "a", LAYOUT)
    with closing(Store.open(folder / "a")) as store:
        assert len(store.load().queues) == 1
    with pytest.raises(StoreRefused, match="is not a replica's; move its folder away"):
        ReplicaStore(MemoryEngine(LAYOUT))


def test_a_replicas_store_is_not_started_by_a_broker_on_one_machine(folder: Path) -> None:
    shard_of_a_replica(folder / "a")
    content = (folder / "a" / "data.mdb").read_bytes()
    with pytest.raises(StoreRefused, match=r"a/data.mdb is a replica's.*`shardmq restore`"):
        Store.open(folder / "a")
    assert (folder / "a" / "data.mdb").read_bytes() == content
    registry_of_a_replica(folder / "c")
    with pytest.raises(StoreRefused, match=r"c/data.mdb is a replica's"):
        CoordinatorStore.open(folder / "c", "boot")


def test_a_replicas_store_that_another_version_refuses_to_start_on_one_machine_keeps_its_format(folder: Path) -> None:
    shard_of_a_replica(folder / "a")
    registry_of_a_replica(folder / "c")
    with pytest.MonkeyPatch.context() as patch:
        for module in (lmdb_environment, lmdb_engine, shard_store, coordinator_store):
            patch.setattr(module, "VERSION", NEXT)
        with pytest.raises(StoreRefused, match=r"a/data.mdb is a replica's"):
            Store.open(folder / "a")
        with pytest.raises(StoreRefused, match=r"c/data.mdb is a replica's"):
            CoordinatorStore.open(folder / "c", "boot")
    for name, layout in (("a", LAYOUT), ("c", REGISTRY)):
        ReplicaStore.open(folder / name, layout).close()


def test_a_damaged_note_is_refused_and_found_by_a_check(folder: Path) -> None:
    shard_of_a_replica(folder / "a")
    damage_note(folder / "a")
    with pytest.raises(StoreRefused, match="the note of how far this replica is is not what was written; move the"):
        ReplicaStore.open(folder / "a", LAYOUT)
    with closing(ClosedStore(folder / "a")) as closed:
        found = list(check_shard("shard-0", closed, None))
    assert [(each.database, each.what) for each in found] == [
        ("replica", "what the replica notes of itself is not what was written")
    ]
    mend(folder / "a", [edit for each in found for edit in each.edits])
    with closing(Store.open(folder / "a")) as store:  # none of a replica any more
        assert len(store.load().queues) == 1
        assert list(store.engine.keys(REPLICA)) == []


def test_a_note_of_an_earlier_version_is_read() -> None:
    found = decode_note(msgspec.msgpack.encode((("one", 3, 2, 9, 8, ((1, 1), (2, 5)), None), 12.5)))
    assert found == NoteRow(Note("one", 3, 2, 9, 8, ((1, 1), (2, 5))), 12.5, None)


def damage_note(folder: Path) -> None:
    """Flip a bit of a note, wherever the file has it."""
    with closing(ReplicaStore.open(folder, LAYOUT)) as store:
        row = LAYOUT.stored_value(REPLICA, NOTE, msgspec.msgpack.encode(read_note(store.engine)))
    content = bytearray((folder / "data.mdb").read_bytes())
    place = content.index(row)
    while place >= 0:
        content[place + 9] ^= 1
        place = content.find(row, place)
    (folder / "data.mdb").write_bytes(content)


def test_a_repaired_store_is_no_replica_any_more(folder: Path) -> None:
    shard_of_a_replica(folder / "a")
    with closing(ClosedStore(folder / "a")) as closed:
        assert list(check_shard("shard-0", closed, None)) == []
    mend(folder / "a", [(STATE, b"clock", None)])
    Store.open(folder / "a").close()
    assert not is_well(REPLICA, NOTE, b"")
    registry_of_a_replica(folder / "c")
    with closing(ClosedCoordinatorStore(folder / "c")) as registry:
        assert list(registry.check()) == []
    mend_registry(folder / "c", [(REGISTRY.databases.index(b"users"), b"nobody", None)])
    CoordinatorStore.open(folder / "c", "boot").close()


def test_a_backup_of_a_replica_is_restored_as_a_store_of_one_machine(folder: Path) -> None:
    with leading(folder / "a", LAYOUT) as node:
        fill(Store(node.engine))
        copy = node.engine.copy(folder / "copy", 1 << 30)
        for thread in copy._threads:
            thread.join()
        assert copy.copied is not None
    make_single(folder / "copy", LAYOUT)
    RedoLog(folder / "copy" / REDO, None).close()
    with closing(Store.open(folder / "copy")) as store:
        assert len(store.load().queues) == 1
