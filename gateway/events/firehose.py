"""The firehose: copies of what is published and delivered, in the trace exchange of its virtual host.

    publish ─► queues ─► delivery        of a virtual host that is traced
       │                    │
       ▼                    ▼            keys publish.EXCHANGE, deliver.QUEUE; bodies as they are, the rest as headers
       amq.rabbitmq.trace ──┴─► queues   whose deliveries are not traced

As RabbitMQ's `rabbit_trace` (https://www.rabbitmq.com/docs/firehose). Nothing waits for a copy: where shards are
behind, or an alarm is on, copies are dropped and counted. While nothing is traced, `GatewayState.firehose` is None, and
that is all that is looked at.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import random
from typing import Any, Final

import msgspec

from shardmq.gateway.events.clients import ClientInfo
from shardmq.gateway.events.own_publishes import OwnPublishes, RouteTo
from shardmq.limits import NAME_BYTES_MAX
from shardmq.message.keyed_records import keys_of
from shardmq.message.properties import Properties
from shardmq.message.record import deeper, pack_raw
from shardmq.message.record_batch import AMQP, RecordBatch
from shardmq.protocol.amqp import properties
from shardmq.protocol.translation import to_amqp
from shardmq.topology.entities import REPLY_QUEUES, TRACE_EXCHANGE
from shardmq.topology.topology import Topology

WAITING_BYTES_MAX: Final = 32 << 20
"""Copies on their way to shards, in bytes; past it they are dropped, as is a larger one by itself."""

WAITING_MAX: Final = 50_000
"""The same in messages."""

BCC_MAX: Final = 10_000
"""Messages whose keys in BCC are known when they are delivered: the last ones."""

GAP_MAX: Final = 1e18
"""Messages that are left out at most: for the least rates, the number would be infinite."""

BATCH_BYTES: Final = 1 << 20
"""Copies of one publish or delivery go together, about so many bytes at a time."""


class Firehose(OwnPublishes):
    """Publishes copies of messages.

    Args:
        topology: says what is traced, and which queues want copies.
        route_to: the shards of queues.
        stamp: writes time, origin and serial into a record batch.
        is_short: whether an alarm is on: nothing is copied then.
        begin_pass: begins a pass if none is under way.
        node: the name of this gateway.
    """

    def __init__(
        self,
        topology: Topology,
        route_to: RouteTo,
        stamp: Callable[[RecordBatch], None],
        is_short: Callable[[], bool],
        begin_pass: Callable[[], object],
        node: str,
    ) -> None:
        super().__init__("copies of traced messages", route_to, stamp)
        self._topology = topology
        self._is_short = is_short
        self._begin_pass = begin_pass
        self._node = node
        self._gaps: dict[str, tuple[float, int]] = {}
        self._bcc: OrderedDict[tuple[int, int], tuple[str, str, Sequence[str]]] = OrderedDict()

    def published(
        self,
        client: ClientInfo,
        channel: int,
        batch: RecordBatch,
        route: Iterable[tuple[object, Sequence[int]]],
        bcc: Sequence[str] = (),
    ) -> None:
        """Copy messages that a client has published.

        Args:
            client: the publisher.
            channel: number of its channel.
            batch: the messages.
            route: the queues they go to, by shard.
            bcc: more keys they have, which are not told to consumers; the batch has its serial then.
        """
        if bcc and client.vhost in self._topology.tracing:
            self._remember(batch, bcc)
        places = self._chosen(client.vhost, batch)
        if places:
            names = [self._name(queue) for _, queues in route for queue in queues]
            queues = [name for name in names if not name.startswith(REPLY_QUEUES)]
            facts = {**self._facts(client, channel), "routed_queues": queues}
            self._copy(client.vhost, f"publish.{batch.exchange}", batch, places, facts, bcc)

    def delivered(self, client: ClientInfo, channel: int, queue: int, batch: RecordBatch, redelivered: bool) -> None:
        """Copy messages that a client gets from a queue, whose id is given."""
        places = self._chosen(client.vhost, batch)
        name = self._name(queue)
        if places and not name.startswith(REPLY_QUEUES):
            facts = {"redelivered": int(redelivered), **self._facts(client, channel)}
            self._copy(client.vhost, f"deliver.{name}", batch, places, facts)

    def _remember(self, batch: RecordBatch, bcc: Sequence[str]) -> None:
        """Keep the keys in BCC of messages, which are not stored with them, for the copies of their deliveries."""
        for place in range(batch.count):
            self._bcc[batch.origin, batch.serial + place] = batch.exchange, batch.routing_key, bcc
        while len(self._bcc) > BCC_MAX:
            self._bcc.popitem(last=False)

    def _bcc_of(self, batch: RecordBatch, place: int, key: str) -> Sequence[str]:
        """The keys in BCC of a message, as far as they are known; not where it was published again since, by any."""
        exchange, first, bcc = self._bcc.get((batch.origin, batch.serial + place), ("", "", ()))
        return bcc if (exchange, first) == (batch.exchange, key) else ()

    def _name(self, queue: int) -> str:
        known = self._topology.queue_by_id(queue)
        return "" if known is None else known.name  # it was deleted meanwhile

    def _facts(self, client: ClientInfo, channel: int) -> Mapping[str, Any]:
        return {"vhost": client.vhost, "connection": client.identity, "channel": channel, "user": client.user}

    def _chosen(self, vhost: str, batch: RecordBatch) -> Sequence[int]:
        """The places in a batch of messages that are copied: all of them, or a sample."""
        rate = self._topology.tracing.get(vhost)
        if rate is None or batch.exchange == TRACE_EXCHANGE:
            return ()
        if not self._topology.binding_count(vhost, TRACE_EXCHANGE):
            return ()
        if rate >= 1:
            return range(batch.count)
        known, place = self._gaps.get(vhost, (0.0, 0))
        if known != rate:
            place = _gap(rate)
        chosen = []
        while place < batch.count:
            chosen.append(place)
            place += 1 + _gap(rate)
        self._gaps[vhost] = rate, place - batch.count
        return chosen

    def _copy(
        self,
        vhost: str,
        key: str,
        batch: RecordBatch,
        places: Sequence[int],
        facts: Mapping[str, Any],
        bcc: Sequence[str] = (),
    ) -> None:
        """Publish copies of the messages at some places of a batch."""
        router = self._topology.router
        key = key.encode()[:NAME_BYTES_MAX].decode(errors="ignore")
        is_alike = not router.needs_message(vhost, TRACE_EXCHANGE)
        queues = router.queues_reached(vhost, TRACE_EXCHANGE, (key,), None)
        if is_alike and not queues:
            return
        if self._is_short():
            self.dropped += len(places)
            return
        self._begin_pass()
        lists, bodies = to_amqp(batch)
        keys = keys_of(batch)
        records: list[bytes] = []
        size = 0
        # most are like the one before, and writing a list takes 40 us
        written: dict[tuple[bytes, str, Sequence[str]], bytes] = {}
        for place in places:
            is_full = self.waiting + len(records) >= WAITING_MAX
            if is_full or self.waiting_bytes + size + len(bodies[place]) > WAITING_BYTES_MAX:
                self.dropped += 1
                continue
            hidden = bcc or self._bcc_of(batch, place, keys[place])
            kind = lists[place], keys[place], hidden
            if kind not in written:
                told = Properties(headers=self._headers(batch.exchange, (keys[place], *hidden), lists[place], facts))
                if not is_alike:
                    queues = router.queues_reached(vhost, TRACE_EXCHANGE, (key,), told)
                with deeper():
                    written[kind] = properties.encode(told)
            records.append(pack_raw(written[kind], bodies[place]))
            size += len(records[-1])
            if size >= BATCH_BYTES or not is_alike:
                self._publish_copies(key, records, queues)
                records, size = [], 0
                written.clear()
        self._publish_copies(key, records, queues)

    def _headers(self, exchange: str, keys: Sequence[str], raw: bytes, facts: Mapping[str, Any]) -> dict[str, Any]:
        """What is told of a message; what may be largest comes last, as headers past a frame's size are cut off."""
        with deeper():
            own = properties.decode(raw)
        more = (own.headers or {}).get("CC")
        copied = [key for key in more if isinstance(key, str)] if isinstance(more, list) else []
        table = {name: value for name, value in msgspec.structs.asdict(own).items() if value is not None}
        return {
            "exchange_name": exchange,
            "node": self._node,
            "routing_keys": [keys[0], *copied, *keys[1:]],
            **facts,
            "properties": table,
        }

    def _publish_copies(self, key: str, records: Sequence[bytes], queues: Sequence[Any]) -> None:
        if records and queues:
            batch = RecordBatch(TRACE_EXCHANGE, key, AMQP, 0, 0, 0, len(records), b"".join(records))
            self.publish(batch, queues)


def _gap(rate: float) -> int:
    """How many messages are left out before the next one of a sample, each of which is in it by itself."""
    return int(min(math.log(1 - random()) / math.log1p(-rate), GAP_MAX))
