"""Damage stays where it is: a damaged row takes its queue out of service, whatever was being done; the rest goes on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardmq.bus.link import LinkOpened
from shardmq.bus.messages.base import Answer, BusMessage, Call, Inspect, Refusal
from shardmq.bus.messages.dead_letters import DeadLetter, DeadLetterRefused
from shardmq.bus.messages.reads import EndReservation, Peek, Read, Reserve, Slices
from shardmq.bus.messages.shard import (
    Ack,
    AssignQueue,
    AtomicCommit,
    Cancelled,
    Counts,
    Credit,
    Delivered,
    DropQueue,
    Get,
    Nack,
    PrepareDelete,
    Publish,
    Purge,
)
from shardmq.bus.messages.transactions import FollowDecision, Prepare, Seal
from shardmq.errors import ReplyCode
from shardmq.message.record_batch import RecordBatch
from shardmq.shards.storage.schema import STAGE, STATE
from shardmq.topology.entities import Queue
from tests.shards.clocked import EVERYTHING, LONG_MS, Clocked
from tests.shards.damaging import flip, flip_body, rows
from tests.shards.driver import consume, numbers, run_of

QUEUES = (
    Queue("/", "hurt", 1, 0),
    Queue("/", "well", 2, 0),
    Queue("/", "dying", 3, 0, arguments={"x-dead-letter-exchange": "dlx", "x-message-ttl": 60_000}),
    Queue("/", "heavy", 4, 0, arguments={"x-max-length-bytes": 10_000}),
)


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Clocked]:
    shard = Clocked(tmp_path)
    shard.assign(*QUEUES)
    shard.take_in(run_of(0, 10))
    shard.take_in(run_of(10, 10))
    shard.restart()  # nothing is in memory any more
    yield shard
    shard.close()


def reassign(shard: Clocked) -> None:
    shard.do(AssignQueue, list(QUEUES))


def out_of_service(shard: Clocked, queue: int = 1) -> str:
    """What is said of it, which names everything."""
    row = shard.table(queue)
    text: str = row["out_of_service"]
    name = next(each.name for each in QUEUES if each.id == queue)
    assert text.startswith(f"queue '{name}' in vhost '/' is out of service: row {queue:016x}")
    for what in ("database ", str(shard.store.file), "`shardmq store check`", "`shardmq store repair`"):
        assert what in text
    assert [alarm["queue"] for alarm in shard.loop.table()["damaged"]] == [queue]
    return text


def works(shard: Clocked, queue: int = 2) -> None:
    """Another queue takes messages, confirms and delivers them."""
    shard.take_in(run_of(500, 3), queue=queue)
    assert shard.contents(queue)[-3:] == [500, 501, 502]


def test_a_damaged_body_met_by_a_delivery_cancels_the_consumers_and_harms_nobody_else(shard: Clocked) -> None:
    before = rows(shard.store, "segments", 1), rows(shard.store, "index", 1)
    flip_body(shard.store, 1)
    before[0].update(rows(shard.store, "segments", 1))
    shard.published += 1
    shard.send(consume(5, 2), Publish((2,), run_of(70, 4)), consume(6, 1), consume(7, 1))
    assert numbers([shard.expect(Delivered)]) == [70, 71, 72, 73]
    assert shard.expect(Cancelled).consumer == 6
    text = out_of_service(shard)
    assert shard.expect(Refusal).text == text
    shard.send(Ack(6, [(0, 5)]), Credit(6, 10), Nack(6, [(0, 3)], True))
    (refusal,) = shard.publish(Publish((1, 2), run_of(80, 1)))
    assert (refusal.code, refusal.text) == (ReplyCode.RESOURCE_ERROR, text)
    assert numbers([shard.expect(Delivered)]) == [80]
    shard.put_forward(3_600_000)
    assert (rows(shard.store, "segments", 1), rows(shard.store, "index", 1)) == before


REQUESTS: list[tuple[type[BusMessage], tuple[Any, ...]]] = [
    (Get, (9, 1, False)),
    (Peek, (1, 0, 5)),
    (Read, (1, 0, EVERYTHING, 10)),
]
"""Requests that read messages; and those that find the queue out of service."""

OTHERS: list[tuple[type[BusMessage], tuple[Any, ...]]] = [
    (Purge, (1,)),
    (Counts, (1,)),
    (Slices, (1, 2)),
    (Reserve, (1, "r", 0, LONG_MS)),
    (DropQueue, (1,)),
    (EndReservation, (1, "r", True, [])),
    (PrepareDelete, (1, False, False)),
]


@pytest.mark.parametrize(("kind", "fields"), REQUESTS, ids=lambda each: getattr(each, "__name__", ""))
def test_who_meets_the_damage_is_told_and_so_is_everybody_after(
    shard: Clocked, kind: type[BusMessage], fields: tuple[Any, ...]
) -> None:
    flip_body(shard.store, 1)
    refusal = shard.refused(kind, *fields)
    assert (refusal.code, refusal.text) == (ReplyCode.RESOURCE_ERROR, out_of_service(shard))
    for other, wanted in [*REQUESTS, *OTHERS]:
        assert shard.refused(other, *wanted).text == refusal.text
    reassign(shard)
    assert shard.refused(kind, *fields).text == refusal.text
    works(shard)


def test_it_is_out_of_service_after_restarts_and_says_so_once_in_the_log(
    shard: Clocked, caplog: pytest.LogCaptureFixture
) -> None:
    flip_body(shard.store, 1)
    text = shard.refused(Get, 9, 1, False).text
    shard.refused(Get, 9, 1, False)
    assert [record.getMessage().count(text) for record in caplog.records] == [1]
    for restart in (shard.restart, shard.stop):
        restart()
        assert out_of_service(shard) == text
        assert shard.refused(Get, 9, 1, False).text == text
        works(shard)


def test_what_came_in_the_same_pass_is_confirmed_and_stored(shard: Clocked) -> None:
    flip_body(shard.store, 1)
    before = len(rows(shard.store, "segments", 1))
    assert not shard.publish(Publish((1,), run_of(30, 5)), Publish((2,), run_of(0, 1)))
    shard.refused(Get, 9, 1, False)
    assert len(rows(shard.store, "segments", 1)) == before + 1


def test_messages_that_expire_are_not_deleted(shard: Clocked) -> None:
    shard.take_in(run_of(0, 5), queue=3)
    flip_body(shard.store, 3)
    stored = rows(shard.store, "index", 3)
    shard.restart()
    shard.put_forward(61_000)
    out_of_service(shard, 3)
    assert rows(shard.store, "index", 3) == stored
    works(shard)


def test_a_queue_whose_bytes_are_counted_comes_up_out_of_service(shard: Clocked) -> None:
    shard.take_in(run_of(0, 5), queue=4)
    got = shard.get(queue=4)
    assert got is not None
    shard.tell(Ack(9, [(0, 1)]))
    flip_body(shard.store, 4)
    shard.restart()
    out_of_service(shard, 4)
    works(shard)


def test_merging_small_segments_stops_at_the_damage(shard: Clocked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardmq.shards.queues.compaction._AGE_SECONDS", 1e12)
    for number in range(40):
        shard.take_in(run_of(100 + number, 1))
    stored = rows(shard.store, "index", 1)
    shard.restart()
    flip_body(shard.store, 1, min(int.from_bytes(key[8:], "big") for key in stored))
    monkeypatch.setattr("shardmq.shards.queues.compaction._AGE_SECONDS", 0.0)
    deadline = shard.passes + 500
    while not shard.loop.table()["damaged"]:
        assert shard.passes < deadline
        shard.turn()
    out_of_service(shard)
    assert rows(shard.store, "index", 1).items() <= stored.items()
    works(shard)


def test_a_damaged_delayed_message_takes_its_queue_out_and_stays(shard: Clocked) -> None:
    assert not shard.publish(Publish((1,), run_of(40, 2), delay_ms=1000), Publish((2,), run_of(50, 2), delay_ms=1000))
    (key,) = rows(shard.store, "timers", 1)
    flip(shard.store, "timers", key)
    shard.put_forward(2000)
    shard.do(Inspect)
    assert "database timers" in out_of_service(shard)
    assert list(rows(shard.store, "timers", 1)) == [key]
    assert shard.contents(2) == [50, 51]
    shard.restart()
    out_of_service(shard)
    assert list(rows(shard.store, "timers", 1)) == [key]


def test_delayed_and_returned_messages_of_a_damaged_queue_wait(shard: Clocked) -> None:
    shard.publish(Publish((1,), run_of(40, 2), delay_ms=1000))
    got = shard.get()
    assert got is not None
    shard.tell(Nack(9, [(got.first, got.first + 1)], True, 1000))
    timers = rows(shard.store, "timers", 1)
    assert len(timers) == 2
    shard.restart()
    flip_body(shard.store, 1)
    shard.refused(Peek, 1, 0, 5)
    shard.restart()
    shard.put_forward(5000)
    assert rows(shard.store, "timers", 1) == timers


def test_dead_letters_of_a_damaged_queue_stay_in_it(shard: Clocked) -> None:
    shard.take_in(run_of(0, 5), queue=3)
    shard.ask(consume(1, 3))
    shard.expect(Delivered)
    shard.restart()
    stored = rows(shard.store, "index", 3)
    shard.ask(consume(1, 3))
    shard.expect(Delivered)
    shard.loop._buffer.cache.bytes_max = 0
    shard.take_in(run_of(0, 1), queue=2)
    flip_body(shard.store, 3)
    shard.send(Nack(1, [(0, 5)], False))
    assert shard.expect(Cancelled).consumer == 1
    out_of_service(shard, 3)
    assert not [message for message in shard.inbox if isinstance(message, DeadLetter)]
    assert rows(shard.store, "index", 3) == stored
    works(shard)


def test_dead_letters_for_a_damaged_queue_are_offered_again(shard: Clocked) -> None:
    shard.take_in(run_of(0, 5), queue=3)
    flip_body(shard.store, 1)
    shard.refused(Peek, 1, 0, 5)
    shard.put_forward(61_000)
    dead = shard.expect(DeadLetter)
    (refusal,) = shard.publish(Publish((1,), dead.batch))  # as a gateway does
    assert refusal.code == ReplyCode.RESOURCE_ERROR
    shard.tell(DeadLetterRefused(3, [(0, 5)]))
    shard.put_forward(2000)
    assert shard.expect(DeadLetter).batch == dead.batch


def test_reservations_of_a_damaged_queue_are_kept(shard: Clocked) -> None:
    assert shard.reserve("night", 4) == (4, False)
    flip_body(shard.store, 1)
    text = shard.refused(Read, 1, 0, EVERYTHING, 10, "night").text
    assert text == out_of_service(shard)
    reserved = rows(shard.store, "reservations", 1)
    assert len(reserved) == 1
    shard.restart()
    shard.put_forward(2 * LONG_MS)
    shard.tell()
    assert rows(shard.store, "reservations", 1) == reserved


def test_a_request_that_waited_for_an_acknowledgement_is_told_of_the_damage(
    shard: Clocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardmq.shards.state.sliced_work.SLICE_BYTES", 1)
    shard.take_in(run_of(0, 10), queue=4)
    shard.restart()
    assert shard.reserve("night", queue=4) == (10, False)
    flip_body(shard.store, 4)
    shard.send(Call(1, EndReservation(4, "night", True, [(0, 2)])), Call(2, EndReservation(4, "night", False, [])))
    assert shard.expect(Answer, lambda answer: answer.request == 1).result == 2
    assert shard.expect(Refusal, lambda refusal: refusal.request == 2).text == out_of_service(shard, 4)
    works(shard)


def test_a_commit_that_settles_messages_of_a_damaged_queue_is_refused_whole(shard: Clocked) -> None:
    got = shard.get(consumer=6)
    assert got is not None
    shard.loop._buffer.cache.bytes_max = 0
    shard.take_in(run_of(0, 1), queue=2)
    flip_body(shard.store, 1)
    shard.refused(Peek, 1, 0, 5)
    commit = [Publish((2,), run_of(7, 1))], [Ack(6, [(got.first, got.first + 1)])], []
    assert shard.refused(AtomicCommit, *commit).text == out_of_service(shard)
    assert shard.refused(AtomicCommit, [Publish((1,), run_of(7, 1))], [], []).text == out_of_service(shard)
    assert shard.contents(2) == [0]


def stage(shard: Clocked, transaction: int, *batches: RecordBatch, queues: tuple[int, ...] = (1, 2)) -> None:
    sequence = 0
    for batch in batches:
        assert not shard.publish(Publish(queues, batch, 71, sequence, 0, transaction))
        sequence += batch.count
    shard.do(Seal, transaction, 71)


def test_what_is_committed_for_a_damaged_queue_waits_and_the_rest_joins(shard: Clocked) -> None:
    stage(shard, 4, run_of(30, 3), run_of(33, 3))
    body = rows(shard.store, "segments", 1)
    flip_body(shard.store, 1)
    shard.refused(Peek, 1, 0, 5)
    assert shard.do(Prepare, 4, [71]) == [6]
    for _ in range(2):
        assert shard.refused(FollowDecision, 4, [71]).text == out_of_service(shard)
    assert shard.contents(2) == [30, 31, 32, 33, 34, 35]
    # it does not turn for ever; a tick may be due just then, on a busy machine
    assert any(shard.tell() or shard.loop.wait_seconds() > 0 for _ in range(100))
    shard.restart()
    reassign(shard)
    assert shard.refused(FollowDecision, 4, [71]).text == out_of_service(shard)
    mend(shard, body)
    assert shard.do(FollowDecision, 4, [71]) is None
    assert shard.contents(1) == [*range(20), *range(30, 36)]
    assert shard.contents(2) == []
    assert shard.loop.table()["staged"] == []


def mend(shard: Clocked, bodies: dict[bytes, bytes]) -> None:
    """As a repair does: the rows are as they were, and the note of the damage is gone."""
    store = shard.store
    with store.engine._env.begin(write=True) as transaction:
        for key, value in bodies.items():
            transaction.put(key, value, db=store.engine._dbs[4])
        transaction.delete(b"damaged" + (1).to_bytes(8, "big"), db=store.engine._dbs[STATE])
    shard.restart()
    reassign(shard)
    assert shard.loop.table()["damaged"] == []


def test_a_transaction_with_a_damaged_message_is_not_committed_and_can_be_aborted(shard: Clocked) -> None:
    stage(shard, 4, run_of(30, 3), run_of(33, 3))
    stage(shard, 5, run_of(60, 3))
    flip(shard.store, "staged", STAGE.pack(4, 71, 3, 3, len(run_of(33, 3).records)))
    refusal = shard.refused(Prepare, 4, [71])
    assert refusal.code == ReplyCode.PRECONDITION_FAILED
    assert refusal.text.startswith("transaction 4 cannot be carried out: row ")
    assert shard.loop.table()["damaged"][0]["transaction"] == 4
    assert shard.do(Prepare, 5, [71]) == [3]
    assert shard.do(FollowDecision, 5, [71]) is None
    assert shard.contents(2) == [60, 61, 62]
    assert shard.do(FollowDecision, 4, []) is None
    assert shard.loop.table()["damaged"] == []
    assert shard.contents(1) == [*range(20), 60, 61, 62]


def test_a_message_damaged_after_the_decision_stays_staged_and_the_rest_joins(shard: Clocked) -> None:
    stage(shard, 4, run_of(30, 3), run_of(33, 3), run_of(36, 3))
    stage_again = Publish((2,), run_of(90, 1), 72, 0, 0, 4)
    assert not shard.publish(stage_again)
    key = STAGE.pack(4, 71, 3, 3, len(run_of(33, 3).records))
    flip(shard.store, "staged", key)
    refusal = shard.refused(FollowDecision, 4, [71])
    assert refusal.text.startswith("transaction 4 cannot be carried out: row ")
    assert shard.contents(2) == [30, 31, 32, 36, 37, 38]
    assert list(rows(shard.store, "staged", 4)) == [key]
    shard.restart()
    assert shard.refused(FollowDecision, 4, [71]).text == refusal.text
    assert list(rows(shard.store, "staged", 4)) == [key]
    assert shard.contents(1) == [*range(20), 30, 31, 32, 36, 37, 38]


def test_a_gateway_that_goes_away_frees_all_its_consumers_though_one_queue_is_damaged(shard: Clocked) -> None:
    shard.take_in(run_of(0, 5), queue=4)
    shard.take_in(run_of(0, 5), queue=2)
    for queue in (4, 2):
        shard.ask(consume(queue, queue))
        shard.expect(Delivered)
    shard.tell(Ack(4, [(0, 1)]))  # of a segment that is whole, the bytes are known
    shard.loop._buffer.cache.bytes_max = 0
    shard.take_in(run_of(0, 1), queue=3)
    flip_body(shard.store, 4)
    shard.dialer._lose("for the test")
    shard.inbox.clear()
    shard.expect(LinkOpened)
    shard.published = 0
    shard.do(Inspect)
    out_of_service(shard, 4)
    assert shard.contents(2) == [0, 1, 2, 3, 4]


def test_the_coordinator_may_take_away_what_would_not_survive_a_restart(tmp_path: Path) -> None:
    shard = Clocked(tmp_path, memory_bytes=0)
    shard.assign(Queue("/", "fleeting", 1, 0, durable=False), QUEUES[1])
    shard.take_in(run_of(0, 5, flags=0))
    flip(shard.store, "spilled", next(iter(rows(shard.store, "spilled", 1))))
    assert "spilled" in shard.refused(Get, 9, 1, False).text
    assert "spilled" in shard.refused(PrepareDelete, 1, False, False).text
    assert shard.do(DropQueue, 1) == 0
    assert shard.loop.table()["damaged"] == []
    shard.close()
