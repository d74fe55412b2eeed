"""One shard as seen from a gateway: consumers, dead letters, alarms."""

from collections.abc import Callable, Collection
from typing import Any, ClassVar, Protocol

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.bus.dialer import Dialer
from shardmq.bus.link import LinkLost, LinkOpened
from shardmq.bus.messages.base import Answer, Refusal
from shardmq.bus.messages.columns import Deliveries, MayForward
from shardmq.bus.messages.dead_letters import DeadLetter
from shardmq.bus.messages.groups import Declined, Starved
from shardmq.bus.messages.shard import (
    Alarm,
    Cancel,
    Cancelled,
    Confirmed,
    Consume,
    Credit,
    Delivered,
    FromShard,
    Gateways,
    Get,
    Got,
    OutOfService,
    Permit,
    PublishRefusal,
    Release,
    Spent,
    Wanted,
)
from shardmq.errors import ReplyCode, RequestError, request_error
from shardmq.gateway.links.common_deliveries import CommonDeliveries
from shardmq.gateway.links.consumer import Consumer, Receiver
from shardmq.gateway.links.publishes.publish_window import PublishWindow
from shardmq.gateway.links.requests import FOREVER, UNCERTAIN, Requests
from shardmq.gateway.links.settlements import Settlements
from shardmq.limits import DECLARE_SECONDS, DELIVERY_CREDIT_SHARE
from shardmq.message.record_batch import RecordBatch


def no_publisher(_link: "ShardLink", dead: DeadLetter) -> None:
    """Take dead letters before anybody does, which is a bug."""
    raise AssertionError(f"nobody takes the dead letters of queue {dead.queue}")


class AlarmListener(Protocol):
    """Hears of the shard's alarms."""

    def turn(self, process: str, resource: str, is_on: bool, text: str) -> None:
        """Turn an alarm of a process on or off."""

    def forget(self, process: str) -> None:
        """Forget the alarms of a process that is away."""


