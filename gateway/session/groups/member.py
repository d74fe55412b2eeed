"""A member of a group: its partitions, what they deliver and may hold together, leaving.

Its shards deliver to it as to other consumers, and an ack is the group's commit. What it has of a partition that it
lets go of is settled first, as far as the client does so in time. Then the shard has it again, and acks of it are
ignored.
"""

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from typing import ClassVar, Final, Protocol

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.bus.messages.shard import Delivered
from shardmq.errors import RequestError
from shardmq.gateway.links.consumer import Consumer
from shardmq.gateway.session import large_messages
from shardmq.gateway.session.client import Client
from shardmq.gateway.session.groups.beginning import Beginning
from shardmq.gateway.session.groups.channel import MembersChannel
from shardmq.gateway.session.groups.partition import MemberPartition
from shardmq.gateway.session.groups.subscription import Subscription
from shardmq.gateway.session.prefetch.limits import PrefetchLimits
from shardmq.gateway.session.prefetch.waiting import SharedPrefetch
from shardmq.message.record_batch import RecordBatch
from shardmq.topology.partitions import partitions_of

RELEASE_SECONDS: Final = 30.0
"""A client has so long to settle what it holds of a partition that it is to let go of, and to say that it has."""

EVERYTHING: Final = 1 << 63
"""Above every offset."""


class MembersOwner(Protocol):
    """Knows the members of a channel.

    Attributes:
        settling: members some of whose messages were settled since they last followed up on it.
    """

    settling: dict["Member", None]

    def forget(self, member: "Member") -> None:
        """Forget a member that is gone."""


