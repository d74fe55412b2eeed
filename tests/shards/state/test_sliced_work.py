"""What is too much for one pass is done in slices: others are served in between, and a kill leaves a part of it."""

import itertools
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.bus.messages.base import Answer, Call, Refusal
from shardmq.bus.messages.reads import EndReservation, Reserve
from shardmq.bus.messages.shard import Confirmed, DropQueue, Publish, Purge
from shardmq.message.record import pack_many
from shardmq.message.record_batch import RecordBatch
from shardmq.shards.queues.subqueue import EXPIRE_BATCHES, EXPIRE_BYTES
from shardmq.shards.state.sliced_work import SLICE_BYTES
from shardmq.topology.entities import Queue
from tests.shards.clocked import Clocked
from tests.shards.driver import Shard, consume, numbers, run_of
from tests.shards.inside import MEMORY

QUEUES = (Queue("/", "big", 1, 0), Queue("/", "other", 2, 0))
BATCH_BYTES = 2 << 20
BATCHES = 4 * SLICE_BYTES // BATCH_BYTES
MESSAGES = 8 * BATCHES


@pytest.fixture
def shard() -> Iterator[Shard]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        shard = Shard(Path(folder), disk_free_bytes_min=0)
        shard.assign(*QUEUES)
        fill(shard)
        yield shard
        shard.close()


def fill(shard: Shard) -> None:
    """Four slices of messages."""
    body = os.urandom(BATCH_BYTES // 8)
    records = pack_many([body] * 8)
    for number in range(BATCHES):
        shard.send(Publish((1,), RecordBatch("ex", "key", 1, 5, 9, 8 * number, 8, records)))
    shard.expect(Confirmed, lambda confirmed: confirmed.upto == BATCHES)


def is_served_beside(shard: Shard, request: Call) -> bool:  # type: ignore[type-arg]
    """Send a request, and a message to the other queue right behind it; whether that is confirmed before the answer."""
    shard.inbox.clear()  # confirms of what was filled in
    shard.send(request, Publish((2,), run_of(0, 1)))
    shard.until(lambda: any(isinstance(each, Answer) for each in shard.inbox))
    before = list(itertools.takewhile(lambda each: not isinstance(each, Answer), shard.inbox))
    shard.expect(Answer, lambda answer: answer.request == request.request and answer.result == MESSAGES)
    return any(isinstance(each, Confirmed) and each.upto == BATCHES + 1 for each in before)


def test_others_are_served_while_a_queue_is_purged(shard: Shard) -> None:
    assert is_served_beside(shard, Call(11, Purge(1)))
    shard.restart(signal.SIGKILL)
    assert shard.queue(1)["valid"] == 0


def test_what_comes_while_a_queue_is_purged_stays(shard: Shard) -> None:
    shard.send(Call(11, Purge(1)), Publish((1,), run_of(0, 10)))
    shard.send(consume(61))
    assert numbers(shard.delivered(10)) == list(range(10))
    assert shard.expect(Answer, lambda answer: answer.request == 11).result == MESSAGES
    assert shard.queue(1)["unacked"] == shard.queue(1)["valid"] == 10


def test_a_purge_that_was_cut_short_by_a_kill_may_be_repeated(shard: Shard) -> None:
    shard.send(Call(11, Purge(1)))
    shard.until(lambda: shard.queue(1)["ready"] == 0)
    shard.restart(signal.SIGKILL)
    left = shard.queue(1)
    assert left["ready"] == left["valid"] <= MESSAGES
    assert shard.ask(Call(12, Purge(1))) == left["ready"]
    shard.restart(signal.SIGKILL)
    assert shard.queue(1)["valid"] == 0


def test_others_are_served_while_a_reservation_is_acknowledged(shard: Shard) -> None:
    assert shard.ask(Call(11, Reserve(1, "job", 0, 600_000))) == [MESSAGES, False]
    assert is_served_beside(shard, Call(12, EndReservation(1, "job", True, [])))
    shard.restart(signal.SIGKILL)
    assert shard.queue(1)["valid"] == 0
    assert shard.ask(Call(13, Reserve(1, "job", 0, 600_000))) == [0, True]


def test_what_is_asked_of_a_reservation_while_it_is_acknowledged_comes_after_that(shard: Shard) -> None:
    assert shard.ask(Call(11, Reserve(1, "job", 0, 600_000))) == [MESSAGES, False]
    shard.send(
        Call(12, EndReservation(1, "job", True, [])),
        Call(13, EndReservation(1, "job", False, [])),
        Call(14, Reserve(1, "job", 0, 1)),
    )
    answers = [shard.expect(Answer, lambda answer: answer.request >= 12) for _ in range(3)]
    assert [(answer.request, answer.result) for answer in answers] == [(12, MESSAGES), (13, 0), (14, [0, True])]
    assert shard.queue(1)["valid"] == 0


def test_an_acknowledgement_that_was_cut_short_by_a_kill_leaves_the_rest_reserved(shard: Shard) -> None:
    assert shard.ask(Call(11, Reserve(1, "job", 0, 600_000))) == [MESSAGES, False]
    shard.send(Call(12, EndReservation(1, "job", True, [])))
    shard.until(lambda: shard.queue(1)["valid"] < MESSAGES)
    shard.restart(signal.SIGKILL)
    left = shard.queue(1)
    assert left["ready"] == 0, "nobody else gets what may have been read"
    assert left["reserved"] == left["valid"] < MESSAGES
    assert shard.ask(Call(13, EndReservation(1, "job", True, []))) == left["reserved"]
    assert shard.queue(1)["valid"] == 0


def test_a_queue_may_be_deleted_while_it_is_purged_and_a_reservation_of_it_acknowledged(shard: Shard) -> None:
    assert shard.ask(Call(11, Reserve(1, "job", MESSAGES // 2, 600_000))) == [MESSAGES // 2, False]
    shard.send(Call(12, Purge(1)), Call(13, EndReservation(1, "job", True, [])), Call(14, DropQueue(1)))
    assert shard.expect(Answer, lambda answer: answer.request == 14).result == 0
    assert shard.expect(Answer, lambda answer: answer.request == 12).result == MESSAGES // 2
    assert "was deleted" in shard.expect(Refusal, lambda refusal: refusal.request == 13).text
    shard.restart(signal.SIGKILL)
    assert shard.ask(Call(15, Purge(2))) == 0


def test_what_expires_together_is_removed_in_slices() -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        shard = Clocked(Path(folder))
        shard.assign(Queue("/", "hasty", 1, 0, arguments={"x-message-ttl": 60_000}))
        count = 3 * EXPIRE_BYTES >> 20
        records = pack_many([bytes(1 << 20)])
        shard.take_in(*[RecordBatch("ex", "key", 1, 5, 9, number, 1, records) for number in range(count)])
        queue = shard.loop._state.queues[1].queue
        queue.expire(shard.loop._state.clock.now_ms() + 61_000, EXPIRE_BATCHES)
        assert count - queue.ready == EXPIRE_BYTES >> 20
        shard.put_forward(61_000)
        while shard.table()["ready"]:
            shard.turn()
        assert shard.table()["expired"] == count
        shard.close()
