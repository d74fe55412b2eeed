"""Counters of queues and their rates: each looked at every 5 s in which something happened to it."""

from collections.abc import Iterable
from typing import Final

from shardmq.runtime.statistics.rates import SAMPLE_SECONDS, Sample, add, named
from shardmq.shards.queues.tally import COUNTS
from shardmq.shards.state.hosted_queue import HostedQueue

GAUGES: Final = ("ready", "unacked")
"""Numbers that rise and fall, of which there are rates, too."""

RATED: Final = (*COUNTS, *GAUGES)

ZERO_RATES: Final = named(RATED, (0.0,) * len(RATED))

_NOTHING: Final = (0,) * len(COUNTS)


class QueueRates:
    """Looks at the counters of queues.

    Args:
        now: monotonic seconds.

    Attributes:
        touched: queues that something happened to since the last look, by id.
        gone: what was counted of queues that are deleted, by virtual host.
    """

    def __init__(self, now: float) -> None:
        self.touched: dict[int, HostedQueue] = {}
        self.gone: dict[str, list[int]] = {}
        self._moving: dict[int, HostedQueue] = {}  # those with rates
        self._at = now

    def tick(self, now: float) -> None:
        """Look at what has changed, if it is time."""
        if now - self._at < SAMPLE_SECONDS:
            return
        since, self._at = self._at, now
        looked_at, self.touched = self.touched | self._moving, {}
        self._moving = {}
        for number, hosted in looked_at.items():
            if hosted.is_gone:
                continue
            queue = hosted.queue
            counts = (*queue.counts(), queue.ready, queue.unacked)
            sample = hosted.sample
            if sample is None:
                sample = hosted.sample = Sample(since, (*_NOTHING, *counts[-len(GAUGES) :]))
            if sample.take(now, counts):
                self._moving[number] = hosted
            for consumer in hosted.consumers:
                consumer.latency.look(consumer.latency.timed in consumer.held)

    def counted(self, name: str, queues: Iterable[HostedQueue]) -> int:
        """What was counted under one of COUNTS, of queues that are here and of those that are deleted."""
        place = COUNTS.index(name)
        gone = sum([counts[place] for counts in self.gone.values()])
        return gone + sum([hosted.queue.counts()[place] for hosted in queues])

    def forget(self, hosted: HostedQueue) -> None:
        """A queue is deleted: keep what was counted of it for its virtual host."""
        self.touched.pop(hosted.queue.id, None)
        self._moving.pop(hosted.queue.id, None)
        add(self.gone.setdefault(hosted.queue.declared.vhost, [0] * len(COUNTS)), hosted.queue.counts())


def rates_of(hosted: HostedQueue) -> dict[str, float]:
    """A queue's rates by name."""
    return ZERO_RATES if hosted.sample is None else named(RATED, hosted.sample.rates)
