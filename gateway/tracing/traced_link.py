"""A link to a shard that notes what passes it of messages whose trace is sampled.

publish ─► route, until it is on its way to the shards of its queues ─► store, until the shard has it on disk
─► queued, until it comes for a consumer ─► deliver, to the client's socket ─► settle, until it is acknowledged
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from opentelemetry.trace import SpanContext

from shardmq.bus.link import LinkLost
from shardmq.bus.messages.columns import Deliveries
from shardmq.bus.messages.dead_letters import DeadLetter
from shardmq.bus.messages.shard import Confirmed, Delivered, Publish
from shardmq.gateway.links.consumer import Consumer
from shardmq.gateway.links.publishes.fan_out import ConfirmTarget, FanOut
from shardmq.gateway.links.publishes.publish_plan import NumberedRecords, PublishPlan
from shardmq.gateway.links.shard import ShardLink
from shardmq.gateway.tracing.contexts import NAME, sampled
from shardmq.gateway.tracing.exporter import SpanExporter
from shardmq.message.keyed_records import keys_of
from shardmq.message.record_batch import RecordBatch
from shardmq.topology.topology import Topology

_NS_PER_MS: Final = 1_000_000

UNSETTLED_MAX: Final = 10_000
"""Sampled messages whose acknowledgement is waited for, on one link; past it the oldest have no such span."""


class TracedLink(ShardLink):
    """A link to a shard that exports spans; what it does is what its base does.

    Args:
        exporter: of spans.
        topology: knows the names of queues.
        pass_time: when the pass began in which something comes, milliseconds since 1970.
        given: what `ShardLink` takes.
    """

    may_forward = False  # the spans tell of a message's way through its shard

    def __init__(self, exporter: SpanExporter, topology: Topology, pass_time: Callable[[], int], *given: Any) -> None:
        super().__init__(*given)
        self._exporter = exporter
        self._topology = topology
        self._pass_time = pass_time
        self.publish = self._publish
        self.publish_planned = self._publish_planned
        self.publish_numbered = self._publish_numbered
        self._unsettled: OrderedDict[tuple[int, int], tuple[SpanContext, int]] = OrderedDict()
        self._handlers[DeadLetter] = self._on_dead_letter

    def _publish(
        self, target: ConfirmTarget, request: int, publish: Publish, fan_out: FanOut | None, offset: int, singly: bool
    ) -> bool:
        if fan_out is None or self._exporter.is_first(fan_out):  # of several shards, one tells of it
            self._routed(publish.batch)
        return self.confirms.add(target, request, publish, fan_out, offset, singly)

    def _publish_planned(self, target: ConfirmTarget, request: int, plan: PublishPlan, record: bytes) -> bool:
        self._routed_as_planned(plan, 1, record)
        return self.confirms.add_planned(target, request, plan, record)

    def _publish_numbered(
        self, target: ConfirmTarget, request: int, plan: PublishPlan, numbered: NumberedRecords
    ) -> bool:
        self._routed_as_planned(plan, numbered[0], numbered[1])
        return self.confirms.add_numbered(target, request, plan, numbered)

    def _routed_as_planned(self, plan: PublishPlan, count: int, records: bytes) -> None:
        if NAME in records:
            self._routed(RecordBatch(plan.exchange, plan.routing_key, plan.flags, 0, 0, 0, count, records))

    def _routed(self, batch: RecordBatch) -> None:
        """Export the spans of messages that are on their way to the shards of their queues."""
        for place, context in sampled(batch):
            exchange = batch.exchange or "amq.default"
            attributes = {"messaging.destination.name": f"{exchange}:{keys_of(batch)[place]}"}
            began_ns = self._pass_time() * _NS_PER_MS
            self._exporter.export(f"route {exchange}", context, began_ns, time.time_ns(), attributes)

    def settle(self, consumer: Consumer, start: int, end: int) -> None:
        """Acknowledge messages [start, end)."""
        super().settle(consumer, start, end)
        self._settled(consumer, start, end, "ack")

    def nack(
        self, consumer: Consumer, start: int, end: int, requeue: bool, delay_ms: int = 0, is_unhandled: bool = False
    ) -> None:
        """Reject messages [start, end): back to their place, after a while; or dead-lettered or dropped."""
        super().nack(consumer, start, end, requeue, delay_ms, is_unhandled)
        self._settled(consumer, start, end, "requeue" if requeue else "reject")

    def put_back(self, consumer: Consumer, ranges: list[tuple[int, int]]) -> None:
        """Have messages that the client has not seen return to their queue as they were."""
        super().put_back(consumer, ranges)
        for start, end in ranges:
            self._settled(consumer, start, end, "requeue")

    def _on_confirmed(self, message: Confirmed) -> None:
        stored = self.confirms.posted_until(message.upto)
        super()._on_confirmed(message)
        now_ns = time.time_ns()
        for batch in stored:
            records = batch.publish.batch
            for _, context in sampled(records):
                for queue in batch.publish.queues:
                    self._export("store", queue, context, records.timestamp_ms * _NS_PER_MS or now_ns, now_ns)

    def _on_delivered(self, message: Delivered) -> None:
        came_ns = time.time_ns()
        consumer = self._consumers.get(message.consumer)
        super()._on_delivered(message)
        if consumer is not None:
            self._delivered(consumer, message.first, message.batch, came_ns, message.redelivered)

    def _on_deliveries(self, message: Deliveries) -> None:
        came_ns = time.time_ns()
        consumers = [self._consumers.get(number) for number in message.consumers]
        super()._on_deliveries(message)
        for consumer, first, batch in zip(consumers, message.firsts, message.batches, strict=True):
            if consumer is not None:
                self._delivered(consumer, first, batch, came_ns, False)

    def _on_dead_letter(self, message: DeadLetter) -> None:
        came_ns = time.time_ns()
        self.on_dead_letter(self, message)
        for _, context in sampled(message.batch):
            self._export("dead-letter", message.queue, context, came_ns, time.time_ns(), reason=message.reason)

    def _on_lost(self, lost: LinkLost) -> None:
        self._unsettled.clear()
        super()._on_lost(lost)

    def _delivered(self, consumer: Consumer, first: int, batch: RecordBatch, came_ns: int, redelivered: bool) -> None:
        """Export the spans of messages that were passed on to a consumer."""
        now_ns = time.time_ns()
        for place, context in sampled(batch):
            if not redelivered:
                self._export("queued", consumer.queue, context, batch.timestamp_ms * _NS_PER_MS, came_ns)
            self._export("deliver", consumer.queue, context, came_ns, now_ns, consumer=consumer.tag)
            if not consumer.auto_ack:
                self._unsettled[consumer.number, first + place] = context, now_ns
        while len(self._unsettled) > UNSETTLED_MAX:
            self._unsettled.popitem(last=False)

    def _settled(self, consumer: Consumer, start: int, end: int, outcome: str) -> None:
        """Export the spans of messages [start, end) of a consumer, which waited for this."""
        unsettled, number = self._unsettled, consumer.number
        if not unsettled:
            return
        now_ns = time.time_ns()
        if end - start > len(unsettled):
            keys = [key for key in unsettled if key[0] == number and start <= key[1] < end]
        else:
            keys = [(number, place) for place in range(start, end)]
        for key in keys:
            if (found := unsettled.pop(key, None)) is not None:
                self._export("settle", consumer.queue, *found, now_ns, outcome=outcome)

    def _export(self, what: str, queue: int, context: SpanContext, began_ns: int, ended_ns: int, **facts: str) -> None:
        known = self._topology.queue_by_id(queue)
        name = known.name if known is not None else ""
        attributes = {"messaging.destination.name": name, "shardmq.shard": self.name}
        attributes |= {f"shardmq.{fact}": value for fact, value in facts.items()}
        self._exporter.export(f"{what} {name}", context, began_ns, ended_ns, attributes)
