"""Dead letters: a shard hands over what died in a queue, here it is published to the queue's dead-letter exchange.

    shard                          gateway                                  shard of the new home
      │ ── Dead(queue, run) ─────────► │ x-death & co, routed ── Publish ──────► │
      │                                │ ◄────────────────────── Confirmed ───── │   on disk
      │ ◄── DeadLettered(ranges) ───── │
      or    DeadLetterRefused: one of its new homes did not take it; the shard comes again a little later

The message leaves its queue with the last of these words, so that nothing is lost whoever dies in between. It comes
again then, by this gateway or another one, under the same number of the same producer: who has it takes it no more.

What is written into the message follows RabbitMQ with message containers, 3.13 and later (`mc:record_death`, and
`mc_amqpl:death_table`, which makes tables of it; https://www.rabbitmq.com/docs/3.13/dlx). Two things are as before,
in `rabbit_dead_letter:make_msg` up to 3.12: CC is removed where a key is given, and the history is what stands in the
headers, also where a client published a message again with them.

* `x-death` is an array of tables, most recent first, one for each (queue, reason): count, reason, queue, time (of the
  first such death), exchange and routing-keys (with those of CC) it was published with then, and original-expiration
  where it had a time to live of its own. A further death of the same queue and reason adds 1 to its count and moves it
  to the front; the rest stays as it was.
* `x-first-death-queue`, `-reason`, `-exchange` are written once, `x-last-death-…` each time.
* The property `expiration` is removed: it does not expire again where it gets to.
* It keeps its routing key, and CC counts again; with `x-dead-letter-routing-key` it has that alone, and CC is removed.
* What came by AMQP keeps its other properties and headers byte for byte.
* A queue that it has been in before, with nobody having rejected it since, does not get it again: such a cycle would
  turn for ever. For a death by rejection nobody looks for cycles.
* An exchange that is not there, or leads nowhere, is the end of it; but only for a gateway that is sure: one that does
  not know the queue, or has lost its coordinator, has no topology yet, or an old one, and refuses.
"""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import msgspec

from shardmq.bus.messages.shard import DeadLetter, DeadLetterAccepted, DeadLetterRefused, Gone
from shardmq.errors import RequestError
from shardmq.gateway.links.fan_out import FanOut
from shardmq.gateway.links.shard import ShardLink
from shardmq.gateway.session.publish_split import CC, routing_keys
from shardmq.gateway.state.gateway import GatewayState
from shardmq.gateway.state.routes import Route
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

REJECTED: Final = "rejected"
"""The reason that is a decision of somebody's, and so no part of a cycle that turns by itself."""

COUNT_MAX: Final = 2**63 - 1


@dataclass(slots=True)
class _PendingDeadLetter:
    """Messages [first, end) of a queue, on their way to a new home."""

    link: ShardLink
    life: int
    queue: int
    first: int
    end: int
    producer: int