class ShardLink(Settlements):
    """The link to one shard. All calls are made on the loop's thread; nothing here waits.

    Args:
        dialer: the link to the shard.
        name: of the shard, such as "shard-0".
        changed: called when something was posted, so that a flush follows.
        exists: whether the topology has a queue of that id.
        stamp: writes time, origin and serial into a record batch.
        alarms: hears of the shard's alarms.

    Attributes:
        life: how often it went away; what was delivered in an earlier life cannot be settled.
        knows_all: whether the shard is there, and all of its consumers are this gateway's.
        ask: sends a request; `Requests.ask`.
        look: asks for what is only shown; `Requests.look`.
        confirms: publishes on their way to it.
        on_dead_letter: takes in dead letters; it is set before any come.
        may_follow: whether clients are written to before the shard: what it is sent they were answered already.
        newest: of what was delivered for the first time in this pass; None for nothing.
    """

    may_forward: ClassVar[bool] = True
    """Whether messages may go to consumers on their way to the shard."""

    def __init__(
        self,
        dialer: Dialer[FromShard],
        name: str,
        changed: Callable[[], None],
        exists: Callable[[int], bool],
        stamp: Callable[[RecordBatch], None],
        alarms: AlarmListener,
    ) -> None:
        super().__init__(dialer, PublishWindow(dialer, name, exists, stamp))
        self.name, self.life = name, 0
        self.knows_all = self.may_follow = False
        self.newest: RecordBatch | None = None
        confirms = self.confirms
        confirms.has_heirs = not dialer.address  # it is sent to whichever leads
        self.publish, self.publish_planned = confirms.add, confirms.add_planned
        self.publish_numbered, self.publish_run = confirms.add_numbered, confirms.add_run
        self.on_dead_letter: Callable[[ShardLink, DeadLetter], None] = no_publisher
        self._alarms = alarms
        self._changed = changed
        self._consumers: dict[int, Consumer] = {}
        self._exclusive: set[Consumer] = set()
        self._out_of_service: set[int] = set()
        self._next_number = 1
        self._is_urgent = False  # what waits is to be sent, though the shard has publishes to answer
        requests = self._requests = Requests(dialer, name, self._before_request, exists, self._is_wanted)
        self.ask, self.look = requests.ask, requests.look
        self._common = CommonDeliveries(self._on_delivered)
        self._handlers: dict[type, Callable[[Any], None]] = {
            Confirmed: self._on_confirmed,
            PublishRefusal: self.confirms.on_refusal,
            Delivered: self._on_delivered,
            Deliveries: self._on_deliveries,
            **self._common.handlers,
            Answer: requests.on_answer,
            Got: requests.on_answer,
            Refusal: requests.on_answer,
            Cancelled: self._on_cancelled,
            DeadLetter: lambda message: self.on_dead_letter(self, message),
            Alarm: lambda message: alarms.turn(name, message.resource, message.is_on, message.text),
            OutOfService: lambda message: self._out_of_service.add(message.queue),
            Gateways: self._on_gateways,
            Wanted: self._on_wanted,
            Starved: self._on_starved,
            MayForward: lambda message: self.forwarding.on_may_forward(message, self._consumers),
            Spent: self._on_spent,
            LinkOpened: self._on_opened,
            LinkLost: self._on_lost,
        }

    @property
    def is_open(self) -> bool:
        """Whether the shard is there."""
        return self.dialer.is_open

    def _before_request(self) -> None:
        """What was published and settled before a request goes before it, and the request does not wait."""
        self.confirms.close_batches()
        self._post_settlements()
        self.forwarding.stop_all()
        self._is_urgent = True
        self.may_follow = False
        self._changed()

    @property
    def consumers(self) -> Collection[Consumer]:
        """The consumers that are known to the shard, those of basic.get included."""
        return self._consumers.values()

    def add_consumer(self, receiver: Receiver, queue: int, tag: str, kind: type[Consumer] = Consumer) -> Consumer:
        """Make a consumer of one queue of this shard; it may hold messages from now on."""
        number = self._next_number
        self._next_number += 1
        consumer = kind(receiver, self, number, queue, tag)
        self._consumers[number] = consumer
        return consumer

    def start(self, consumer: Consumer, reply: Reply, seconds: float = DECLARE_SECONDS) -> None:
        """Ask the shard for deliveries."""
        consumer.running = True
        self.forwarding.joined(consumer)
        if consumer.exclusive:
            self._exclusive.add(consumer)
        self.ask(consumer.start_request(), reply, seconds)

    @property
    def is_carried_out(self) -> bool:
        """Whether the shard is known to have carried out all that was posted from here."""
        return self._requests.is_quiet and not (self.confirms.growing or self.touched)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is on its way to the shard, nor from it but for what others have caused."""
        return self.knows_all and self.is_carried_out

    def start_unasked(self, consumer: Consumer) -> bool:
        """Have the shard send deliveries, where it has no reason to refuse that; returns whether it is so.

        What the gateway cannot know yet (the queue is being deleted or goes out of service) ends the consumer then.
        """
        if not (consumer.is_plain and self.knows_all) or consumer.queue in self._out_of_service:
            return False
        if self.confirms.growing or not self.confirms.is_settled or self.touched:
            return False  # deliveries of what was published and acknowledged before come before the answer
        if consumer.queue in [other.queue for other in self._exclusive]:
            return False
        is_first = not self.dialer.has_posted
        self.start(consumer, self._resumed(consumer), FOREVER)
        self.may_follow = is_first
        return True

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
        self.forwarding.left(consumer)
        if self.dialer.is_open:
            self.ask(Cancel(consumer.number), reply)
        else:
            reply(None)

    def release(self, consumer: Consumer, is_unseen: bool = False) -> None:
        """Forget a consumer; what it holds is requeued, or put back as it was, where its client has seen none of it."""
        if self._consumers.pop(consumer.number, None) is None:
            return
        is_empty = consumer.is_plain and not consumer.running and not consumer.unacked
        is_first = not self.dialer.has_posted
        consumer.running = False
        self._exclusive.discard(consumer)
        self.forwarding.left(consumer)
        self.forwarding.stop_all()  # another consumer of its channel may be about to be released
        self.confirms.close_batches()
        self.forwarding.stop_all()  # what it holds returns behind that
        consumer.repay()
        self._post_settlements()
        self.dialer.post(Release(consumer.number, is_unseen))
        if self.knows_all and (is_unseen or is_empty):  # the shard takes back what nobody saw, or nothing
            self._requests.pass_over_newest()
            self.may_follow = is_unseen and is_first
        self._changed()

    def taken(self, consumer: Consumer) -> None:
        """Give the consumer credit for what the client's socket took, once that is worth a message."""
        if consumer.owed * DELIVERY_CREDIT_SHARE >= consumer.window and consumer.running:
            self.dialer.post(Credit(consumer.number, consumer.owed))
            consumer.owed = 0
            self._changed()

    def decline(self, consumer: Consumer) -> None:
        """Tell the shard that a consumer that was starved has no more prefetch now."""
        self.dialer.post(Declined(consumer.number))
        self._changed()

    def _on_delivered(self, message: Delivered) -> None:
        if not message.redelivered:
            self.newest = message.batch
        if (consumer := self._consumers.get(message.consumer)) is not None:
            consumer.receiver.deliver(consumer, message)

    def _on_deliveries(self, message: Deliveries) -> None:
        consumers = self._consumers
        self.newest = message.batches[-1]
        for number, first, batch in zip(message.consumers, message.firsts, message.batches, strict=True):
            if (consumer := consumers.get(number)) is not None:
                consumer.receiver.deliver_fresh(consumer, first, batch)

    def _on_wanted(self, message: Wanted) -> None:
        if (consumer := self._consumers.get(message.consumer)) is not None:
            consumer.receiver.wanted(consumer, message.size)

    def _on_starved(self, message: Starved) -> None:
        if (consumer := self._consumers.get(message.consumer)) is not None:
            consumer.receiver.starved(consumer)

    def _on_spent(self, message: Spent) -> None:
        consumer = self._consumers.get(message.consumer)
        if consumer is not None:
            consumer.permitted -= message.size
            consumer.borrowed += message.used
            consumer.receiver.spent(consumer, message.size, message.used)

    def _on_cancelled(self, message: Cancelled) -> None:
        if (consumer := self._consumers.get(message.consumer)) is not None:
            consumer.running = False
            self.forwarding.left(consumer)
            fault = request_error(message.code, message.text) if message.text else None
            consumer.receiver.cancelled(consumer, fault)

    def _on_gateways(self, message: Gateways) -> None:
        self.knows_all = message.count == 1
        self.forwarding.may_begin = self.knows_all and self.may_forward and not self.confirms.has_heirs
        self.forwarding.stop_all()

    def receive(self) -> bool:
        """Take in what the shard sent; returns whether more is left."""
        handlers = self._handlers
        for event in self.dialer.receive():
            handlers[type(event)](event)
        self._requests.all_taken_in()
        return self.dialer.more

    def forward(self) -> None:
        """Give consumers what they may have on its way; where that is all there is, clients are written to first."""
        if self.confirms.growing and self.confirms.forward() and not self._is_urgent:
            self.may_follow = True
        if self.forwarding.newest is not None:
            self.newest, self.forwarding.newest = self.forwarding.newest, None

    def flush(self) -> bool:
        """Send what was gathered, as one envelope, unless it may gather on; returns whether anything was sent."""
        if self.confirms.may_gather and not self._is_urgent:
            return False
        self._is_urgent = self.may_follow = False
        self.confirms.send()
        if self.touched:
            self._post_settlements()
        return self.dialer.flush()

    def _on_confirmed(self, message: Confirmed) -> None:
        self.confirms.on_confirmed(message)
        if self.confirms.growing or self.touched or self.dialer.has_posted:  # it may go now
            self._changed()

    def tick(self, now: float) -> None:
        """Keep the link alive; give up requests whose time is over."""
        self._is_urgent = True  # a shard that is long in answering hears from here all the same
        for lost in self.dialer.tick(now):
            self._on_lost(lost)
        self.confirms.tick(now)
        self._requests.tick(now)

    def _on_opened(self, _opened: LinkOpened) -> None:
        self.confirms.opened()
        self._changed()
        starting = self._requests.starting
        for consumer in list(self._consumers.values()):
            consumer.hold(-consumer.unacked)
            consumer.owed = 0
            if consumer.running and consumer.number not in starting:
                reply = self._requests.reply_to_start(consumer.number) or self._resumed(consumer)
                self.start(consumer, reply, FOREVER)
        self._requests.opened()

    def _is_wanted(self, message: Any) -> bool:
        """Whether a request that was not carried out still should be.

        Not when its channel is gone, and with it whoever asked, nor when a consumer that was to be resumed has been
        cancelled.
        """
        number: int | None = getattr(message, "consumer", None)
        if number is None:
            return True
        consumer = self._consumers.get(number)
        return consumer is not None and (consumer.running or not isinstance(message, Consume))

    def _resumed(self, consumer: Consumer) -> Reply:
        def resumed(outcome: Outcome) -> None:
            if isinstance(outcome, RequestError) and consumer.running:
                consumer.running = False
                consumer.receiver.cancelled(consumer, None if outcome.code == ReplyCode.NOT_FOUND else outcome)

        return resumed

    def _on_lost(self, lost: LinkLost) -> None:
        self.life += 1
        self.knows_all = False
        self._out_of_service.clear()
        self._common.clear()
        if lost.is_settled:
            self.confirms.keep()
        else:
            self.confirms.lost(f"{self.name} went away before it confirmed: {UNCERTAIN} ({lost.reason})")
        for consumer in self.touched:
            consumer.settled = []
        self.touched.clear()
        for consumer in list(self._consumers.values()):
            consumer.repay()
        self._requests.lost(lost)
        self._alarms.forget(self.name)
        self._changed()
