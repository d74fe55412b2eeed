"""What is expected, and what has ended before it came."""

import gc
from collections.abc import Callable
from pathlib import Path

import pytest

from shardmq.bus.listener import Peer
from shardmq.message.record import pack_many
from shardmq.message.record_batch import Run
from shardmq.runtime.clock import SteadyClock
from shardmq.shards.handlers.delays import Timers
from shardmq.shards.queues.factory import make_queue
from shardmq.shards.state.ack_timeouts import Timeouts
from shardmq.shards.state.consumers import Consumer
from shardmq.shards.state.hosted_queue import Hosted
from shardmq.shards.state.shard import Holdings
from shardmq.shards.storage.store import Store
from shardmq.shards.storage.write_buffer import Journal
from shardmq.topology.entities import Queue

DAY_MS = 86_400_000


def expect_unused(holdings: Holdings, hosted: Hosted) -> None:
    holdings.use(hosted)


def expect_delayed(holdings: Holdings, hosted: Hosted) -> None:
    run = Run("ex", "key", 1, 5, 9, 0, 1, pack_many([b"a"]))
    Timers(holdings).delay(hosted, run, holdings.agenda.now_ms + DAY_MS)


def expect_overdue(holdings: Holdings, hosted: Hosted) -> None:
    consumer = Consumer(Peer.__new__(Peer), 1, hosted.queue, 0, False, 1)
    consumer.timeouts = Timeouts(DAY_MS, holdings.agenda, consumer.held, lambda _: consumer.queue.time_out([]))
    consumer.hold(0, 1, again=False)
    consumer.timeouts.close()


@pytest.mark.parametrize("expect", [expect_unused, expect_delayed, expect_overdue])
def test_a_deleted_queue_does_not_stay_for_what_is_expected_of_it(
    tmp_path: Path, expect: Callable[[Holdings, Hosted], None]
) -> None:
    store = Store(tmp_path)
    holdings = Holdings("shard-0", store, Journal(store, 1 << 20), SteadyClock())
    declared = Queue("/", "q", 1, 0, arguments={"x-expires": DAY_MS})
    hosted = holdings.add(make_queue(declared, holdings.journal, holdings.clock))
    expect(holdings, hosted)
    del holdings.queues[1], hosted
    gc.collect()
    assert not [found for found in gc.get_objects() if isinstance(found, Hosted | Consumer)]
    assert holdings.agenda.wait_seconds() is not None
    store.close()
