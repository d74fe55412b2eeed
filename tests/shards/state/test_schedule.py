"""What is expected, what has ended before it came, and what is left of that."""

import gc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from shardmq.bus.listener import Peer
from shardmq.bus.messages.shard import Ack, AssignQueue, Confirmed, DropQueue, Publish, Release
from shardmq.message.record import pack_many
from shardmq.message.record_batch import RecordBatch
from shardmq.runtime.clock import SteadyClock
from shardmq.shards.consumers.ack_timeouts import AckTimeouts
from shardmq.shards.consumers.consumer import Consumer
from shardmq.shards.handlers.delays import DelayedMessages
from shardmq.shards.state.hosted_queue import HostedQueue, make_queue
from shardmq.shards.state.schedule import CANCELLED_MIN, Entry, Schedule
from shardmq.shards.state.shard import ShardState
from shardmq.shards.storage.store import Store
from shardmq.shards.storage.write_buffer import WriteBuffer
from shardmq.topology.entities import Queue
from tests.shards.clocked import Clocked
from tests.shards.driver import run_of

DAY_MS = 86_400_000


def expect_unused(state: ShardState, hosted: HostedQueue) -> None:
    state.use(hosted)


def expect_delayed(state: ShardState, hosted: HostedQueue) -> None:
    batch = RecordBatch("ex", "key", 1, 5, 9, 0, 1, pack_many([b"a"]))
    DelayedMessages(state).delay(hosted, batch, state.schedule.now_ms + DAY_MS)


def expect_overdue(state: ShardState, hosted: HostedQueue) -> None:
    consumer = Consumer(Peer.__new__(Peer), 1, hosted.queue, 0, False, 1)
    consumer.timeouts = AckTimeouts(DAY_MS, state.schedule, consumer.held, lambda _: consumer.queue.time_out([]))
    consumer.hold(0, 1, again=False)
    consumer.timeouts.close()


@pytest.mark.parametrize("expect", [expect_unused, expect_delayed, expect_overdue])
def test_a_deleted_queue_does_not_stay_for_what_is_expected_of_it(
    tmp_path: Path, expect: Callable[[ShardState, HostedQueue], None]
) -> None:
    store = Store.open(tmp_path)
    state = ShardState("shard-0", store, WriteBuffer(store, 1 << 20), SteadyClock())
    declared = Queue("/", "q", 1, 0, arguments={"x-expires": DAY_MS})
    hosted = state.add(make_queue(declared, state.buffer, state.clock))
    expect(state, hosted)
    del state.queues[1], hosted
    gc.collect()
    assert not [found for found in gc.get_objects() if isinstance(found, HostedQueue | Consumer)]
    assert state.schedule.wait_seconds() is not None
    store.close()


def test_what_is_cancelled_does_not_happen_and_the_rest_does_in_its_order() -> None:
    clock = SteadyClock(DAY_MS)
    schedule = Schedule(clock)
    happened: list[int] = []
    places = range(4 * CANCELLED_MIN)
    due_ms = [schedule.now_ms + place % 7 for place in places]
    entries = [schedule.at(due, partial(happened.append, place)) for place, due in zip(places, due_ms, strict=True)]
    kept = [place for place in places if place % 5 == 0]
    for place in places:
        if place % 5:
            schedule.cancel(entries[place])
            schedule.cancel(entries[place])
    assert len(schedule._heap) < 2 * len(kept) + CANCELLED_MIN
    schedule.now_ms += 3
    assert schedule.run_due(pytest.fail)
    assert sorted(happened) == [place for place in kept if place % 7 <= 3]
    schedule.now_ms += 100
    assert schedule.run_due(pytest.fail)
    assert happened == sorted(kept, key=lambda place: (due_ms[place], place))
    for entry in entries:
        schedule.cancel(entry)  # too late, and no harm done
    assert not schedule.run_due(pytest.fail)
    assert schedule.wait_seconds() is None


def test_an_action_may_cancel_another_of_the_same_time() -> None:
    schedule = Schedule(SteadyClock(DAY_MS))
    happened: list[str] = []
    entries: list[Entry] = []
    schedule.at(schedule.now_ms, lambda: schedule.cancel(entries[0]))
    entries.append(schedule.at(schedule.now_ms, lambda: happened.append("cancelled")))
    schedule.at(schedule.now_ms, lambda: happened.append("kept"))
    assert schedule.run_due(pytest.fail)
    assert happened == ["kept"]


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Clocked]:
    shard = Clocked(tmp_path)
    yield shard
    shard.close()


AT_ONCE = 128
"""So many queues are there at a time."""


def test_queues_that_come_and_go_leave_no_looks_behind(shard: Clocked) -> None:
    """Of each kind: a time without use, a head that may expire, delayed messages, and a consumer's timeout."""
    arguments = {"x-expires": DAY_MS, "x-message-ttl": DAY_MS, "x-consumer-timeout": DAY_MS}
    state = shard.loop._state
    for first in range(1, CANCELLED_MIN // 3, AT_ONCE):  # each has four looks
        queues = [Queue("/", f"q{each}", each, 0, False, arguments) for each in range(first, first + AT_ONCE)]
        shard.do(AssignQueue, queues)
        for queue in queues:
            shard.send(Publish((queue.id,), run_of(0, 2)), Publish((queue.id,), run_of(2, 1), delay_ms=DAY_MS))
            shard.published += 2
        shard.expect(Confirmed, lambda confirmed: confirmed.upto == shard.published)
        for queue in queues:
            assert shard.get(queue.id, queue.id) is not None
        entries = [place[2] for place in state.schedule._heap]
        assert len([entry for entry in entries if entry.action is not None]) == 4 * AT_ONCE
        for queue in queues:
            shard.do(DropQueue, queue.id)
    left = [place[2] for place in state.schedule._heap]
    assert not [entry for entry in left if entry.action is not None]
    assert len(left) <= CANCELLED_MIN


def test_gets_that_are_settled_leave_no_looks_behind(shard: Clocked) -> None:
    shard.assign(Queue("/", "q", 1, 0, False, {"x-consumer-timeout": DAY_MS}))
    shard.take_in(run_of(0, 40))
    for consumer in range(1, 21):
        assert shard.get(consumer) is not None
        shard.tell(Ack(consumer, [(consumer - 1, consumer)]), Release(consumer))
    assert not [place for place in shard.loop._state.schedule._heap if place[2].action is not None]
