"""One channel, whatever the protocol: publishing and confirms, consumers and deliveries, acknowledgements.

The front of a protocol (native/, amqp/) turns frames into calls here and is called back with what is to be sent.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.bus.messages.shard import Delivered, Got, Qos
from shardmq.errors import ChannelError, NotAllowed, NotFound, ReplyCode, RequestError
from shardmq.gateway.links.consumer import Consumer, HeldDelivery
from shardmq.gateway.links.fan_out import FanOut, FanOutOfMany
from shardmq.gateway.session import large_messages as borrowing
from shardmq.gateway.session.delivery_tags import DeliveryTags
from shardmq.gateway.session.prefetch import PAUSE_SECONDS, PAUSED, SharedPrefetch
from shardmq.gateway.session.publish_split import PublishPart, PublishSplitter, cut, is_uniform
from shardmq.limits import FRAMED_PRODUCERS
from shardmq.message.record import Record
from shardmq.message.record_batch import MANDATORY, PERSISTENT, RecordBatch
from shardmq.topology.entities import Queue

if TYPE_CHECKING:
    from shardmq.gateway.session.session import Session
    from shardmq.gateway.state.routes import Route

TIMEOUT: Final = "x-consumer-timeout"
"""The queue's argument by which messages return that are not acked in time."""

NO_LIFE: Final = -1
"""The life of a link in which nothing was delivered."""