class DeadLetterPublisher:
    """See the module. One for a gateway, which its links hand to what shards hand to them.

    Args:
        hub: of the process.
    """

    def __init__(self, hub: GatewayState) -> None:
        self._hub = hub
        self._requests = 0
        self._graves: dict[int, _PendingDeadLetter] = {}
        for link in hub.links:
            link.bury = self.bury

    def bury(self, link: ShardLink, dead: DeadLetter) -> None:
        """Publish what a shard hands over; it is told when all of it has arrived, or what has not."""
        hub = self._hub
        hub.changed()
        queue = hub.topology.queue_by_id(dead.queue)
        if queue is None:  # not here yet: shards open their sessions with a new gateway before the coordinator does
            link.dialer.post(DeadLetterRefused(dead.queue, [(dead.first, dead.first + dead.run.count)]))
            return
        terms = QueueArguments.of(queue.arguments)
        assert terms.dead_letter_exchange is not None
        run, place = dead.run, 0
        homes: dict[ShardLink, set[int]] = {}
        for (plan, priority), letters in groupby(self._letters(queue, terms, dead), key=lambda letter: letter[:2]):
            records = [record for *_, record in letters]
            first = dead.first + place
            grave = _PendingDeadLetter(link, link.life, dead.queue, first, first + len(records), dead.producer)
            part = RecordBatch(
                terms.dead_letter_exchange,
                run.routing_key if terms.dead_letter_routing_key is None else terms.dead_letter_routing_key,
                run.flags,
                hub.now_ms,
                run.origin,
                run.serial + place,
                len(records),
                b"".join(records),
                priority,
            )
            place += len(records)
            self._publish(grave, part, plan)
            for home, queues in plan if dead.gone else ():
                homes.setdefault(home, set()).update(queues)
        for home, numbers in homes.items():
            home.dialer.post(Gone(tuple(numbers), dead.producer, dead.gone))

    def confirm(self, first: int, last: int) -> None:
        """They have arrived."""
        for request in range(first, last + 1):
            self._arrived(self._graves.pop(request))

    def refuse(self, first: int, last: int, code: int, text: str, taken: int = 0) -> None:  # noqa: ARG002 (Publisher's)
        """They have not, or not everywhere; but for the first `taken` messages if it is one."""
        for request in range(first, last + 1):
            grave = self._graves.pop(request)
            if grave.life != grave.link.life:
                continue
            middle = grave.first + taken
            if taken:
                grave.link.dialer.post(DeadLetterAccepted(grave.queue, [(grave.first, middle)]))
            grave.link.dialer.post(DeadLetterRefused(grave.queue, [(middle, grave.end)]))
            self._hub.changed()

    def _letters(self, queue: Queue, terms: QueueArguments, dead: DeadLetter) -> list[tuple[Route, int, bytes]]:
        """Of each message where it goes to, its priority there, and itself."""
        run = dead.run
        with deeper():
            if run.flags & AMQP:
                return [
                    self._amqp_letter(queue, terms, dead, raw, body) for raw, body in unpack_raw(run.records, run.count)
                ]
            return [self._letter(queue, terms, dead, record) for record in unpack(run.records, run.count)]

    def _letter(
        self, queue: Queue, terms: QueueArguments, dead: DeadLetter, record: Record
    ) -> tuple[Route, int, bytes]:
        after = died(record.properties, dead, queue.name, terms.dead_letter_routing_key, self._hub.now_ms)
        return *self._way(queue, terms, dead, after), pack(after, record.body)

    def _amqp_letter(
        self, queue: Queue, terms: QueueArguments, dead: DeadLetter, raw: bytes, body: bytes
    ) -> tuple[Route, int, bytes]:
        """The same; all that its death does not change keeps its bytes, and so its types."""
        before = properties.decode(raw)
        after = died(before, dead, queue.name, terms.dead_letter_routing_key, self._hub.now_ms)
        return *self._way(queue, terms, dead, after), pack_raw(rewritten(raw, before, after), body)

    def _way(self, queue: Queue, terms: QueueArguments, dead: DeadLetter, after: Properties) -> tuple[Route, int]:
        """Where a message goes to, and its priority there."""
        assert after.headers is not None
        if terms.dead_letter_routing_key is None:
            keys = (dead.run.routing_key, *_cc(after.headers))
        else:
            keys = (terms.dead_letter_routing_key,)
        exchange = terms.dead_letter_exchange
        assert exchange is not None
        homes = self._hub.topology.router.queues_reached(queue.vhost, exchange, keys, after)
        if dead.reason != REJECTED:
            homes = tuple([home for home in homes if not is_cycle(home.name, after.headers["x-death"])])
        plan = self._hub.plan_to(homes)
        return plan, min(after.priority or 0, plan.levels)

    def _publish(self, grave: _PendingDeadLetter, run: RecordBatch, plan: Route) -> None:
        if not plan:
            self._leads_nowhere(grave)
            return
        self._requests += 1
        request = self._requests
        self._graves[request] = grave
        fan = FanOut(len(plan)) if len(plan) > 1 else None
        for link, queues in plan:
            link.publish(
                self, request, queues, msgspec.structs.replace(run), fan, producer=grave.producer, sequence=grave.first
            )

    def _leads_nowhere(self, grave: _PendingDeadLetter) -> None:
        if self._hub.coordinator.is_current:
            self._arrived(grave)
        else:
            grave.link.dialer.post(DeadLetterRefused(grave.queue, [(grave.first, grave.end)]))

    def _arrived(self, grave: _PendingDeadLetter) -> None:
        if grave.life == grave.link.life:  # else the shard does not know what it handed over, and will do so again
            grave.link.dialer.post(DeadLetterAccepted(grave.queue, [(grave.first, grave.end)]))
            self._hub.changed()


def died(known: Properties | None, dead: DeadLetter, queue: str, key: str | None, now_ms: int) -> Properties:
    """A message's properties once its death is written into them.

    Args:
        known: its properties, as they were.
        dead: the death, and where the message was published to.
        queue: that it died in.
        key: the routing key it goes on with; None for its own.
        now_ms: the time of death, milliseconds since 1970.
    """
    before = Properties() if known is None else known
    headers = dict(before.headers or {})
    reason, exchange = dead.reason, dead.run.exchange
    deaths = _deaths(headers)
    if not deaths:
        headers["x-first-death-reason"] = reason
        headers["x-first-death-queue"] = queue
        headers["x-first-death-exchange"] = exchange
    headers["x-last-death-reason"] = reason
    headers["x-last-death-queue"] = queue
    headers["x-last-death-exchange"] = exchange
    same: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for death in deaths:
        (same if death.get("queue") == queue and death.get("reason") == reason else others).append(death)
    if same:
        newest = {**same[0], "count": min(sum(map(_count, same)) + 1, COUNT_MAX)}
    else:
        newest = {
            "count": 1,
            "reason": reason,
            "queue": queue,
            "time": datetime.datetime.fromtimestamp(now_ms // 1000, datetime.UTC),
            "exchange": exchange,
            "routing-keys": [dead.run.routing_key, *_cc(headers)],
        }
        if before.expiration is not None:
            newest["original-expiration"] = before.expiration
    headers["x-death"] = [newest, *others]
    if key is not None:
        headers.pop(CC, None)
    return msgspec.structs.replace(before, headers=headers, expiration=None)


def is_cycle(home: str, deaths: Sequence[dict[str, Any]]) -> bool:
    """Whether a message has been in a queue before, and got back to it with nobody having rejected it on the way.

    Args:
        home: the queue it would get to.
        deaths: its `x-death`, most recent first.
    """
    for death in deaths:
        if death.get("reason") == REJECTED:
            return False
        if death.get("queue") == home:
            return True
    return False


def _deaths(headers: dict[str, Any]) -> list[dict[str, Any]]:
    """The deaths written there; a publisher may have put anything under that name."""
    deaths = headers.get("x-death")
    return [death for death in deaths if isinstance(death, dict)] if isinstance(deaths, list) else []


def _count(death: dict[str, Any]) -> int:
    count = death.get("count")
    return count if isinstance(count, int) and 0 < count < COUNT_MAX else 1


def _cc(headers: dict[str, Any]) -> list[str]:
    """The routing keys of CC: they were checked when it was published, but by what published it then."""
    try:
        return routing_keys(headers, CC)
    except RequestError:
        return []
