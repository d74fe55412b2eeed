"""Dead letters that shards hand over: published to their queue's dead-letter exchange.

    shard                          gateway                                  shard of the new queue
      │ ── DeadLetter ───────────────► │ x-death & co, routed ── Publish ──────► │
      │                                │ ◄────────────────────── Confirmed ───── │   on disk
      │ ◄── DeadLetterAccepted ─────── │
      or    DeadLetterRefused: one of its new queues did not take it; the shard comes again a little later

The message leaves its queue with the last of these, so that nothing is lost whichever process dies in between. The
shard then sends it again, by this gateway or another one, under the same number of the same producer, and a queue that
has it does not take it again.

death_history.py has what is written into the message. Beside that:

* A queue that the message has been in before, without a rejection since, does not get it again: such a cycle would
  never end. Deaths by rejection are not checked for cycles.
* A message whose dead-letter exchange does not exist or routes it nowhere is dropped; but only by a gateway whose
  topology is current. One that does not know the queue, or has lost its coordinator, refuses.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec

from shardmq.bus.messages.dead_letters import DeadLetter, DeadLetterAccepted, DeadLetterRefused, Gone
from shardmq.bus.messages.shard import Publish
from shardmq.gateway.handlers.death_history import REJECTED, RETRIES, cc_keys, is_cycle, with_death
from shardmq.gateway.links.publishes.fan_out import FanOut
from shardmq.gateway.links.shard import ShardLink
from shardmq.gateway.state.gateway import GatewayState
from shardmq.gateway.state.routes import Route
from shardmq.gateway.state.turns import turn_of
from shardmq.message.keyed_records import runs
from shardmq.message.properties import Properties
from shardmq.message.record import (
    Record,
    deeper,
    pack,
    pack_raw,
    unpack,
    unpack_raw,
)
from shardmq.message.record_batch import AMQP, RecordBatch
from shardmq.protocol.amqp import properties
from shardmq.protocol.amqp.property_edits import rewritten
from shardmq.topology.arguments import QueueArguments
from shardmq.topology.entities import Queue

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _PendingDeadLetter:
    """Messages [first, end) of a queue that are being republished."""

    link: ShardLink
    life: int
    queue: int
    group: str
    first: int
    end: int
    producer: int


class DeadLetterPublisher:
    """Republishes the dead letters that shards hand over to this gateway.

    Args:
        state: of the gateway; its links hand dead letters to this publisher from now on.
    """

    def __init__(self, state: GatewayState) -> None:
        self._state = state
        self._requests = self.more_confirmed = 0
        self.is_confirming = True
        self._pending: dict[int, _PendingDeadLetter] = {}
        state.take_dead_letters(self.republish)

    def republish(self, link: ShardLink, dead: DeadLetter) -> None:
        """Publish what a shard hands over; it is told when all of it has arrived, or what has not."""
        state = self._state
        state.changed()
        queue = state.topology.queue_by_id(dead.queue)
        if queue is None:  # not here yet: shards open their sessions with a new gateway before the coordinator does
            link.dialer.post(DeadLetterRefused(dead.queue, [(dead.first, dead.first + dead.batch.count)], dead.group))
            return
        for batch in runs(dead.batch):
            first = dead.first + batch.serial - dead.batch.serial
            self._republish(link, queue, msgspec.structs.replace(dead, first=first, batch=batch))

    def _republish(self, link: ShardLink, queue: Queue, dead: DeadLetter) -> None:
        """Publish messages with one routing key."""
        state = self._state
        arguments = _arguments(queue, state.topology.policies.arguments(queue), dead)
        whose = link, link.life, dead.queue, dead.group
        if arguments.dead_letter_exchange is None:  # a policy made them dead letters, and is gone or another one
            self._leads_nowhere(_PendingDeadLetter(*whose, dead.first, dead.first + dead.batch.count, dead.producer))
            return
        try:
            found = self._letters(queue, arguments, dead)
        except Exception:  # noqa: BLE001  nothing is sent yet; and each gateway in turn would get what ends this one
            _log.exception(
                "%d messages that died in queue '%s' of vhost '%s' cannot be sent on; they stay there, and are tried "
                "again",
                dead.batch.count,
                queue.name,
                queue.vhost,
            )
            range_of_all = (dead.first, dead.first + dead.batch.count)
            link.dialer.post(DeadLetterRefused(dead.queue, [range_of_all], dead.group))
            return
        key = arguments.dead_letter_routing_key
        origin, place = dead.batch, 0
        reached: dict[ShardLink, set[int]] = {}
        for (route, priority), letters in groupby(found, key=itemgetter(0, 1)):
            records = [record for *_, record in letters]
            first = dead.first + place
            pending = _PendingDeadLetter(*whose, first, first + len(records), dead.producer)
            batch = RecordBatch(
                arguments.dead_letter_exchange,
                origin.routing_key if key is None else key,
                origin.flags,
                state.now_ms,
                origin.origin,
                origin.serial + place,
                len(records),
                b"".join(records),
                priority,
            )
            place += len(records)
            self._publish(pending, batch, route)
            for other, queues in route if dead.gone else ():
                reached.setdefault(other, set()).update(queues)
        for other, numbers in reached.items():
            other.dialer.post(Gone(tuple(numbers), dead.producer, dead.gone))

    def confirm(self, requests: list[tuple[int, int]]) -> None:
        """Tell shards that these dead letters have arrived."""
        for first, last in requests:
            for request in range(first, last + 1):
                self._arrived(self._pending.pop(request))

    def refuse(self, first: int, last: int, code: int, text: str, taken: int = 0) -> None:  # noqa: ARG002 (the Protocol's)
        """Tell shards that these dead letters have not arrived everywhere; but for `taken` messages if it is one."""
        for request in range(first, last + 1):
            pending = self._pending.pop(request)
            if pending.life != pending.link.life:
                continue
            middle = pending.first + taken
            if taken:
                pending.link.dialer.post(DeadLetterAccepted(pending.queue, [(pending.first, middle)], pending.group))
            pending.link.dialer.post(DeadLetterRefused(pending.queue, [(middle, pending.end)], pending.group))
            self._state.changed()

    def _letters(self, queue: Queue, arguments: QueueArguments, dead: DeadLetter) -> list[tuple[Route, int, bytes]]:
        """Of each message its route, its priority there, and itself."""
        batch = dead.batch
        with deeper():
            if batch.flags & AMQP:
                return [
                    self._amqp_letter(queue, arguments, dead, number, letter)
                    for number, letter in enumerate(unpack_raw(batch.records, batch.count), dead.first)
                ]
            return [
                self._letter(queue, arguments, dead, number, record)
                for number, record in enumerate(unpack(batch.records, batch.count), dead.first)
            ]

    def _letter(
        self, queue: Queue, arguments: QueueArguments, dead: DeadLetter, number: int, record: Record
    ) -> tuple[Route, int, bytes]:
        after = self._after(record.properties, queue, arguments, dead)
        return *self._route(queue, arguments, dead, number, after), pack(after, record.body)

    def _amqp_letter(
        self, queue: Queue, arguments: QueueArguments, dead: DeadLetter, number: int, letter: tuple[bytes, bytes]
    ) -> tuple[Route, int, bytes]:
        """The same; all that its death does not change keeps its bytes, and so its types."""
        raw, body = letter
        before = properties.decode(raw)
        after = self._after(before, queue, arguments, dead)
        return *self._route(queue, arguments, dead, number, after), pack_raw(rewritten(raw, before, after), body)

    def _after(
        self, before: Properties | None, queue: Queue, arguments: QueueArguments, dead: DeadLetter
    ) -> Properties:
        """A message's properties, with its death written into them."""
        after = with_death(before, dead, queue.name, arguments.dead_letter_routing_key, self._state.now_ms)
        if arguments.retry_delays_ms is not None and not dead.group:
            assert after.headers is not None
            after.headers[RETRIES] = dead.deliveries
        return after

    def _route(
        self, queue: Queue, arguments: QueueArguments, dead: DeadLetter, number: int, after: Properties
    ) -> tuple[Route, int]:
        """A message's route, and its priority there: the same each time that the message of this number comes."""
        assert after.headers is not None
        if arguments.dead_letter_routing_key is None:
            keys = (dead.batch.routing_key, *cc_keys(after.headers))
        else:
            keys = (arguments.dead_letter_routing_key,)
        exchange = arguments.dead_letter_exchange
        assert exchange is not None
        queues = self._state.topology.router.queues_reached(
            queue.vhost, exchange, keys, after, turn_of(dead.producer, number)
        )
        if dead.reason != REJECTED:
            queues = tuple([each for each in queues if not is_cycle(each.name, after.headers["x-death"])])
        route = self._state.routes.to(queues)
        return route, min(after.priority or 0, route.levels)

    def _publish(self, pending: _PendingDeadLetter, batch: RecordBatch, route: Route) -> None:
        if not route:
            self._leads_nowhere(pending)
            return
        self._requests += 1
        request = self._requests
        self._pending[request] = pending
        fan_out = FanOut(len(route)) if len(route) > 1 else None
        for link, queues in route:
            publish = Publish(queues, msgspec.structs.replace(batch), pending.producer, pending.first)
            link.publish(self, request, publish, fan_out, 0, False)

    def _leads_nowhere(self, pending: _PendingDeadLetter) -> None:
        if self._state.coordinator.is_current:
            self._arrived(pending)
        else:
            pending.link.dialer.post(DeadLetterRefused(pending.queue, [(pending.first, pending.end)], pending.group))

    def _arrived(self, pending: _PendingDeadLetter) -> None:
        if pending.life == pending.link.life:  # else the shard has forgotten what it handed over, and will do so again
            pending.link.dialer.post(DeadLetterAccepted(pending.queue, [(pending.first, pending.end)], pending.group))
            self._state.changed()


def _arguments(queue: Queue, given: Mapping[str, Any], dead: DeadLetter) -> QueueArguments:
    """Return the arguments of a queue, with those of its policies, or of the group whose messages died in it."""
    arguments = msgspec.structs.replace(
        QueueArguments.of(queue.arguments), retry_delays_ms=QueueArguments.of(given).retry_delays_ms
    )
    if not dead.group and dead.exchange is None:
        return arguments
    return msgspec.structs.replace(
        arguments, dead_letter_exchange=dead.exchange, dead_letter_routing_key=dead.routing_key
    )