class Channel:
    """One channel: a stream of requests carried out in order."""

    __slots__ = (
        "_confirmed",
        "_getters",
        "_is_retuned",
        "_prefetch_of_all",
        "_retired",
        "_shared",
        "_tags_made",
        "consumers",
        "is_open",
        "ledger",
        "ledgers",
        "number",
        "session",
    )

    def __init__(self, session: "Session", number: int) -> None:
        self.number = number
        self.session = session
        self.is_open = True
        self.ledger: DeliveryTags[HeldDelivery] = DeliveryTags()
        self.ledgers: list[DeliveryTags[HeldDelivery]] = [
            self.ledger
        ]  # and those of what is settled by a commit to come
        self.consumers: dict[str, Consumer] = {}
        self._retired: dict[Consumer, bool] = {}  # cancelled, but may hold messages; whether their shards have heard
        self._getters: dict[int, Consumer] = {}
        self._confirmed: list[tuple[int, int]] = []
        self._shared: SharedPrefetch | None = None
        self._is_retuned = False
        self._prefetch_of_all: int | None = None  # that running consumers are to have from the end of this pass on
        self._tags_made = 0

    # --- publishing -----------------------------------------------------------------------------------------------

    def publish(
        self,
        request: int,
        exchange: str,
        key: str,
        flags: int,
        count: int,
        packed: bytes,
        records: Sequence[Record] | None = None,
        delay_ms: int = 0,
        producer: int = 0,
        sequence: int = 0,
        transaction: int = 0,
    ) -> None:
        """Route messages that were checked and send them on; answered by `confirm` or `refuse`.

        Args:
            request: the client's number for it.
            exchange: where to.
            key: routing key.
            flags: PERSISTENT, MANDATORY.
            count: how many.
            packed: their records.
            records: them decoded, where some have properties.
            delay_ms: so much later they join their queues.
            producer: who resends them, should that be needed; 0 for nobody.
            sequence: the producer's number of the first one.
            transaction: in which they are staged, for the attempt that `producer` then is; 0 for none.
        """
        session = self.session
        hub = session.hub
        hub.changed()  # before all else: it notes the time of this pass
        try:
            session.rights.check_write(exchange)
            if transaction:
                session.check_staging(transaction, producer)
            plan = hub.plan(session.vhost, exchange, key)
            if plan is None or (records is not None and not is_uniform(records)):
                may_sort = not transaction and (not producer or producer >= FRAMED_PRODUCERS)
                publication = PublishSplitter(hub, session.vhost, session.user, exchange, key, may_sort)
                parts = cut(publication, packed, count, records)
                self._publish_parts(request, exchange, key, flags, parts, delay_ms, producer, sequence, transaction)
                return
        except RequestError as error:
            self.refuse(request, request, error.code, error.text)
            return
        serial = hub.next_serial
        hub.next_serial = serial + count
        if not plan:
            if flags & MANDATORY:
                session.front.send_return(self.number, request, exchange, key, flags & PERSISTENT, count, packed)
            self.confirm(request, request)
            return
        fan = FanOut(len(plan)) if len(plan) > 1 else None
        flags &= PERSISTENT
        for link, queues in plan:
            run = RecordBatch(exchange, key, flags, hub.now_ms, hub.origin, serial, count, packed)
            if link.publish(self, request, queues, run, fan, 0, producer, sequence, delay_ms, transaction):
                session.front.hold_publishing(link)

    def send(
        self,
        first: int,
        exchange: str,
        key: str,
        flags: int,
        count: int,
        records: bytes,
        plan: "Route",
        priority: int = 0,
        ttl_ms: int | None = None,
    ) -> None:
        """Send messages on their way, each of them a publish of its own; answered by `confirm` or `refuse`.

        Args:
            first: the first one's number; the others follow.
            exchange: where they were published to.
            key: routing key.
            flags: as they are stored: PERSISTENT, AMQP.
            count: how many.
            records: them.
            plan: where they go; nowhere, and they are confirmed.
            priority: of each.
            ttl_ms: as in `RecordBatch`.
        """
        session = self.session
        hub = session.hub
        hub.changed()
        serial = hub.next_serial
        hub.next_serial = serial + count
        last = first + count - 1
        if not plan:
            self.confirm(first, last)
            return
        singly = len(plan) == 1
        fan = None if singly else FanOutOfMany(len(plan), last)
        for link, queues in plan:
            run = RecordBatch(exchange, key, flags, hub.now_ms, hub.origin, serial, count, records, priority, ttl_ms)
            if link.publish(self, first, queues, run, fan, singly=singly):
                session.front.hold_publishing(link)

    def _publish_parts(
        self,
        request: int,
        exchange: str,
        key: str,
        flags: int,
        parts: Sequence[PublishPart],
        delay_ms: int,
        producer: int,
        sequence: int,
        transaction: int,
    ) -> None:
        front, hub = self.session.front, self.session.hub
        fan = FanOut(sum(len(part.plan) for part in parts))
        first = hub.next_serial
        hub.next_serial = first + sum(part.messages for part in parts)
        persistent = flags & PERSISTENT
        for offset, count, packed, priority, ttl_ms, plan, certain in parts:
            if not plan and flags & MANDATORY:
                front.send_return(self.number, request, exchange, key, persistent, count, packed)
            number = sequence + offset if producer else 0
            for link, queues in plan:
                run = RecordBatch(
                    exchange, key, persistent, hub.now_ms, hub.origin, first + offset, count, packed, priority, ttl_ms
                )
                if link.publish(self, request, queues, run, fan, certain, producer, number, delay_ms, transaction):
                    front.hold_publishing(link)
        if not fan.remaining and fan.refusal is None:
            self.confirm(request, request)

    def confirm(self, first: int, last: int) -> None:
        """Publishes `first` to `last` are where they should be: told to the client at the end of the pass.

        Not once the channel is closed: its number may be another one's by then, whose publishes have the same numbers.
        """
        if not self.is_open:
            return
        confirmed = self._confirmed
        if not confirmed:
            confirmed.append((first, last))
            self.session.front.confirms_due(self)
        elif confirmed[-1][1] + 1 == first:
            confirmed[-1] = (confirmed[-1][0], last)
        else:
            confirmed.append((first, last))

    def take_confirms(self) -> list[tuple[int, int]]:
        """The confirms gathered since the last call."""
        confirmed, self._confirmed = self._confirmed, []
        return confirmed

    def refuse(self, first: int, last: int, code: int, text: str, taken: int = 0) -> None:
        """Publishes `first` to `last` are not certain to be stored; but for the first `taken` messages if it is one."""
        if self.is_open:
            self.session.front.send_refusal(self.number, first, last, code, text, taken)

    # --- consuming ------------------------------------------------------------------------------------------------

    def consume(
        self,
        queue_name: str,
        tag: str,
        auto_ack: bool,
        prefetch: int,
        reply: Reply,
        *,
        priority: int = 0,
        exclusive: bool = False,
        timeout_ms: int = 0,
    ) -> None:
        """Start a consumer; the result is its tag."""
        self.consume_from(
            self.session.queue(queue_name),
            tag,
            auto_ack,
            prefetch,
            reply,
            priority=priority,
            exclusive=exclusive,
            timeout_ms=timeout_ms,
        )

    def consume_from(
        self,
        queue: Queue,
        tag: str,
        auto_ack: bool,
        prefetch: int,
        reply: Reply,
        *,
        priority: int = 0,
        exclusive: bool = False,
        timeout_ms: int = 0,
    ) -> None:
        """As `consume`, from a queue that was found."""
        if not tag:
            self._tags_made += 1
            tag = f"amq.ctag-{self.session.hub.origin:016x}.{self.session.number}.{self.number}.{self._tags_made}"
        if tag in self.consumers:
            raise NotAllowed(
                f"channel {self.number} has a consumer '{tag}' already; choose another tag or cancel that one"
            )
        link = self.session.hub.links[queue.shard]
        consumer = link.add_consumer(self, queue.id, tag)
        consumer.window = self.session.next_window
        consumer.overhead = self.session.front.delivery_bytes(tag)
        consumer.auto_ack = auto_ack
        consumer.own_prefetch = prefetch
        consumer.settled_late = auto_ack and self._shared is not None
        consumer.prefetch = self._limited(consumer)
        consumer.priority = priority
        consumer.exclusive = exclusive
        consumer.timeout_ms = timeout_ms
        consumer.times_out = timeout_ms > 0 or TIMEOUT in queue.arguments
        self.consumers[tag] = consumer

        def started(outcome: Outcome) -> None:
            if isinstance(outcome, RequestError):
                self._forget(consumer)
            reply(outcome if isinstance(outcome, RequestError) else tag)

        link.start(consumer, started)

    def cancel(self, tag: str, reply: Reply) -> None:
        """Stop a consumer; what it holds stays unacked. Cancelling what is not there is no error (RabbitMQ's rule)."""
        consumer = self.consumers.pop(tag, None)
        if consumer is None:
            reply(None)
            return

        self._retired[consumer] = False

        def stopped(outcome: Outcome) -> None:
            if self.is_open:
                if self._shared is not None:
                    for waiting in self._shared.drop(consumer):
                        end = waiting.first + waiting.run.count
                        borrowing.count_sent(self.session, consumer, waiting.run)
                        consumer.link.give_back(consumer, waiting.first, end, requeue=True)
                self._retired[consumer] = True
                self.after_settling()
            reply(outcome)

        consumer.link.cancel(consumer, stopped)

    def qos(self, tag: str, prefetch: int, reply: Reply) -> None:
        """Change a running consumer's prefetch."""
        consumer = self.consumers.get(tag)
        if consumer is None:
            raise NotFound(f"channel {self.number} has no consumer '{tag}'")
        consumer.own_prefetch = prefetch
        consumer.prefetch = self._limited(consumer)
        consumer.link.ask(Qos(0, consumer.number, consumer.prefetch), reply)

    def qos_of_all(self, prefetch: int) -> None:
        """Change the prefetch of all running consumers; their shards follow in their time."""
        self._prefetch_of_all = prefetch
        self._retune_later()

    def share(self, prefetch: int) -> None:
        """Limit what all consumers hold together, beside what each may; 0 for no such limit. Those without
        acknowledgements hold nothing, but get nothing either while the others have used it up.
        """
        shared = self._shared
        if shared is None and not prefetch:
            return
        if shared is not None and prefetch:
            shared.limit = prefetch
        else:
            self._shared = SharedPrefetch(prefetch) if prefetch else None
            if shared is not None:
                self._hand_on(shared)
        self._retune_later()

    def _retune_later(self) -> None:
        """A method of twenty bytes may concern thousands of consumers: of all in a pass, the last one counts."""
        if not self._is_retuned:
            self._is_retuned = True
            self.session.hub.retune_due(self)

    def retune(self) -> None:
        """Limits were changed in this pass: carry that out."""
        self._is_retuned = False
        prefetch, self._prefetch_of_all = self._prefetch_of_all, None
        if prefetch is not None:
            for consumer in self.consumers.values():
                consumer.own_prefetch = prefetch
        self._tell_limits()
        if self._shared is not None:
            self._hand_on(self._shared)

    def _limited(self, consumer: Consumer) -> int:
        """What a consumer's shard is to know as its prefetch."""
        own, shared = consumer.own_prefetch, self._shared
        if shared is None:
            return 0 if consumer.settled_late else own
        if shared.is_paused:
            return PAUSED
        if consumer.auto_ack:
            return 0
        return min(own, shared.limit) if own else shared.limit

    def _tell_limits(self) -> None:
        """Tell shards of their consumers' prefetch, where it is another now; they follow in their time."""
        for consumer in self.consumers.values():
            settled_late = consumer.settled_late or (consumer.auto_ack and self._shared is not None)
            prefetch = self._limited(consumer)
            if prefetch != consumer.prefetch or settled_late is not consumer.settled_late:
                consumer.prefetch, consumer.settled_late = prefetch, settled_late
                consumer.link.ask(Qos(0, consumer.number, prefetch, settled_late), _ignore)

    def _hand_on(self, shared: SharedPrefetch) -> None:
        """Hand out what has waited, as far as there is room for it now; have more of it come if there is room still."""
        while (waiting := shared.take(self._room())) is not None:
            self._pass_on(*waiting)
        if self._shared is not shared:
            return
        if self._has_room():
            if shared.is_paused:
                shared.is_paused = False
                self._tell_limits()
        elif len(self.consumers) + len(self._retired) > 1 and not (shared.is_paused or shared.is_watched):
            shared.is_watched = True
            asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._pause, shared)

    def _pause(self, shared: SharedPrefetch) -> None:
        """A while ago there was no room: see that nothing more comes if there is none now."""
        shared.is_watched = False
        if self.is_open and self._shared is shared and not self._has_room():
            shared.is_paused = True
            self._tell_limits()

    def _has_room(self) -> bool:
        room = self._room()
        return room is None or room > 0

    def _room(self) -> int | None:
        """For how many messages there is room within the shared limit; None where there is none. What basic.get got
        does not count.
        """
        if self._shared is None:
            return None
        return self._shared.limit - sum([consumer.unacked for consumer in (*self.consumers.values(), *self._retired)])

    def get(self, queue_name: str, auto_ack: bool, reply: Reply) -> None:
        """One message: the result is None or (tag, Got)."""
        queue = self.session.queue(queue_name)
        link = self.session.hub.links[queue.shard]
        consumer = self._getters.get(queue.id)
        if consumer is None:
            borrowing.forget_getters(self._getters)
            consumer = self._getters[queue.id] = link.add_consumer(self, queue.id, "")
            consumer.times_out = TIMEOUT in queue.arguments

        def got(outcome: Outcome) -> None:
            if isinstance(outcome, Got):
                if consumer.times_out and outcome.redelivered:
                    self._disown(consumer, outcome.first, 1)
                tag = self._hand_out(consumer, outcome.first, 1, auto_ack)
                reply((tag, outcome))
            else:
                reply(outcome)

        borrowing.get(self, consumer, auto_ack, got)

    def deliver(self, consumer: Consumer, delivered: Delivered) -> None:
        """Number what a shard sent and pass it on."""
        if consumer.times_out and delivered.redelivered:
            self._disown(consumer, delivered.first, delivered.run.count)
        if self._shared is None:
            self._pass_on(consumer, delivered)
        else:
            self._shared.put(consumer, delivered)
            self._hand_on(self._shared)

    def _pass_on(self, consumer: Consumer, delivered: Delivered) -> None:
        run = delivered.run
        tag = self._hand_out(consumer, delivered.first, run.count, consumer.auto_ack)
        front = self.session.front
        front.send_delivery(self.number, consumer.tag, tag, delivered.redelivered, run, delivered.deliveries)
        if consumer.settled_late:
            consumer.link.settle(consumer, delivered.first, delivered.first + run.count)
            self.session.hub.changed()
        borrowing.count_sent(self.session, consumer, run)
        if front.is_writable:
            consumer.link.taken(consumer)

    def wanted(self, consumer: Consumer, size: int) -> None:
        """As `Receiver.wanted`."""
        borrowing.ask(self, consumer, size)

    def spent(self, consumer: Consumer, size: int, used: int) -> None:  # noqa: ARG002  (of any of its consumers)
        """As `Receiver.spent`."""
        self.session.account.arrived(size, used)

    def cancelled(self, consumer: Consumer, fault: RequestError | None) -> None:
        """As `Receiver.cancelled`: forget the consumer, tell the client, unless it has cancelled it before."""
        is_running = consumer not in self._retired
        self._forget(consumer)
        self._getters.pop(consumer.queue, None)
        if consumer.tag and is_running:
            self.session.front.send_cancelled(self.number, consumer.tag, fault)
        self.after_settling()

    def socket_has_room(self) -> None:
        """The client reads again: its consumers may have more."""
        for consumer in self.consumers.values():
            consumer.link.taken(consumer)

    # --- acknowledgements -----------------------------------------------------------------------------------------

    def ack(self, first: int, last: int) -> None:
        """Deliveries `first` to `last` are done with.

        Raises:
            ChannelError: one of them is not outstanding.
        """
        for consumer, start, end in self._take_back(first, last):
            consumer.link.settle(consumer, start, end)
        self.after_settling()
        self.session.hub.changed()

    def nack(self, first: int, last: int, requeue: bool, delay_ms: int = 0) -> None:
        """Deliveries `first` to `last` were not taken: back to their place, after a while; or dead-lettered or dropped.

        Raises:
            ChannelError: one of them is not outstanding, or a delay where nothing returns.
        """
        if delay_ms and not requeue:
            raise ChannelError(
                f"a delay of {delay_ms} ms without requeue: what is rejected does not return; leave out one of them",
                ReplyCode.PRECONDITION_FAILED,
            )
        for consumer, start, end in self._take_back(first, last):
            consumer.link.give_back(consumer, start, end, requeue, delay_ms)
        self.after_settling()
        self.session.hub.changed()

    def renew(self, first: int, last: int) -> None:
        """Deliveries `first` to `last` are still being worked on: the time until they return begins anew.

        Raises:
            ChannelError: one of them is not outstanding.
        """
        for (consumer, life), start, end in self.ledger.look(first, last):
            if life == consumer.link.life:
                consumer.link.renew(consumer, start, end)
        self.session.hub.changed()

    def recover(self) -> None:
        """Everything unacked goes back to its place, to be delivered again."""
        for (consumer, life), start, end in self.ledger.settle_all():
            if life == consumer.link.life:
                consumer.unacked -= end - start
                consumer.link.give_back(consumer, start, end, requeue=True)
        self.after_settling()
        self.session.hub.changed()

    def close(self) -> None:
        """Give back what is unacked."""
        self.is_open = False
        for consumer in [*self.consumers.values(), *self._retired, *self._getters.values()]:
            consumer.link.release(consumer)
        self.consumers.clear()
        self._getters.clear()
        self._retired.clear()
        for ledger in self.ledgers:
            ledger.clear()

    def _forget(self, consumer: Consumer) -> None:
        if self.consumers.get(consumer.tag) is consumer:
            del self.consumers[consumer.tag]
        self._retired.pop(consumer, None)
        consumer.link.release(consumer)
        if self._shared is not None:
            self._shared.drop(consumer)

    def _hand_out(self, consumer: Consumer, sequence: int, count: int, auto_ack: bool) -> int:
        if not auto_ack:
            consumer.unacked += count
        return self.ledger.hand_out((consumer, consumer.link.life), sequence, count, outstanding=not auto_ack)

    def _take_back(self, first: int, last: int) -> list[tuple[Consumer, int, int]]:
        """Settle tags; returns whose messages they are, leaving out those that were delivered before a shard died."""
        parts = []
        for (consumer, life), start, end in self.ledger.settle(first, last):
            if life == consumer.link.life:
                consumer.unacked -= end - start
                parts.append((consumer, start, end))
        return parts

    def _disown(self, consumer: Consumer, start: int, count: int) -> None:
        """Messages come again to who has them: they returned by themselves. What is said of them under their old tags
        is of no consequence from now on; it would be taken for the new delivery, which has the same numbers.
        """
        holding = consumer, consumer.link.life
        if self._shared is not None:
            for late in self._shared.drop(consumer, start, start + count):
                borrowing.count_sent(self.session, consumer, late.run)
        for ledger in self.ledgers:
            consumer.unacked -= ledger.pass_on(holding, start, start + count, (consumer, NO_LIFE))

    def after_settling(self) -> None:
        """Some of what consumers held is settled: those that were cancelled and hold nothing any more need not be known
        any longer, and what has waited may have room.
        """
        if self._retired:
            for consumer in [each for each, is_stopped in self._retired.items() if is_stopped and not each.unacked]:
                del self._retired[consumer]
                consumer.link.release(consumer)
        if self._shared is not None:
            self._hand_on(self._shared)


def _ignore(_outcome: Outcome) -> None:
    """A shard that was away when it was asked hears all of a consumer when it is back."""
