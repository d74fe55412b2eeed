"""One shard as seen from a gateway: consumers, requests under way, dead letters, alarms."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.bus.dialer import Dialer
from shardmq.bus.link import LinkLost, LinkOpened
from shardmq.bus.messages.base import Answer, Call, Refusal, Request, result_of
from shardmq.bus.messages.dead_letters import DeadLetter
from shardmq.bus.messages.reads import EndReservation
from shardmq.bus.messages.shard import (
    Ack,
    Alarm,
    Cancel,
    Cancelled,
    Confirmed,
    Consume,
    Credit,
    Delivered,
    FromShard,
    Get,
    Got,
    Nack,
    Permit,
    PublishRefusal,
    Release,
    Renew,
    Spent,
    Wanted,
)
from shardmq.errors import ReplyCode, RequestError, Timeout, Unavailable, request_error
from shardmq.gateway.links.consumer import Consumer, Receiver
from shardmq.gateway.links.publish_window import PublishWindow
from shardmq.limits import DECLARE_SECONDS, DELIVERY_CREDIT_SHARE
from shardmq.message.record_batch import RecordBatch

RESUME_SECONDS: Final = math.inf
"""A consumer that runs is resumed however long its shard was away."""


@dataclass(slots=True)
class _Asked:
    message: Any
    reply: Reply
    deadline: float


def _is_told_at_once(message: Any) -> bool:
    """Whether an unknown queue is an answer: its declaration is asked for again, its reservation is over."""
    return bool(getattr(message, "reservation", "") or getattr(message, "is_declared", type(message) is EndReservation))


def _no_publisher(_link: "ShardLink", dead: DeadLetter) -> None:
    raise AssertionError(f"nobody takes the dead letters of queue {dead.queue}")


class AlarmListener(Protocol):
    """Hears of the shard's alarms."""

    def turn(self, process: str, resource: str, is_on: bool, text: str) -> None:
        """Turn an alarm of a process on or off."""

    def forget(self, process: str) -> None:
        """Forget the alarms of a process that is away."""


