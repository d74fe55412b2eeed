"""The event exchange: what happens is published there without a body, the facts as headers, as RabbitMQ's plugin does.

Nothing waits for an event. One that finds no room, or that a queue refuses, is dropped and counted. While no queue is
bound to the exchange, an event costs one look at the topology.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from shardmq.gateway.events.own_publishes import OwnPublishes, RouteTo
from shardmq.message.properties import Properties
from shardmq.message.record import pack
from shardmq.message.record_batch import PERSISTENT, RecordBatch
from shardmq.topology.entities import DEFAULT_VHOST, EVENT_EXCHANGE
from shardmq.topology.topology import Topology

EVENTS_WAITING_MAX: Final = 10_000
"""Events on their way to shards; past it, what happens is not told. Each takes about 1 kB."""

Clock = Callable[[], int]
"""Begins a pass if none is under way, and returns its time, milliseconds since 1970."""


class EventExchange(OwnPublishes):
    """Publishes events.

    Args:
        topology: says which queues want them.
        route_to: the shards of queues.
        stamp: writes time, origin and serial into a record batch.
        clock: of the passes.
    """

    def __init__(
        self, topology: Topology, route_to: RouteTo, stamp: Callable[[RecordBatch], None], clock: Clock
    ) -> None:
        super().__init__("events", route_to, stamp)
        self._topology = topology
        self._clock = clock

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
        queues = self._topology.router.queues_reached(DEFAULT_VHOST, EVENT_EXCHANGE, (event,), properties)
        if not queues:
            return
        if self.waiting >= EVENTS_WAITING_MAX:
            self.dropped += 1
            return
        self.publish(RecordBatch(EVENT_EXCHANGE, event, PERSISTENT, 0, 0, 0, 1, pack(properties, b"")), queues)
