"""Large staged messages: written once, as shared bodies, to which their queues refer after the commit."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.bus.messages.shard import Publish, Purge
from shardmq.bus.messages.transactions import FollowDecision, Prepare, Seal
from shardmq.errors import ReplyCode
from shardmq.message.record import pack_many
from shardmq.message.record_batch import RecordBatch
from shardmq.shards.storage.schema import DATABASES, NUMBER, SEGMENTS, SHARED, STAGED, STAGES
from shardmq.shards.storage.shared_bodies import STAGED_BYTES_MIN
from shardmq.topology.entities import Queue
from tests.shards.clocked import Clocked
from tests.shards.damaging import flip

QUEUES = (
    Queue("/", "q", 1, 0),
    Queue("/", "other", 2, 0),
    Queue("/", "volatile", 3, 0, durable=False),
    Queue("/", "full", 4, 0, arguments={"x-max-length": 15, "x-overflow": "reject-publish"}),
)

ATTEMPT, LATE = 71, 5


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Clocked]:
    shard = Clocked(tmp_path, memory_bytes=1 << 20)
    shard.assign(*QUEUES)
    yield shard
    shard.close()


def large(start: int, count: int = 10, flags: int = 1) -> RecordBatch:
    bodies = [b"%05d" % number * (STAGED_BYTES_MIN // 5 // count + 1) for number in range(start, start + count)]
    return RecordBatch("ex", "key", flags, 5, 9, start, count, pack_many(bodies))


def stage(shard: Clocked, batch: RecordBatch, *queues: int, attempt: int = ATTEMPT, delay_ms: int = 0) -> None:
    assert not shard.publish(Publish(queues or (1,), batch, attempt, batch.serial, delay_ms, 4))


def commit(shard: Clocked, *attempts: int) -> None:
    assert shard.do(FollowDecision, 4, list(attempts)) is None
    shard.tell()


def stored(shard: Clocked, database: int = SHARED) -> list[bytes]:
    return list(shard.store.engine.keys(database))


def size_of(shard: Clocked, database: int) -> int:
    return sum(len(value) for _, value in shard.store.engine.scan(database))


def seen(shard: Clocked, queue: int = 1) -> list[int]:
    return [int(body[:5]) for _, body, _, _ in shard.read(queue=queue)]


def test_a_commit_writes_no_body_again(shard: Clocked) -> None:
    for start in (0, 10, 20):
        stage(shard, large(start))
    bodies = stored(shard)
    assert len(bodies) == len(stored(shard, STAGED)) == 3
    assert size_of(shard, STAGED) < 500
    shard.do(Seal, 4, ATTEMPT)
    assert shard.do(Prepare, 4, [ATTEMPT]) == [30]
    assert seen(shard) == []
    commit(shard, ATTEMPT)
    assert seen(shard) == [*range(30)]
    assert stored(shard) == bodies
    assert stored(shard, STAGED) == stored(shard, STAGES) == []
    assert size_of(shard, SEGMENTS) < 500
    shard.restart()
    assert seen(shard) == [*range(30)]
    assert shard.do(Purge, 1) == 30
    shard.tell()
    assert stored(shard) == []


def test_bodies_that_are_staged_outlast_a_restart_and_go_with_the_abort(shard: Clocked) -> None:
    for start in (0, 10):
        stage(shard, large(start), 1, 2)
    shard.restart()
    stage(shard, large(0), 1, 2)  # sent again
    stage(shard, large(0), 1, 2, attempt=LATE)
    assert len(stored(shard)) == 3
    shard.do(Seal, 4, ATTEMPT)
    commit(shard, ATTEMPT)
    assert len(stored(shard)) == 2, "what an attempt staged that does not count is kept"
    assert seen(shard, 1) == seen(shard, 2) == [*range(20)]
    assert shard.do(Purge, 1) == 20
    shard.restart()
    assert seen(shard, 2) == [*range(20)]
    assert not shard.publish(Publish((1,), large(30), ATTEMPT, 30, 0, 6))
    assert len(stored(shard)) == 3
    assert shard.do(FollowDecision, 6, []) is None
    assert shard.do(Purge, 2) == 20
    shard.tell()
    assert stored(shard) == []


def test_queues_of_all_kinds_get_what_was_staged_for_them(shard: Clocked) -> None:
    stage(shard, large(0), 1, 3, 4)
    stage(shard, large(10), 1, 4)
    stage(shard, large(20, flags=0), 2)
    stage(shard, large(30), 1, delay_ms=10**6)
    shard.do(Seal, 4, ATTEMPT)
    commit(shard, ATTEMPT)
    assert seen(shard, 1) == [*range(20)]
    assert seen(shard, 2) == [*range(20, 30)]
    assert seen(shard, 3) == [*range(10)]
    assert seen(shard, 4) == [*range(20)]
    shard.put_forward(2 * 10**6)
    assert seen(shard, 1) == [*range(20), *range(30, 40)]
    shard.restart()
    assert seen(shard, 1) == [*range(20), *range(30, 40)]
    assert seen(shard, 2) == []
    assert seen(shard, 4) == [*range(20)]


def test_small_staged_batches_have_their_records_themselves(shard: Clocked) -> None:
    stage(shard, RecordBatch("ex", "key", 1, 5, 9, 0, 1, pack_many([bytes(STAGED_BYTES_MIN - 10)])))
    assert stored(shard) == []


@pytest.mark.parametrize("damage", ["flipped", "missing"])
def test_a_damaged_body_is_found_before_the_commit_is_decided(shard: Clocked, damage: str) -> None:
    for start in (0, 10):
        stage(shard, large(start))
    shard.do(Seal, 4, ATTEMPT)
    body = stored(shard)[1]
    if damage == "flipped":
        flip(shard.store, "shared", body)
    else:
        shard.store.engine.apply([(SHARED, body, None)])
    refusal = shard.refused(Prepare, 4, [ATTEMPT])
    assert refusal.code == ReplyCode.PRECONDITION_FAILED
    assert refusal.text.startswith("transaction 4 cannot be carried out: row ")
    commit(shard)
    assert stored(shard) == []
    assert shard.loop.table()["damaged"] == []


def test_a_body_that_is_damaged_after_the_decision_holds_its_own_messages_up(shard: Clocked) -> None:
    for start in (0, 10, 20):
        stage(shard, large(start))
    shard.do(Seal, 4, ATTEMPT)
    flip(shard.store, "shared", stored(shard)[1])
    assert "transaction 4 cannot be carried out: row " in shard.refused(FollowDecision, 4, [ATTEMPT]).text
    assert seen(shard) == [*range(10), *range(20, 30)]
    shard.tell()
    assert len(stored(shard)) == 3


def test_where_an_entry_of_a_staged_batch_is_damaged_no_body_is_deleted(shard: Clocked) -> None:
    stage(shard, large(0))
    assert not shard.publish(Publish((1, 2), large(10)))
    flip(shard.store, DATABASES[STAGES].decode(), stored(shard, STAGES)[0])
    shard.restart()
    assert shard.do(Purge, 1) == shard.do(Purge, 2) == 10
    shard.tell()
    assert [NUMBER.unpack(key)[0] for key in stored(shard)] == [0, 1]
