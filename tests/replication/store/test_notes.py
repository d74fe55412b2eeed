"""A replica's note: one machine's stores have none, a store with one is opened by nobody else, and tools know it."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from shardmq.coordinator.storage.check import ClosedCoordinatorStore
from shardmq.coordinator.storage.check import mend as mend_registry
from shardmq.coordinator.storage.schema import LAYOUT as REGISTRY
from shardmq.coordinator.storage.store import Store as CoordinatorStore
from shardmq.errors import StoreRefused
from shardmq.replication.store.digest import digest_of
from shardmq.replication.store.follower import FollowerStore
from shardmq.replication.store.note import NOTE, make_single, read_note
from shardmq.replication.store.record import Record
from shardmq.replication.store.replicated_engine import ReplicatedEngine
from shardmq.shards.check.check import check_shard
from shardmq.shards.check.closed_store import ClosedStore, is_well, mend
from shardmq.shards.storage.schema import LAYOUT, REPLICA, STATE
from shardmq.shards.storage.store import Store
from shardmq.shards.storage.write_batch import WriteBatch
from shardmq.storage.engine import Engine
from shardmq.storage.memory_engine import MemoryEngine
from shardmq.storage.redo.log import REDO, RedoLog
from shardmq.topology.changes import UserPut
from shardmq.topology.entities import Queue, User

from .stores import joined, room


@pytest.fixture
def folder() -> Iterator[Path]:
    with room() as folder:
        yield folder


def fill(store: Store) -> None:
    store.write(WriteBatch(queues=[Queue("/", "orders", 1, 0, durable=True)]))


def adopted(folder: Path, term: int = 1) -> tuple[Store, ReplicatedEngine]:
    made: list[ReplicatedEngine] = []

    def front(engine: Engine) -> Engine:
        made.append(ReplicatedEngine(engine, term, lambda _: None, adopt_as="1"))
        return made[0]

    return Store.open(folder, 0, front), made[0]


def test_a_store_of_one_machine_has_no_note_and_is_adopted_as_it_is(folder: Path) -> None:
    with closing(Store.open(folder / "a")) as store:
        fill(store)
        before = digest_of(store.engine)
        assert read_note(store.engine) is None
        assert list(store.engine.keys(REPLICA)) == []
    store, engine = adopted(folder / "a")
    with closing(store):
        assert (engine.index, digest_of(engine)) == (0, before)
        assert [queue.name for queue in store.load().queues] == ["orders"]
        fill(store)
        assert (engine.index, engine.replica.note.history) == (1, ((1, 1),))


def test_a_replicas_store_is_not_started_by_a_broker_on_one_machine(folder: Path) -> None:
    adopted(folder / "a")[0].close()
    content = (folder / "a" / "data.mdb").read_bytes()
    with pytest.raises(StoreRefused, match=r"a/data.mdb is a replica's.*`shardmq restore`"):
        Store.open(folder / "a")
    assert (folder / "a" / "data.mdb").read_bytes() == content
    CoordinatorStore.open(
        folder / "c", "boot", lambda engine: ReplicatedEngine(engine, 1, lambda _: None, adopt_as="1")
    ).close()
    with pytest.raises(StoreRefused, match=r"c/data.mdb is a replica's"):
        CoordinatorStore.open(folder / "c", "boot")


def test_a_store_of_one_machine_is_never_replaced_by_a_replicas(folder: Path) -> None:
    with closing(Store.open(folder / "a")) as store:
        fill(store)
    with pytest.raises(StoreRefused, match=r"is the store of a broker on one machine \(it has queues, state\)"):
        FollowerStore.open(folder / "a", LAYOUT)
    with closing(Store.open(folder / "a")) as store:
        assert len(store.load().queues) == 1
    with pytest.raises(StoreRefused, match="is not a replica's; adopt it"):
        Store.open(folder / "a", 0, lambda engine: ReplicatedEngine(engine, 1, lambda _: None))


def test_a_coordinators_store_is_followed_as_a_shards_is(folder: Path) -> None:
    sent: list[Record] = []
    made: list[ReplicatedEngine] = []

    def front(engine: Engine) -> Engine:
        made.append(ReplicatedEngine(engine, 2, sent.append, adopt_as="1"))
        return made[-1]

    with (
        closing(CoordinatorStore.open(folder / "a", "boot", front)) as store,
        closing(FollowerStore.started(MemoryEngine(REGISTRY))) as follower,
    ):
        store.load(1)
        joined(made[0], follower, 50)
        known = len(sent)
        for number in range(20):
            store.write([UserPut(User(f"user {number}", ""))])
        follower.apply([follower.opened(bytes(record.data)) for record in sent[known:]])
        assert follower.note.index == made[0].index == len(sent)
        assert digest_of(follower.engine) == digest_of(made[0])


def test_a_damaged_note_is_refused_and_found_by_a_check(folder: Path) -> None:
    store, engine = adopted(folder / "a")
    fill(store)
    store.close()
    _damage(folder / "a", (store, engine))
    with pytest.raises(StoreRefused, match="the note of how far this replica is is not what was written; move the"):
        FollowerStore.open(folder / "a", LAYOUT)
    with closing(ClosedStore(folder / "a")) as closed:
        found = list(check_shard("shard-0", closed, None))
    assert [(each.database, each.what) for each in found] == [
        ("replica", "what the replica notes of itself is not what was written")
    ]
    mend(folder / "a", [edit for each in found for edit in each.edits])
    with closing(Store.open(folder / "a")) as store:  # none of a replica any more
        assert len(store.load().queues) == 1
        assert list(store.engine.keys(REPLICA)) == []


def _damage(folder: Path, opened: tuple[Store, ReplicatedEngine]) -> None:
    layout = opened[1].layout
    value = bytearray(
        layout.stored_value(REPLICA, NOTE, msgspec.msgpack.encode((opened[1].replica.note, opened[1].replica.clock)))
    )
    content = bytearray((folder / "data.mdb").read_bytes())
    place = content.index(value)
    while place >= 0:
        content[place + 9] ^= 1
        place = content.find(value, place)
    (folder / "data.mdb").write_bytes(content)


def test_a_repaired_or_rebuilt_store_is_no_replica_any_more(folder: Path) -> None:
    store, _ = adopted(folder / "a")
    fill(store)
    store.close()
    with closing(ClosedStore(folder / "a")) as closed:
        assert list(check_shard("shard-0", closed, None)) == []
    mend(folder / "a", [(STATE, b"clock", None)])
    Store.open(folder / "a").close()
    assert not is_well(REPLICA, NOTE, b"")
    CoordinatorStore.open(
        folder / "c", "boot", lambda engine: ReplicatedEngine(engine, 1, lambda _: None, adopt_as="1")
    ).close()
    with closing(ClosedCoordinatorStore(folder / "c")) as registry:
        assert list(registry.check()) == []
    mend_registry(folder / "c", [(REGISTRY.databases.index(b"users"), b"nobody", None)])
    CoordinatorStore.open(folder / "c", "boot").close()


def test_a_backup_of_a_replica_is_restored_as_a_store_of_one_machine(folder: Path) -> None:
    store, engine = adopted(folder / "a")
    with closing(store):
        fill(store)
        copy = engine.copy(folder / "copy", 1 << 30)
        for thread in copy._threads:
            thread.join()
        assert copy.copied is not None
    make_single(folder / "copy", LAYOUT)
    RedoLog(folder / "copy" / REDO, None).close()
    with closing(Store.open(folder / "copy")) as store:
        assert len(store.load().queues) == 1
