"""A channel's consumers: starting and cancelling, deliveries, gets. What they may hold is in prefetch/."""

from typing import Any, Final

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.bus.messages.shard import Delivered, Got
from shardmq.bus.messages.streams import Reading
from shardmq.errors import NotAllowed, RequestError
from shardmq.gateway.links.consumer import Consumer, HeldDelivery
from shardmq.gateway.links.shard import ShardLink
from shardmq.gateway.session import large_messages
from shardmq.gateway.session.client import Client
from shardmq.gateway.session.delivery_tags import DeliveryTags
from shardmq.gateway.session.groups.consumers import GroupConsumers
from shardmq.gateway.session.groups.subscription import Subscription
from shardmq.gateway.session.prefetch.channel import ChannelPrefetch
from shardmq.limits import DELIVERY_CREDIT_SHARE
from shardmq.message.record_batch import RecordBatch, cost
from shardmq.topology.arguments import CONSUMER_TIMEOUT, EXPIRES
from shardmq.topology.entities import Queue

NO_LIFE: Final = -1
"""The life of a link in which nothing was delivered."""


class ChannelConsumers(ChannelPrefetch):
    """The consuming half of a channel. The channel and its front call it; shard links deliver to it.

    Args:
        client: whose channel it is.
        number: of the channel.

    Attributes:
        tags: delivery tags of what consumers and gets hold.
        all_tags: these, and those of what an atomic commit to come settles.
        groups: its consumers that are members of groups; None where it never had one.
    """

    __slots__ = ("_getters", "_tags_made", "all_tags", "groups", "tags")

    def __init__(self, client: Client, number: int) -> None:
        super().__init__(client, number)
        self.tags: DeliveryTags[HeldDelivery] = DeliveryTags()
        self.all_tags: list[DeliveryTags[HeldDelivery]] = [self.tags]
        self._getters: dict[int, Consumer] = {}
        self.groups: GroupConsumers | None = None
        self._tags_made = 0

    def consume(
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
        reading: Reading | None = None,
        given: dict[str, Any] | None = None,
    ) -> None:
        """Start a consumer.

        Args:
            queue: it takes messages from.
            tag: its name on the channel; "" for one that is made here.
            auto_ack: whether messages are settled as they are delivered.
            prefetch: how many messages it may hold, 0 for no limit.
            reply: called with its tag, or with the error that refused it.
            priority: consumers of a higher one are served first.
            exclusive: whether the queue has no other consumer.
            timeout_ms: what is unacked so long after its delivery is requeued; 0 for the queue's own time.
            reading: what it reads of a stream; None for other queues.
            given: its arguments as they came, for events; None for none.

        Raises:
            NotAllowed: the channel has a consumer of that tag.
        """
        client = self.client
        tag = self._free_tag(tag)
        link = client.state.links[queue.shard]
        consumer = link.add_consumer(self, queue.id, tag)
        consumer.window = client.next_window
        consumer.overhead = client.front.delivery_bytes(tag)
        consumer.auto_ack, consumer.own_prefetch = auto_ack, prefetch
        consumer.settled_late = auto_ack and self._shared is not None
        consumer.prefetch = self._prefetch_of(consumer)
        consumer.priority, consumer.exclusive, consumer.timeout_ms = priority, exclusive, timeout_ms
        arguments = client.state.topology.policies.arguments(queue)
        consumer.times_out = timeout_ms > 0 or CONSUMER_TIMEOUT in arguments
        consumer.reading = reading
        self.by_tag[tag] = consumer
        client.consumer_started(self.number, queue.name, consumer, given or {})
        consumer.takes_replies = client.state.replies.add(queue, consumer, self)
        is_special = exclusive or queue.auto_delete or consumer.takes_replies or EXPIRES in arguments
        consumer.is_plain = not is_special and reading is None
        if link.start_unasked(consumer):
            reply(tag)
        else:
            self._ask_to_start(link, consumer, reply)

    def _free_tag(self, tag: str) -> str:
        """Return the tag asked for, or one that is made for ""."""
        if not tag:
            self._tags_made += 1
            tag = self.client.consumer_tag(self.number, self._tags_made)
        if self.has_tag(tag):
            raise NotAllowed(
                f"channel {self.number} has a consumer '{tag}' already; choose another tag or cancel that one"
            )
        return tag

    def has_tag(self, tag: str) -> bool:
        """Whether a consumer of that tag runs."""
        return tag in self.by_tag or (self.groups is not None and tag in self.groups.by_tag)

    def consume_group(self, subscription: Subscription, reply: Reply) -> None:
        """Start a consumer that is a member of a group; the outcome is its tag, or the error that refused it.

        Raises:
            NotAllowed: the channel has a consumer of that tag.
        """
        tag = self._free_tag(subscription.tag)
        if self.groups is None:
            self.groups = GroupConsumers(self)
        self.groups.start(subscription, tag, reply)

    def _ask_to_start(self, link: ShardLink, consumer: Consumer, reply: Reply) -> None:
        def started(outcome: Outcome) -> None:
            if isinstance(outcome, RequestError):
                self._forget(consumer)
            elif outcome is not None:
                consumer.read_on(outcome)
            self.client.state.replies.start(consumer)
            reply(outcome if isinstance(outcome, RequestError) else consumer.tag)

        link.start(consumer, started)

    def qos(self, tag: str, prefetch: int, reply: Reply) -> None:
        """Change a running consumer's prefetch.

        Raises:
            NotFound: the channel has no consumer of that tag.
        """
        if self.groups is not None and tag in self.groups.by_tag:
            self.groups.by_tag[tag].limit(prefetch)
            reply(None)
        else:
            super().qos(tag, prefetch, reply)

    def retune(self) -> None:
        """Apply the limits that were changed in this pass."""
        prefetch = self._prefetch_of_all
        super().retune()
        if prefetch is not None and self.groups is not None:
            self.groups.limit(prefetch)

    def cancel(self, tag: str, reply: Reply) -> None:
        """Stop a consumer; what it holds stays unacked. Cancelling what is not there is no error (RabbitMQ's rule)."""
        consumer = self.by_tag.pop(tag, None)
        if self.groups is not None and tag in self.groups.by_tag:
            self.groups.cancel(tag, reply)
            return
        if consumer is None:
            reply(None)
            return
        self.client.consumers_ended(self.number, (consumer,))
        if self._let_go(consumer):
            reply(None)
            return
        self._cancelled[consumer] = False
        self.client.state.replies.remove(consumer)

        def stopped(outcome: Outcome) -> None:
            if self.is_open:
                if self._shared is not None:
                    self._put_back(consumer, self._shared.drop(consumer))
                self._cancelled[consumer] = True
                self.after_settling()
            reply(outcome)

        consumer.link.cancel(consumer, stopped)

    def _let_go(self, consumer: Consumer) -> bool:
        """End a consumer whose client has settled all that it saw: what is on its way is put back by the shard.

        Returns:
            False where the shard is to be asked. What was published and acknowledged before has its effects before the
            end: only where the shard has carried out all of it, nothing is to come but what others published since.
            What a consumer without acknowledgements was sent is in no queue any more, and has to come, too.
        """
        is_idle = consumer.link.is_quiet and not consumer.unacked
        if consumer.auto_ack or not (consumer.is_plain and is_idle):
            return False
        consumer.link.release(consumer, is_unseen=True)
        if self._shared is not None:
            self._shared.drop(consumer)
            self._hand_on(self._shared)
        return True

    def get(self, queue_name: str, auto_ack: bool, reply: Reply) -> None:
        """Take one message of a queue; the result is None or (tag, Got).

        Raises:
            NotFound: no such queue.
            ResourceLocked: the queue is exclusive to another connection.
        """
        queue = self.client.queue(queue_name)
        link = self.client.state.links[queue.shard]
        consumer = self._getters.get(queue.id)
        if consumer is None:
            large_messages.forget_getters(self._getters)
            consumer = self._getters[queue.id] = link.add_consumer(self, queue.id, "")
            consumer.times_out = CONSUMER_TIMEOUT in self.client.state.topology.policies.arguments(queue)

        def got(outcome: Outcome) -> None:
            if isinstance(outcome, Got):
                if consumer.times_out and outcome.redelivered:
                    self._disown(consumer, outcome.first, 1)
                tag = self._hand_out(consumer, outcome.first, 1, auto_ack)
                self.tags.count_get(auto_ack, outcome.redelivered)
                self.trace(consumer, outcome.batch, outcome.redelivered)
                reply((tag, outcome))
            else:
                self.tags.gets_empty += outcome is None
                reply(outcome)

        large_messages.get(self, consumer, auto_ack, got)

    def deliver(self, consumer: Consumer, delivered: Delivered) -> None:
        """Number what a shard sent and pass it on."""
        if consumer.times_out and delivered.redelivered:
            self._disown(consumer, delivered.first, delivered.batch.count)
        if consumer.takes_replies:
            self.client.state.replies.arrived(consumer, delivered.batch)
        shared = self._shared
        if shared is None:
            self.pass_on(consumer, delivered)
        elif not shared.has_waiting and delivered.batch.count < shared.limit - self.unacked:
            self.pass_on(consumer, delivered)  # and there is room for more
        else:
            shared.put(consumer, delivered)
            self._hand_on(shared)

    def deliver_fresh(self, consumer: Consumer, first: int, batch: RecordBatch) -> None:
        """Number what a shard sent for the first time and pass it on: `deliver`, for what comes often."""
        shared, count = self._shared, batch.count
        has_room = shared is None or (not shared.has_waiting and count < shared.limit - self.unacked)
        is_special = (
            consumer.takes_replies or consumer.settled_late or consumer.borrowed or consumer.reading is not None
        )
        if is_special or not has_room or self.client.state.firehose is not None:
            self.deliver(consumer, Delivered(consumer.number, first, False, batch))
            return
        link = consumer.link
        if not consumer.auto_ack:
            consumer.hold(count)
        tag = self.tags.hand_out((consumer, link.life), first, count, outstanding=not consumer.auto_ack)
        front = self.client.front
        front.send_delivery(self.number, consumer.tag, tag, False, batch, 0)
        consumer.owed += cost(batch, consumer.overhead)
        if consumer.owed * DELIVERY_CREDIT_SHARE >= consumer.window and front.is_writable:
            link.taken(consumer)

    def take_forwarded(self, consumer: Consumer, first: int, batch: RecordBatch) -> bool:
        """Number messages that are on their way to the shard and pass them on, if all have room."""
        front = self.client.front
        is_special = consumer.takes_replies or consumer.settled_late or consumer.borrowed
        is_held_up = front.is_unread or not (front.is_writable and self.has_room_for(consumer, batch.count))
        is_over = front.is_closing or not self.is_open
        if is_special or is_held_up or is_over or self.client.state.firehose is not None:
            return False
        tag = self._hand_out(consumer, first, batch.count, consumer.auto_ack)
        front.send_delivery(self.number, consumer.tag, tag, False, batch, 0)
        return True

    def deliver_directly(self, consumer: Consumer, batch: RecordBatch) -> bool:
        """Number messages that come past the shard and pass them on; returns whether there is room for them now."""
        front = self.client.front
        if self._shared is not None or not front.is_writable or front.is_unread:
            return False
        tag = self._hand_out(consumer, 0, batch.count, auto_ack=True)
        front.send_delivery(self.number, consumer.tag, tag, False, batch, 0)
        return True

    def pass_on(self, consumer: Consumer, delivered: Delivered) -> None:
        """Number messages that a shard sent, and pass them on."""
        batch = delivered.batch
        tag = self._hand_out(consumer, delivered.first, batch.count, consumer.auto_ack)
        self.tags.redelivered += batch.count * delivered.redelivered
        client, front = self.client, self.client.front
        if client.state.firehose is not None:
            self.trace(consumer, batch, delivered.redelivered)
        if consumer.reading is None:
            front.send_delivery(self.number, consumer.tag, tag, delivered.redelivered, batch, delivered.deliveries)
        elif consumer.group is not None:
            front.send_partition(self.number, consumer.tag, tag, delivered, consumer.partition)
        else:
            consumer.read_on(delivered.first + batch.count)
            front.send_read(self.number, consumer.tag, tag, delivered.first, batch)
        if consumer.settled_late:
            consumer.link.settle(consumer, delivered.first, delivered.first + batch.count)
            client.state.changed()
        large_messages.count_sent(client, consumer, batch)
        if front.is_writable:
            consumer.link.taken(consumer)

    def wanted(self, consumer: Consumer, size: int) -> None:
        """Borrow room for a consumer's next message, which does not fit into its window."""
        large_messages.ask(self, consumer, size)

    def spent(self, consumer: Consumer, size: int, used: int) -> None:  # noqa: ARG002  (of any of its consumers)
        """Account for room that was lent for `size` bytes, of which so much was used."""
        self.client.account.arrived(size, used)

    def cancelled(self, consumer: Consumer, fault: RequestError | None) -> None:
        """Forget a consumer that gets nothing more, and tell the client, unless it has cancelled it before."""
        is_running = consumer not in self._cancelled
        self._forget(consumer)
        if self._getters.get(consumer.queue) is consumer:
            del self._getters[consumer.queue]
        if consumer.tag and is_running:
            self.client.front.send_cancelled(self.number, consumer.tag, fault)
        self.after_settling()

    def socket_has_room(self) -> None:
        """Give consumers credit: the client reads again."""
        for consumer in self.by_tag.values():
            consumer.link.taken(consumer)
        if self.groups is not None:
            self.groups.socket_has_room()

    def after_settling(self) -> None:
        """Follow up on deliveries that were settled.

        Consumers that were cancelled and hold nothing any more need not be known any longer, and what has waited may
        have room.
        """
        if self._cancelled:
            for consumer in [each for each, is_stopped in self._cancelled.items() if is_stopped and not each.unacked]:
                del self._cancelled[consumer]
                consumer.link.release(consumer)
        if self._shared is not None:
            self._hand_on(self._shared)
        if self.groups is not None:
            self.groups.after_settling()

    def close(self) -> None:
        """End all consumers: what they hold returns to its queues, and what has only waited as it was."""
        self.is_open = False
        for tags in self.all_tags:
            tags.clear()
        if self.groups is not None:
            self.groups.close()
        self._put_all_back()
        for consumer in [*self.by_tag.values(), *self._cancelled, *self._getters.values()]:
            self.client.state.replies.remove(consumer)
            consumer.link.release(consumer)
        self.client.consumers_ended(self.number, self.by_tag.values())
        self.by_tag.clear()
        self._getters.clear()
        self._cancelled.clear()

    def _forget(self, consumer: Consumer) -> None:
        if self.by_tag.get(consumer.tag) is consumer:
            del self.by_tag[consumer.tag]
            self.client.consumers_ended(self.number, (consumer,))
        self._cancelled.pop(consumer, None)
        self.client.state.replies.remove(consumer)
        consumer.link.release(consumer)
        if consumer.is_counted:
            consumer.is_counted = False
            self.unacked -= consumer.unacked
        if self._shared is not None:
            self._shared.drop(consumer)

    def _hand_out(self, consumer: Consumer, sequence: int, count: int, auto_ack: bool) -> int:
        if not auto_ack:
            consumer.hold(count)
        return self.tags.hand_out((consumer, consumer.link.life), sequence, count, outstanding=not auto_ack)

    def _disown(self, consumer: Consumer, start: int, count: int) -> None:
        """Take messages from their holder: they returned to their queue by themselves, and are delivered again.

        Acks and nacks under their old tags are ignored from now on. They would settle the new delivery, which has the
        same numbers.
        """
        if self._shared is not None:
            for late in self._shared.drop(consumer, start, start + count):
                large_messages.count_sent(self.client, consumer, late.batch)
        self.disown(consumer, start, start + count)

    def disown(self, consumer: Consumer, start: int, end: int) -> None:
        """Ignore what the client settles of messages [start, end) that it has."""
        held = consumer, consumer.link.life
        for tags in self.all_tags:
            consumer.hold(-tags.pass_on(held, start, end, (consumer, NO_LIFE)))
