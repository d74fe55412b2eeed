"""A closed store is looked through row by row; what is damaged is named, and a repair loses that alone."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from shardmq.bus.messages.shard import Nack, Publish
from shardmq.errors import StoreDamaged
from shardmq.message.record import pack_many
from shardmq.message.record_batch import RecordBatch
from shardmq.shards.check.check import check_shard
from shardmq.shards.check.closed_store import ClosedStore, mend
from shardmq.shards.check.queues import Registry
from shardmq.shards.storage.schema import BODIES_NOTED, DATABASES, SHARED, STAGE, STATE
from shardmq.shards.storage.store import Store
from shardmq.shards.storage.write_batch import WriteBatch
from shardmq.storage.checksums import sealed_row
from shardmq.storage.redo.log import REDO, RedoLog
from shardmq.storage.repair.findings import Finding
from shardmq.topology.entities import Queue
from tests.shards.clocked import Clocked
from tests.shards.damaging import flip, flip_body, rows
from tests.shards.driver import run_of
from tests.shards.state.test_quarantine import QUEUES, stage
from tests.shards.stores import Cursor

KNOWN = Registry({queue.id: queue for queue in QUEUES}, next_transaction=9, undecided=frozenset({8}))


NOBODY = 65534


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed store with something of every kind in it."""
    shard = Clocked(tmp_path)
    shard.assign(*QUEUES)
    for queue in (1, 2):
        for start in (0, 10, 20):
            shard.take_in(run_of(start, 10), queue=queue)
    assert not shard.publish(Publish((1,), run_of(40, 2), 777, 0), Publish((1,), run_of(50, 2), delay_ms=10**7))
    got = shard.get(1)
    assert got is not None
    shard.tell(Nack(1, [(got.first, got.first + 1)], True, 2 * 10**7))  # never due in the same millisecond
    shard.reserve("night", 3)
    stage(shard, 8, run_of(30, 3))
    shard.store.write(WriteBatch(cursors={(1, "readers"): Cursor()}))
    shard.stop()
    shard.close()
    return tmp_path / "store"


