"""The event exchange: what happens is published there without a body, the facts as headers, as RabbitMQ's plugin does.

Nothing waits for an event. One that finds no room, or that a queue refuses, is dropped and counted. While no queue is
bound to the exchange, an event costs one look at the topology.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from shardmq.bus.messages.shard import Publish
from shardmq.gateway.links.fan_out import FanOut
from shardmq.gateway.links.shard import ShardLink
from shardmq.message.properties import Properties
from shardmq.message.record import pack
from shardmq.message.record_batch import PERSISTENT, RecordBatch
from shardmq.topology.entities import DEFAULT_VHOST, EVENT_EXCHANGE, Queue
from shardmq.topology.topology import Topology

EVENTS_WAITING_MAX: Final = 10_000
"""Events on their way to shards; past it, what happens is not told. Each takes about 1 kB."""

REPORT_SECONDS: Final = 60.0
"""Time between two lines in the log on events that were dropped."""

_log = logging.getLogger(__name__)

Clock = Callable[[], int]
"""Begins a pass if none is under way, and returns its time, milliseconds since 1970."""

RouteTo = Callable[[Sequence[Queue]], Sequence[tuple[ShardLink, tuple[int, ...]]]]
"""Returns the shards of queues, and the queues there."""


class EventExchange:
    """Publishes events.

    Args:
        topology: says which queues want them.
        route_to: the shards of queues.
        stamp: writes time, origin and serial into a record batch.
        clock: of the passes.

    Attributes:
        more_confirmed: for shard links, which count here what they confirm.
        dropped: events that were not told, or that a queue did not take.
    """

    def __init__(
        self, topology: Topology, route_to: RouteTo, stamp: Callable[[RecordBatch], None], clock: Clock
    ) -> None:
        self._topology = topology
        self._route_to = route_to
        self._stamp = stamp
        self._clock = clock
        self._requests = self._waiting = self.more_confirmed = 0
        self.dropped = self._reported = 0
        self._report_at = 0.0

    @property
    def is_heard(self) -> bool:
        """Whether anything is bound to the exchange."""
        return self._topology.binding_count(DEFAULT_VHOST, EVENT_EXCHANGE) > 0

    def tell(self, event: str, facts: Mapping[str, Any]) -> None:
        """Publish an event.

        Args:
            event: what happened, such as "queue.created": the routing key.
            facts: the headers; what is largest comes last, as headers past a frame's size are cut off there.
        """
        if not self.is_heard:
            return
        now_ms = self._clock()
        headers = {"timestamp_in_ms": now_ms, **facts}
        properties = Properties(headers=headers, delivery_mode=2, timestamp=now_ms // 1000)
        router = self._topology.router
        route = self._route_to(router.queues_reached(DEFAULT_VHOST, EVENT_EXCHANGE, (event,), properties))
        if not route:
            return
        if self._waiting >= EVENTS_WAITING_MAX:
            self.dropped += 1
            return
        self._waiting += 1
        self._requests += 1
        batch = RecordBatch(EVENT_EXCHANGE, event, PERSISTENT, 0, 0, 0, 1, pack(properties, b""))
        self._stamp(batch)
        fan_out = FanOut(len(route)) if len(route) > 1 else None
        for link, queues in route:
            link.publish(self, self._requests, Publish(queues, replace(batch)), fan_out, 0, False)

    def confirm(self, requests: list[tuple[int, int]]) -> None:
        """Count events that have arrived."""
        self._waiting -= sum([last + 1 - first for first, last in requests])

    def refuse(self, first: int, last: int, code: int, text: str, taken: int = 0) -> None:  # noqa: ARG002 (the Protocol's)
        """Count events that a queue did not take."""
        self._waiting -= last + 1 - first
        self.dropped += last + 1 - first

    def look(self, now: float) -> None:
        """Log how many events were dropped, at most once a minute."""
        if self.dropped > self._reported and now >= self._report_at:
            _log.warning(
                "%d events were dropped: no room for them, or refused by queues", self.dropped - self._reported
            )
            self._reported = self.dropped
            self._report_at = now + REPORT_SECONDS