class ShardLink:
    """The link to one shard. All calls are made on the loop's thread; nothing here waits.

    Args:
        dialer: the link to the shard.
        name: of the shard, such as "shard-0".
        changed: called when something was posted, so that a flush follows.
        exists: whether the topology has a queue of that id.
        stamp: writes time, origin and serial into a record batch.
        alarms: hears of the shard's alarms.

    Attributes:
        life: how often the shard went away; what was delivered in an earlier life cannot be settled.
        confirms: publishes on their way to it.
        on_dead_letter: takes in dead letters; it is set before any come.
    """

    def __init__(
        self,
        dialer: "Dialer[FromShard]",
        name: str,
        changed: Callable[[], None],
        exists: Callable[[int], bool],
        stamp: Callable[[RecordBatch], None],
        alarms: AlarmListener,
    ) -> None:
        self.dialer = dialer
        self.name = name
        self.life = 0
        confirms = self.confirms = PublishWindow(dialer, name, exists, stamp)
        self.publish, self.publish_planned = confirms.add, confirms.add_planned
        self.publish_numbered = confirms.add_numbered
        self.on_dead_letter: Callable[[ShardLink, DeadLetter], None] = _no_publisher
        self._alarms = alarms
        self._changed = changed
        self._exists = exists
        self._consumers: dict[int, Consumer] = {}
        self._next_number = 1
        self._touched: set[Consumer] = set()
        self._is_urgent = False  # what waits is to be sent, though the shard has publishes to answer
        self._asked: dict[int, _Asked] = {}
        self._waiting: list[_Asked] = []
        self._early: list[_Asked] = []
        self._given_up: dict[int, _Asked] = {}  # their answers may still come
        self._handlers: dict[type, Callable[[Any], None]] = {
            Confirmed: self._on_confirmed,
            PublishRefusal: self.confirms.on_refusal,
            Delivered: self._on_delivered,
            Answer: self._on_answer,
            Got: self._on_answer,
            Refusal: self._on_answer,
            Cancelled: self._on_cancelled,
            DeadLetter: lambda message: self.on_dead_letter(self, message),
            Alarm: lambda message: alarms.turn(name, message.resource, message.is_on, message.text),
            Wanted: self._on_wanted,
            Spent: self._on_spent,
            LinkOpened: self._on_opened,
            LinkLost: self._on_lost,
        }

    @property
    def is_open(self) -> bool:
        """Whether the shard is there."""
        return self.dialer.is_open

    def ask(self, message: Request[Any], reply: Reply, seconds: float = DECLARE_SECONDS) -> None:
        """Send a request. While the shard is away it waits; at the deadline it is refused.

        What may not be repeated is refused where the shard is not there, and where it goes away before it has
        answered. In between there is no deadline.

        Args:
            message: what is asked.
            reply: called with the result, a Got, or a RequestError.
            seconds: until it is given up.
        """
        if self.dialer.is_open:
            self._send(_Asked(message, reply, time.monotonic() + seconds if message.may_repeat else math.inf))
        elif message.may_repeat:
            self._waiting.append(_Asked(message, reply, time.monotonic() + seconds))
        else:
            reply(Unavailable(f"{self.name} is not there now; try again"))

    def _send(self, asked: _Asked) -> None:
        number = self._next_number
        self._next_number += 1
        self.confirms.close_batches()
        self._post_settlements()
        self._asked[number] = asked
        self._is_urgent = True
        self.dialer.post(Call(number, asked.message))
        self._changed()

    def _on_answer(self, message: Answer[msgspec.Raw] | Refusal | Got) -> None:
        asked = self._asked.pop(message.request, None)
        if asked is None:
            given_up = self._given_up.pop(message.request, None)
            if given_up is not None and isinstance(message, Got) and not given_up.message.auto_ack:
                self.dialer.post(Nack(given_up.message.consumer, [(message.first, message.first + 1)], requeue=True))
                self._changed()
            return
        if isinstance(message, Refusal):
            queue: int | None = getattr(asked.message, "queue", None)
            is_missing = message.code == ReplyCode.NOT_FOUND and not _is_told_at_once(asked.message)
            if is_missing and queue is not None and self._exists(queue):
                # The shard is back, and the coordinator has not yet told it of the queues that are not durable.
                self._early.append(asked)
                return
            asked.reply(request_error(message.code, message.text))
        else:
            asked.reply(message if isinstance(message, Got) else result_of(asked.message, message))

    @property
    def consumers(self) -> int:
        """How many consumers are known to the shard, those of basic.get included."""
        return len(self._consumers)

    def add_consumer(self, receiver: Receiver, queue: int, tag: str) -> Consumer:
        """Make a consumer of one queue of this shard; it may hold messages from now on."""
        number = self._next_number
        self._next_number += 1
        consumer = Consumer(receiver, self, number, queue, tag)
        self._consumers[number] = consumer
        return consumer

    def start(self, consumer: Consumer, reply: Reply, seconds: float = DECLARE_SECONDS) -> None:
        """Ask the shard for deliveries."""
        consumer.running = True
        message = Consume(
            consumer.number,
            consumer.queue,
            consumer.prefetch,
            consumer.auto_ack,
            consumer.window,
            consumer.priority,
            consumer.exclusive,
            consumer.timeout_ms,
            consumer.settled_late,
            consumer.overhead,
        )
        self.ask(message, reply, seconds)

    def get(self, consumer: Consumer, auto_ack: bool, room: int, reply: Reply) -> None:
        """Ask the shard for one message; the result is its size where it takes more than `room` bytes."""
        self.ask(Get(consumer.number, consumer.queue, auto_ack, room), reply)

    def permit(self, consumer: Consumer, size: int) -> None:
        """Allow `size` bytes beyond the consumer's window."""
        consumer.permitted += size
        self.dialer.post(Permit(consumer.number, size))
        self._changed()

    def cancel(self, consumer: Consumer, reply: Reply) -> None:
        """Stop deliveries; what the consumer holds it keeps."""
        consumer.running = False
        if self.dialer.is_open:
            self.ask(Cancel(consumer.number), reply)
        else:
            reply(None)

    def release(self, consumer: Consumer) -> None:
        """Forget a consumer; what it holds is requeued."""
        if self._consumers.pop(consumer.number, None) is None:
            return
        consumer.running = False
        self.confirms.close_batches()
        self._forget_loans(consumer)
        self._post_settlements()
        self.dialer.post(Release(consumer.number))
        self._changed()

    def settle(self, consumer: Consumer, start: int, end: int) -> None:
        """Acknowledge messages [start, end)."""
        ranges = consumer.settled
        if ranges and ranges[-1][1] == start:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((start, end))
        self._touched.add(consumer)

    def nack(self, consumer: Consumer, start: int, end: int, requeue: bool, delay_ms: int = 0) -> None:
        """Reject messages [start, end): back to their place, after a while; or dead-lettered or dropped."""
        self.confirms.close_batches()
        self.dialer.post(Nack(consumer.number, [(start, end)], requeue, delay_ms))

    def renew(self, consumer: Consumer, start: int, end: int) -> None:
        """Begin the consumer timeout of messages [start, end) anew."""
        self.dialer.post(Renew(consumer.number, [(start, end)]))

    def taken(self, consumer: Consumer) -> None:
        """Give the consumer credit for what the client's socket took, once that is worth a message."""
        if consumer.owed * DELIVERY_CREDIT_SHARE >= consumer.window and consumer.running:
            self.dialer.post(Credit(consumer.number, consumer.owed))
            consumer.owed = 0
            self._changed()

    def _post_settlements(self) -> None:
        for consumer in self._touched:
            self.dialer.post(Ack(consumer.number, consumer.settled))
            consumer.settled = []
        self._touched.clear()

    def _on_delivered(self, message: Delivered) -> None:
        consumer = self._consumers.get(message.consumer)
        if consumer is not None:
            consumer.receiver.deliver(consumer, message)

    def _on_wanted(self, message: Wanted) -> None:
        consumer = self._consumers.get(message.consumer)
        if consumer is not None:
            consumer.receiver.wanted(consumer, message.size)

    def _on_spent(self, message: Spent) -> None:
        consumer = self._consumers.get(message.consumer)
        if consumer is not None:
            consumer.permitted -= message.size
            consumer.borrowed += message.used
            consumer.receiver.spent(consumer, message.size, message.used)

    def _forget_loans(self, consumer: Consumer) -> None:
        """Repay what was lent for a consumer's messages, which will not come."""
        permitted, consumer.permitted = consumer.permitted, 0
        borrowed, consumer.borrowed = consumer.borrowed, 0
        if permitted or borrowed:
            consumer.receiver.spent(consumer, permitted, -borrowed)

    def _on_cancelled(self, message: Cancelled) -> None:
        consumer = self._consumers.get(message.consumer)
        if consumer is not None:
            consumer.running = False
            consumer.receiver.cancelled(consumer, Unavailable(message.text) if message.text else None)

    def receive(self) -> bool:
        """Take in what the shard sent; returns whether more is left."""
        handlers = self._handlers
        for event in self.dialer.receive():
            handlers[type(event)](event)
        return self.dialer.more

    def flush(self) -> bool:
        """Send what was gathered, as one envelope, unless it may gather on; returns whether anything was sent."""
        if self.confirms.may_gather and not self._is_urgent:
            return False
        self._is_urgent = False
        self.confirms.send()
        if self._touched:
            self._post_settlements()
        return self.dialer.flush()

    def _on_confirmed(self, message: Confirmed) -> None:
        self.confirms.on_confirmed(message)
        self._changed()

    def tick(self, now: float) -> None:
        """Keep the link alive; give up requests whose time is over."""
        self._is_urgent = True  # a shard that is long in answering hears from here all the same
        for lost in self.dialer.tick(now):
            self._on_lost(lost)
        late = [number for number, asked in self._asked.items() if asked.deadline < now]
        self._given_up.update((number, self._asked[number]) for number in late)
        overdue = [self._asked.pop(number) for number in late]
        overdue += [asked for asked in self._waiting if asked.deadline < now]
        self._waiting = [asked for asked in self._waiting if asked.deadline >= now]
        early, self._early = self._early, []
        for asked in early:
            if asked.deadline < now:
                overdue.append(asked)
            elif self._is_wanted(asked):
                self._send(asked)
        for asked in overdue:
            asked.reply(Unavailable(f"{self.name} did not answer in time; see `shardmq status`, then try again"))

    def _on_opened(self, _opened: LinkOpened) -> None:
        waiting, self._waiting = self._waiting, []
        starting = {asked.message.consumer for asked in waiting if isinstance(asked.message, Consume)}
        for consumer in list(self._consumers.values()):
            consumer.hold(-consumer.unacked)
            consumer.owed = 0
            if consumer.running and consumer.number not in starting:
                self.start(consumer, self._resumed(consumer), RESUME_SECONDS)
        for asked in waiting:
            if self._is_wanted(asked):
                self._send(asked)

    def _is_wanted(self, asked: _Asked) -> bool:
        """Whether a request that was not carried out still should be.

        Not when its channel is gone, and with it whoever asked, nor when a consumer that was to be resumed has been
        cancelled.
        """
        number: int | None = getattr(asked.message, "consumer", None)
        if number is None:
            return True
        consumer = self._consumers.get(number)
        return consumer is not None and (consumer.running or not isinstance(asked.message, Consume))

    def _resumed(self, consumer: Consumer) -> Reply:
        def resumed(outcome: Outcome) -> None:
            if isinstance(outcome, RequestError) and consumer.running:
                consumer.running = False
                consumer.receiver.cancelled(consumer, None if outcome.code == ReplyCode.NOT_FOUND else outcome)

        return resumed

    def _on_lost(self, lost: LinkLost) -> None:
        self.life += 1
        self._alarms.forget(self.name)
        self.confirms.lost(
            f"{self.name} went away before it confirmed: stored or not is not certain; publish again ({lost.reason})"
        )
        for consumer in self._touched:
            consumer.settled = []
        self._touched.clear()
        for consumer in list(self._consumers.values()):
            self._forget_loans(consumer)
        asked, self._asked = self._asked, {}
        early, self._early = self._early, []
        # Nearly every request may be asked twice; their deadlines stand. Consumers are resumed anew.
        self._waiting += [each for each in (*early, *asked.values()) if each.deadline < RESUME_SECONDS]
        for each in [each for each in asked.values() if not each.message.may_repeat]:
            each.reply(
                Timeout(
                    f"{self.name} went away before it answered: it was done or not, which is not certain "
                    f"({lost.reason})"
                )
            )
        self._given_up.clear()
        self._changed()
