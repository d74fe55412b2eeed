"""What is expected, and what has ended before it came."""

import gc
from collections.abc import Callable
from pathlib import Path

import pytest

from shardmq.bus.listener import Peer
from shardmq.message.record import pack_many
from shardmq.message.record_batch import RecordBatch
from shardmq.runtime.clock import SteadyClock
from shardmq.shards.consumers.ack_timeouts import AckTimeouts
from shardmq.shards.consumers.consumer import Consumer
from shardmq.shards.handlers.delays import DelayedMessages
from shardmq.shards.state.hosted_queue import HostedQueue, make_queue
from shardmq.shards.state.shard import ShardState
from shardmq.shards.storage.store import Store
from shardmq.shards.storage.write_buffer import WriteBuffer
from shardmq.topology.entities import Queue

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
