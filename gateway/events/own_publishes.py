"""Publishes of the gateway itself: what finds no room, or is refused, is dropped and counted; nothing waits for it."""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from shardmq.bus.messages.shard import Publish
from shardmq.gateway.links.publishes.fan_out import FanOut
from shardmq.gateway.links.shard import ShardLink
from shardmq.message.record_batch import RecordBatch
from shardmq.topology.entities import Queue

REPORT_SECONDS: Final = 60.0
"""Time between two lines in the log on what was dropped."""

_log = logging.getLogger(__name__)

RouteTo = Callable[[Sequence[Queue]], Sequence[tuple[ShardLink, tuple[int, ...]]]]
"""Returns the shards of queues, and the queues there."""


class OwnPublishes:
    """Publishes of the gateway itself.

    Args:
        what: is published, in the plural, for the log.
        route_to: the shards of queues.
        stamp: writes time, origin and serial into a record batch.

    Attributes:
        more_confirmed: for shard links, which count here what they confirm.
        is_confirming: True, for shard links.
        waiting: messages on their way to shards.
        waiting_bytes: their records.
        dropped: messages that were not published, or that a queue did not take.
    """

    def __init__(self, what: str, route_to: RouteTo, stamp: Callable[[RecordBatch], None]) -> None:
        self._what = what
        self._route_to = route_to
        self._stamp = stamp
        self.is_confirming = True
        self._last = self.waiting = self.waiting_bytes = self.more_confirmed = 0
        self.dropped = self._reported = 0
        self._report_at = 0.0
        self._sizes: dict[int, tuple[int, int]] = {}

    def publish(self, batch: RecordBatch, queues: Sequence[Queue]) -> None:
        """Publish messages to queues, of which there is at least one."""
        route = self._route_to(queues)
        self._last += 1
        self._sizes[self._last] = batch.count, len(batch.records)
        self.waiting += batch.count
        self.waiting_bytes += len(batch.records)
        self._stamp(batch)
        fan_out = FanOut(len(route), batch.count) if len(route) > 1 else None
        for link, numbers in route:
            link.publish(self, self._last, Publish(numbers, replace(batch)), fan_out, 0, False)

    def confirm(self, requests: list[tuple[int, int]]) -> None:
        """Count messages that have arrived."""
        for first, last in requests:
            self._arrived(first, last)

    def refuse(self, first: int, last: int, code: int, text: str, taken: int = 0) -> None:  # noqa: ARG002 (the Protocol's)
        """Count messages that a queue did not take."""
        self.dropped += self._arrived(first, last) - taken

    def look(self, now: float) -> None:
        """Log how many were dropped, at most once a minute."""
        if self.dropped > self._reported and now >= self._report_at:
            lost = self.dropped - self._reported
            _log.warning("%d %s were dropped: no room for them, or refused by queues", lost, self._what)
            self._reported = self.dropped
            self._report_at = now + REPORT_SECONDS

    def _arrived(self, first: int, last: int) -> int:
        """Count publishes `first` to `last` as answered; returns how many messages they had."""
        sizes = [self._sizes.pop(number) for number in range(first, last + 1)]
        messages = sum([count for count, _ in sizes])
        self.waiting -= messages
        self.waiting_bytes -= sum([size for _, size in sizes])
        return messages