def digest(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def findings(folder: Path, registry: Registry | None = KNOWN) -> list[Finding]:
    before = digest(folder)
    store = ClosedStore(folder)
    found = list(check_shard("shard-0", store, registry))
    store.close()
    assert digest(folder) == before
    return found


def damaged(folder: Path, do: Callable[[Store], None]) -> None:
    store = Store.open(folder)
    do(store)
    store.close()


def mended(folder: Path) -> list[Finding]:
    """A repair is done, after which all is well; returns what was found before."""
    found = findings(folder)
    mend(folder, [edit for each in found for edit in each.edits])
    assert findings(folder) == []
    return found


def only(store: Store, database: str, queue: int) -> bytes:
    return next(iter(rows(store, database, queue)))


def test_a_store_that_is_well_has_no_findings(folder: Path) -> None:
    assert findings(folder) == []


def test_what_is_in_the_redo_log_alone_is_looked_at(tmp_path: Path) -> None:
    shard = Clocked(tmp_path)
    shard.assign(*QUEUES)
    shard.take_in(run_of(0, 10))
    copy = shard.copy(tmp_path / "copy") / "store"
    assert findings(copy) == []
    mend(copy, [])
    assert findings(copy) == []
    Store.open(copy).close()
    shard.close()


def test_a_store_that_may_only_be_read_is_looked_through(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (folder, folder.parent):
        path.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o444)
    monkeypatch.chdir(folder.parent)  # what is above it may be closed to others
    owner = os.geteuid()
    if not owner:
        os.seteuid(NOBODY)
    try:
        assert findings(Path(folder.name)) == []
    finally:
        os.seteuid(owner)


@pytest.mark.parametrize(
    ("payload", "what"),
    [
        (b"\xc1", "a commit in it cannot be read"),
        (msgspec.msgpack.encode([(len(DATABASES), b"key", b"")]), "a commit in it is of a database that is not there"),
    ],
)
def test_a_commit_in_the_redo_log_that_cannot_be_read_is_damage_of_the_log(
    folder: Path, payload: bytes, what: str
) -> None:
    store = ClosedStore(folder)
    store.close()
    log = RedoLog(folder / REDO, store.log.last)
    log.append(payload)
    log.close()
    before = digest(folder)
    for read in (ClosedStore, Store.open):
        with pytest.raises(StoreDamaged, match=what) as refused:
            read(folder)
        assert refused.value.file == folder / REDO
    assert {**digest(folder), "lock.mdb": before["lock.mdb"]} == before


@pytest.mark.parametrize("database", ["queues", "marks", "index", "timers", "producers", "reservations", "cursors"])
def test_a_damaged_row_is_found_by_name_and_its_repair_loses_no_message_but_its_own(
    folder: Path, database: str
) -> None:
    damaged(folder, lambda store: flip(store, database, only(store, database, 1)))
    (found,) = mended(folder)
    assert (found.database, found.queue, found.title) == (database, 1, "queue 'hurt' in vhost '/'")
    assert found.messages == (2 if database == "timers" else 0)
    assert len(found.key) >= 16


def test_a_damaged_body_loses_what_lives_of_its_segment(folder: Path) -> None:
    damaged(folder, lambda store: flip_body(store, 2, 10))
    (found,) = mended(folder)
    assert (found.queue, found.messages, found.numbers) == (2, 10, [(10, 20)])
    assert found.mend == "loses 10 messages (numbers 10 to 19)"
    shard = Clocked(folder.parent)
    assert shard.bodies(queue=2) == [*range(10), *range(20, 30)]
    shard.close()


@pytest.mark.parametrize(("database", "loses"), [("segments", 10), ("index", 0)])
def test_a_row_that_is_missing_is_found(folder: Path, database: str, loses: int) -> None:
    def delete(store: Store) -> None:
        key = only(store, database, 2)
        with store.engine._env.begin(write=True) as transaction:
            transaction.delete(key, db=store.engine.environment.dbs[database.encode()])

    damaged(folder, delete)
    (found,) = mended(folder)
    assert found.messages == loses


def test_messages_that_were_done_with_come_again_where_that_is_lost(folder: Path) -> None:
    shard = Clocked(folder.parent)
    shard.get(5, queue=2, auto_ack=True)
    shard.tell()
    shard.stop()
    flip(shard.store, "index", min(rows(shard.store, "index", 2)))
    shard.close()
    (found,) = mended(folder)
    assert found.mend == "keeps messages 0 to 9; those that were acknowledged come again"
    shard = Clocked(folder.parent)
    assert shard.bodies(queue=2) == list(range(30))
    shard.close()


def test_a_damaged_staged_message_and_seal_are_found(folder: Path) -> None:
    def both(store: Store) -> None:
        flip(store, "staged", STAGE.pack(8, 71, 0, 3, len(run_of(30, 3).records)))
        flip(store, "sealed", only(store, "sealed", 8))

    damaged(folder, both)
    staged, seal = mended(folder)
    assert (staged.messages, staged.database, seal.database) == (3, "staged", "sealed")
    assert "transaction 8" in staged.what


def test_a_note_of_damage_and_the_numbers_of_transactions_are_found(folder: Path) -> None:
    shard = Clocked(folder.parent)
    original = rows(shard.store, "segments", 1)
    flip_body(shard.store, 1)
    shard.read(queue=2)
    shard.loop._buffer.cache.bytes_max = 0
    assert shard.table(1)
    shard.get(1, queue=1)
    shard.stop()
    with shard.store.engine._env.begin(write=True) as transaction:
        for key, value in original.items():
            transaction.put(key, value, db=shard.store.engine._dbs[4])
    flip(shard.store, "state", b"ended") if shard.store.engine._env.begin().get(
        b"ended", db=shard.store.engine._dbs[STATE]
    ) else None
    shard.close()
    assert [each.database for each in mended(folder)] == ["state"]


def test_a_store_is_looked_through_and_mended_with_what_policies_gave_its_queues(folder: Path) -> None:
    given = msgspec.structs.replace(QUEUES[1], policy={"x-max-length-bytes": 10_000, "x-delivery-limit": 5})
    shard = Clocked(folder.parent)
    shard.assign(given)
    shard.take_in(run_of(30, 10), queue=2)
    shard.stop()
    assert shard.loop._state.queues[2].queue.declared.policy.keys() == given.policy.keys()
    shard.close()
    assert findings(folder) == [], "the coordinator's queues have no arguments of policies"
    damaged(folder, lambda store: flip(store, "index", max(rows(store, "index", 2))))
    (found,) = mended(folder)
    assert (found.queue, found.messages) == (2, 0)
    damaged(folder, lambda store: flip(store, "queues", only(store, "queues", 2)))
    (found,) = mended(folder)
    assert found.mend == "takes the declaration from the coordinator's store"
    shard = Clocked(folder.parent)
    assert shard.bodies(queue=2) == list(range(40))
    assert not shard.loop._state.queues[2].queue.declared.policy, "until the coordinator says it again"
    shard.assign(given)
    assert shard.bodies(queue=2) == list(range(40))
    shard.close()


def test_without_the_coordinator_a_lost_declaration_cannot_be_made_anew(folder: Path) -> None:
    damaged(folder, lambda store: flip(store, "queues", only(store, "queues", 1)))
    (found,) = findings(folder, None)
    assert (found.edits, found.mend, found.title) == ((), "", "queue 1")


def test_queues_that_only_one_side_knows_are_told(folder: Path) -> None:
    other = Queue("/", "elsewhere", 77, 0)
    known = Registry({**{queue.id: queue for queue in QUEUES[1:]}, 77: other})
    missing, unknown = findings(folder, known)
    assert (missing.queue, missing.title, missing.is_damage) == (77, "queue 'elsewhere' in vhost '/'", True)
    assert (unknown.queue, unknown.is_damage, unknown.edits) == (1, False, ())


@pytest.fixture
def sharing(tmp_path: Path) -> Path:
    """A closed store in which queues 1 and 2 share three bodies, and queue 2 has one with queue 3."""
    shard = Clocked(tmp_path)
    shard.assign(*QUEUES, Queue("/", "third", 3, 0))
    for start in range(3):
        assert not shard.publish(Publish((1, 2), padded(start * 10, 10)))
    assert not shard.publish(Publish((2, 3), padded(30, 10)))
    shard.stop()
    shard.close()
    return tmp_path / "store"


THREE = Registry({queue.id: queue for queue in (*QUEUES, Queue("/", "third", 3, 0))})


def padded(start: int, count: int) -> RecordBatch:
    bodies = [b"%1000d" % number for number in range(start, start + count)]
    return RecordBatch("ex", "key", 1, 5, 9, start, count, pack_many(bodies))


def bodies_of(store: Store) -> list[bytes]:
    return list(store.engine.keys(SHARED))


def mend_shared(folder: Path) -> list[Finding]:
    found = findings(folder, THREE)
    mend(folder, [edit for each in found for edit in each.edits])
    assert findings(folder, THREE) == []
    return found


def left(folder: Path) -> list[list[int]]:
    shard = Clocked(folder.parent)
    try:
        assert shard.loop.table()["damaged"] == []
        return [shard.bodies(queue=queue) for queue in (1, 2, 3)]
    finally:
        shard.close()


def test_shared_bodies_that_are_well_have_no_findings(sharing: Path) -> None:
    assert findings(sharing, THREE) == []


def test_a_damaged_shared_body_loses_its_messages_alone_in_every_queue_that_has_them(sharing: Path) -> None:
    damaged(sharing, lambda store: flip(store, "shared", bodies_of(store)[1]))
    body, first, second = mend_shared(sharing)
    assert (body.database, body.queue, body.messages) == ("shared", None, 0)
    assert [(each.queue, each.messages, each.numbers) for each in (first, second)] == [
        (1, 10, [(10, 20)]),
        (2, 10, [(10, 20)]),
    ]
    assert left(sharing) == [[*range(10), *range(20, 30)], [*range(10), *range(20, 40)], [*range(30, 40)]]


def test_a_shared_body_that_is_missing_is_found(sharing: Path) -> None:
    damaged(sharing, lambda store: store.engine.apply([(SHARED, bodies_of(store)[3], None)]))
    assert [(each.queue, each.messages) for each in mend_shared(sharing)] == [(2, 10), (3, 10)]
    assert left(sharing) == [[*range(30)], [*range(30)], []]


def test_a_shared_body_that_nothing_refers_to_is_found_and_deleted(sharing: Path) -> None:
    key = (77).to_bytes(8, "big")
    damaged(sharing, lambda store: store.engine.apply([(SHARED, key, sealed_row(SHARED, key, b"records"))]))
    (found,) = mend_shared(sharing)
    assert (found.key, found.what) == (key.hex(), "no message refers to this shared body")


@pytest.mark.parametrize("database", ["index", "segments"])
def test_a_damaged_row_of_a_segment_with_shared_bodies_harms_no_other_queue(sharing: Path, database: str) -> None:
    damaged(sharing, lambda store: flip(store, database, sorted(rows(store, database, 2))[0]))
    mend_shared(sharing)
    first, second, third = left(sharing)
    assert (first, third) == ([*range(30)], [*range(30, 40)])
    assert second[-30:] == [*range(10, 40)]
    assert database == "segments" or second == [*range(40)]


def test_where_the_note_of_their_numbers_is_damaged_they_go_on_far_behind(sharing: Path) -> None:
    damaged(sharing, lambda store: flip(store, "state", BODIES_NOTED))
    (found,) = mend_shared(sharing)
    assert found.database == "state"
    shard = Clocked(sharing.parent)
    assert not shard.publish(Publish((1, 2), padded(40, 10)))
    assert int.from_bytes(bodies_of(shard.store)[-1], "big") > 1 << 43
    shard.close()


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    """A closed store with staged messages of an undecided transaction, in two shared bodies."""
    shard = Clocked(tmp_path)
    shard.assign(*QUEUES)
    stage(shard, 8, padded(0, 20), padded(20, 20))
    shard.stop()
    shard.close()
    return tmp_path / "store"


def test_staged_messages_in_shared_bodies_that_are_well_have_no_findings(staging: Path) -> None:
    assert findings(staging) == []


def test_a_damaged_entry_of_staged_messages_gets_the_number_of_their_body_again(staging: Path) -> None:
    before = digest(staging)
    damaged(staging, lambda store: flip(store, "stages", next(iter(store.engine.keys(DATABASES.index(b"stages"))))))
    assert digest(staging) != before
    (found,) = mended(staging)
    assert (found.database, found.messages) == ("stages", 0)
    store = Store.open(staging)
    store.load()
    assert sorted(store.bodies._staged.values()) == [int.from_bytes(key, "big") for key in bodies_of(store)]
    store.close()


@pytest.mark.parametrize("is_there", [True, False])
def test_a_damaged_shared_body_loses_its_staged_messages_alone(staging: Path, is_there: bool) -> None:
    if is_there:
        damaged(staging, lambda store: flip(store, "shared", bodies_of(store)[0]))
    else:
        damaged(staging, lambda store: store.engine.apply([(SHARED, bodies_of(store)[0], None)]))
    found = mended(staging)
    assert [(each.database, each.messages) for each in found] == [*[("shared", 0)][:is_there], ("staged", 20)]
    store = Store.open(staging)
    store.load()
    assert [place.sequence for place in store.staging.all()] == [20]
    assert len(bodies_of(store)) == 1
    store.close()