class Member(PrefetchLimits):
    """A client's consumer of a group.

    Args:
        client: whose it is.
        channel: that it is on.
        subscription: what the client asks for.
        tag: its name on the channel.
        owner: knows it, until it is gone.

    Attributes:
        name: of the member, in the whole broker.
        partitions: those that it has, by id of the queue.
        is_ending: whether it is leaving the group.
        consumer_kind: of the consumers of its partitions.
    """

    consumer_kind: ClassVar[type[Consumer]] = Consumer

    __slots__ = (
        "_beginning",
        "_channel",
        "_leaving",
        "_owner",
        "_reaching",
        "_stopped",
        "_timers",
        "_unacked",
        "is_ending",
        "name",
        "partitions",
        "prefetch",
        "subscription",
        "tag",
    )

    def __init__(
        self,
        client: Client,
        channel: MembersChannel,
        subscription: Subscription,
        tag: str,
        owner: MembersOwner,
    ) -> None:
        self._owner = owner
        self._unacked = 0
        super().__init__(client, channel.number)
        self.subscription = subscription
        self.tag = tag
        self.prefetch = subscription.prefetch
        self.name = client.state.memberships.next_name(client.identity)
        self.partitions: dict[int, MemberPartition] = {}
        self.is_ending = False
        self._beginning = Beginning(client, subscription)
        self._channel = channel
        self._stopped: Reply | None = None  # to be told when nothing more is delivered
        self._reaching = 0  # partitions whose shards are still to take what was settled
        self._leaving: dict[MemberPartition, None] = {}
        self._timers: list[asyncio.TimerHandle] = []

    @property
    def unacked(self) -> int:
        """Messages that it holds, of all partitions together."""
        return self._unacked

    @unacked.setter
    def unacked(self, count: int) -> None:
        if count < self._unacked:
            self._owner.settling[self] = None
        self._unacked = count

    def start(self, reply: Reply) -> None:
        """Begin; the outcome is the consumer's tag, or the error that refused it."""

        def looked(refusal: RequestError | None) -> None:
            if refusal is None and self.is_open:
                self.join(reply)
                return
            if self.is_open:
                self.close()
                self._owner.forget(self)
            reply(self.tag if refusal is None else refusal)

        self._beginning.look(self.topic_partitions, looked)

    def join(self, reply: Reply) -> None:
        """Join the group; the outcome is the consumer's tag, or the error that refused it."""
        raise NotImplementedError

    def quit(self) -> None:
        """Leave the group: nothing is held any more."""
        raise NotImplementedError

    def gone(self, part: MemberPartition) -> None:
        """Note that a partition is the member's no longer, and that its shard has heard of that."""
        raise NotImplementedError

    def lost(self, part: MemberPartition, fault: RequestError | None) -> None:
        """Give up a partition that a shard has taken away: where there is no fault, as its queue is deleted."""
        raise NotImplementedError

    @property
    def limited(self) -> Collection[Consumer]:
        """The consumers of its partitions."""
        return [part.consumer for part in self.partitions.values() if not part.is_leaving]

    @property
    def may_pause(self) -> bool:
        """Whether others would get what this member has no room for: not those of an ordered group."""
        return False

    @property
    def gives_back(self) -> bool:
        """What waits for a member stays where it is, at its place in its partition."""
        return False

    @property
    def topic_partitions(self) -> Sequence[int]:
        """The ids of all queues of its topic, in order."""
        return partitions_of(self.client.state.topology, self.client.vhost, self.subscription.topic) or ()

    def epoch_of(self, number: int) -> int | None:
        """Under which epoch it has a partition; None where it does not."""
        return next((part.epoch for part in self.partitions.values() if part.number == number), None)

    def leave(self, reply: Reply) -> None:
        """Stop deliveries, and leave the group when the client has settled what it holds.

        The outcome is None, once nothing more is delivered.
        """
        self.is_ending, self._stopped = True, reply
        parts = list(self.partitions.values())
        for part in parts:
            part.awaits_client = False
        self.let_go([part for part in parts if not part.is_leaving])
        self._advance()

    def close(self) -> None:
        """Leave the group at once: the channel is closed."""
        self.is_open = False
        self._shared = None  # what has waited goes with its partition
        for part in list(self.partitions.values()):
            self.drop(part)
        self.quit()

    def end(self, fault: RequestError | None) -> None:
        """End by itself, and tell the client: its topic is deleted where there is no fault."""
        if not self.is_ending:
            self.client.front.send_cancelled(self.number, self.tag, fault)
        self.close()
        self._reply_stopped()
        self._owner.forget(self)

    def limit(self, prefetch: int) -> None:
        """Change what the member may hold, of all partitions together; 0 is no limit."""
        self.prefetch = prefetch
        for part in self.partitions.values():
            part.consumer.own_prefetch = prefetch
        before = self._shared
        if before is not None and prefetch:
            before.limit = prefetch
        elif before is not None:
            self._shared = None
            self._hand_on(before)
        else:
            self._share()
        self._retune_later()

    def deliver_fresh(self, consumer: Consumer, first: int, batch: RecordBatch) -> None:
        """Take messages of a partition that nobody was delivered before."""
        self.deliver(consumer, Delivered(consumer.number, first, False, batch))

    def take_forwarded(self, consumer: Consumer, first: int, batch: RecordBatch) -> bool:  # noqa: ARG002
        """Take nothing: a member reads from its partitions' shards."""
        return False

    def deliver(self, consumer: Consumer, delivered: Delivered) -> None:
        """Take messages of a partition."""
        part = self.partitions[consumer.queue]
        if part.is_leaving and not part.is_told:
            return  # the client never had it; the shard keeps them
        end = delivered.first + delivered.batch.count
        if part.life != consumer.link.life:
            part.life, part.next = consumer.link.life, delivered.first
        if delivered.first < part.next:
            self._take_back(consumer, delivered.first, end)  # they have returned, and come again
        part.next = max(part.next, end)
        shared = self._shared
        if shared is None:
            self._channel.pass_on(consumer, delivered)
            return
        left = shared.limit - self._unacked - delivered.batch.count
        if not shared.has_waiting and (left > 0 or (left == 0 and not self.may_pause)):
            self._channel.pass_on(consumer, delivered)  # and nothing follows from there being no more room
        else:
            shared.put(consumer, delivered)
            self._hand_on(shared)

    def cancelled(self, consumer: Consumer, fault: RequestError | None) -> None:
        """Give up a partition whose consumer gets nothing more."""
        part = self.partitions.get(consumer.queue)
        if part is None or part.consumer is not consumer:
            consumer.link.release(consumer)
        else:
            self.lost(part, fault)

    def wanted(self, consumer: Consumer, size: int) -> None:
        """Borrow room for a partition's next message, which does not fit into its window."""
        large_messages.ask(self, consumer, size)

    def spent(self, consumer: Consumer, size: int, used: int) -> None:  # noqa: ARG002  (of any partition)
        """Account for room that was lent for `size` bytes, of which so much was used."""
        self.client.account.arrived(size, used)

    def socket_has_room(self) -> None:
        """Give the partitions credit: the client reads again."""
        for part in self.partitions.values():
            part.consumer.link.taken(part.consumer)

    def after_settling(self) -> None:
        """Hand out what has waited, and let go of partitions of which all is settled."""
        if self._shared is not None:
            self._hand_on(self._shared)
        if self._leaving:
            for part in [part for part in self._leaving if part.may_go]:
                self.finish(part)

    def add(self, queue_id: int, number: int, epoch: int) -> MemberPartition:
        """Take in a partition; its shard is not asked for it yet."""
        client, subscription = self.client, self.subscription
        queue = client.state.topology.queue_by_id(queue_id)
        assert queue is not None, "partitions are taken from the topology"
        consumer = client.state.links[queue.shard].add_consumer(self, queue_id, self.tag, self.consumer_kind)
        client.partitions += 1
        consumer.window = client.next_window
        consumer.overhead = client.front.delivery_bytes(self.tag)
        consumer.auto_ack = subscription.auto_ack
        consumer.own_prefetch = self.prefetch
        consumer.partition = number
        if self._shared is None:
            self._share()
        consumer.prefetch = self._prefetch_of(consumer)
        consumer.timeout_ms = subscription.timeout_ms
        consumer.reading = subscription.reading
        beginning = self._beginning
        reading = beginning.reading(queue_id, number)
        consumer.group = subscription.as_member(self.name, epoch, reading, beginning.partitions)
        part = self.partitions[queue_id] = MemberPartition(number, epoch, consumer)
        return part

    def _share(self) -> None:
        """Limit what all partitions deliver together, where there may be several; the shard of one knows its limit."""
        if self.prefetch and not self.subscription.auto_ack and len(self.topic_partitions) > 1:
            self._shared = SharedPrefetch(self.prefetch)

    def has(self, part: MemberPartition) -> bool:
        """Whether a partition is still the member's."""
        return self.partitions.get(part.consumer.queue) is part

    def let_go(self, parts: Sequence[MemberPartition]) -> None:
        """Stop deliveries of partitions, and let go of each when all of it is settled, or its time is over."""
        for part in parts:
            part.is_leaving = True
            self._leaving[part] = None
        if parts:
            self._timers.append(asyncio.get_running_loop().call_later(RELEASE_SECONDS, self._overdue, parts))
        for part in parts:
            part.consumer.link.cancel(part.consumer, partial(self._on_stopped, part))

    def finish(self, part: MemberPartition) -> None:
        """Let go of a partition: what is not settled is the shard's again."""
        queue = self.client.state.topology.queue_by_id(part.consumer.queue)
        self.drop(part)
        self._reaching += 1

        def reached() -> None:
            self._reaching -= 1
            if self.is_open:
                self.gone(part)
                self._advance()

        if queue is None:
            reached()
        else:
            self.client.reach(queue, reached)

    def drop(self, part: MemberPartition) -> None:
        """Forget a partition: acks of what the client has of it are ignored."""
        consumer = part.consumer
        del self.partitions[consumer.queue]
        self.client.partitions -= 1
        self._leaving.pop(part, None)
        if not self._leaving:
            for timer in self._timers:
                timer.cancel()
            self._timers.clear()
        if self._shared is not None:
            self._shared.drop(consumer)
        if consumer.unacked:
            self._channel.disown(consumer, 0, EVERYTHING)
        consumer.link.release(consumer)
        if self._shared is not None:
            self._hand_on(self._shared)  # what it held has made room, and the client may have nothing to settle

    def pass_on(self, consumer: Consumer, delivered: Delivered) -> None:
        """Number messages that a shard sent, and pass them on."""
        self._channel.pass_on(consumer, delivered)

    def _take_back(self, consumer: Consumer, start: int, end: int) -> None:
        if self._shared is not None:
            for late in self._shared.drop(consumer, start, end):
                large_messages.count_sent(self.client, consumer, late.batch)
        self._channel.disown(consumer, start, end)

    def _on_stopped(self, part: MemberPartition, _outcome: Outcome) -> None:
        if not self.has(part):
            return
        part.is_stopped = True
        if self._shared is not None:
            self._shared.drop(part.consumer)
        if part.may_go:
            self.finish(part)
        self._advance()

    def _overdue(self, parts: Sequence[MemberPartition]) -> None:
        for part in parts:
            if self.has(part):
                self.finish(part)

    def _advance(self) -> None:
        """Go on with leaving the group, as far as that is possible now."""
        if not (self.is_ending and self.is_open):
            return
        if all(part.is_stopped for part in self.partitions.values()):
            self._reply_stopped()
        if not self.partitions and not self._reaching:
            self.close()
            self._owner.forget(self)

    def _reply_stopped(self) -> None:
        reply, self._stopped = self._stopped, None
        if reply is not None:
            reply(None)
