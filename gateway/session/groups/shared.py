"""A member of a shared group: it has all partitions, as all other members do, and splits its prefetch over them.

A partition that is out of service, or whose group is out of service there, it has again when its shard can serve it.
Until then it goes on with the others.
"""

import asyncio
import zlib
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import ClassVar

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.bus.messages.shard import Delivered, Qos
from shardmq.errors import NotFound, ReplyCode, RequestError
from shardmq.gateway.links.consumer import Consumer
from shardmq.gateway.links.requests import FOREVER
from shardmq.gateway.session.client import Client
from shardmq.gateway.session.groups.channel import MembersChannel
from shardmq.gateway.session.groups.member import Member, MembersOwner
from shardmq.gateway.session.groups.partition import MemberPartition, retry_seconds
from shardmq.gateway.session.groups.permits import PERMITS_MAX, ROTATE_SECONDS, Permits, even_share
from shardmq.gateway.session.groups.subscription import Subscription
from shardmq.gateway.session.groups.unproven import SharedConsumer
from shardmq.gateway.session.prefetch.limits import PAUSED


class SharedMember(Member):
    """A member of a shared group.

    Attributes:
        has_lost_acks: whether acks had no effect in a partition that it does not have any more.
    """

    __slots__ = ("_early", "_is_looked_at", "_is_rotated", "_permits", "_retries", "_turn", "has_lost_acks")
    consumer_kind: ClassVar[type[Consumer]] = SharedConsumer

    def __init__(
        self, client: Client, channel: MembersChannel, subscription: Subscription, tag: str, owner: MembersOwner
    ) -> None:
        super().__init__(client, channel, subscription, tag, owner)
        self.has_lost_acks = False
        self._retries: dict[int, int] = {}  # by queue: how often partitions were tried again that it does not have yet
        self._early: list[tuple[Consumer, int, Delivered]] | None = []  # came before all shards had answered
        self._permits: Permits[Consumer] | None = None  # where there is a prefetch, and there may be several partitions
        self._is_looked_at = self._is_rotated = False  # in a while
        self._turn = zlib.crc32(self.name.encode())

    def join(self, reply: Reply) -> None:
        """Consume from all partitions; the outcome is the consumer's tag, or the error that refused it."""
        self.client.state.memberships.watch(self)
        waiting = set(self.topic_partitions)
        refused: dict[MemberPartition, RequestError] = {}

        def started(part: MemberPartition, outcome: Outcome) -> None:
            waiting.discard(part.consumer.queue)
            if isinstance(outcome, RequestError):
                refused[part] = outcome
            self._started(part, outcome)
            if not waiting:
                self._joined(refused, reply)

        if not waiting:
            self.close()
            self._owner.forget(self)
            reply(NotFound(f"no topic or stream '{self.subscription.topic}' in vhost '{self.client.vhost}'"))
            return
        for part in [self.add(queue, number, 0) for number, queue in enumerate(self.topic_partitions)]:
            part.consumer.link.start(part.consumer, partial(started, part))

    def _joined(self, refused: dict[MemberPartition, RequestError], reply: Reply) -> None:
        """Tell the client whether it has joined, as all shards have answered, and hand out what came before that."""
        early, self._early = self._early or [], None
        failure = next((error for error in refused.values() if not _is_passing(error)), None)
        if failure is None and refused.keys() >= set(self.partitions.values()):
            failure = next(iter(refused.values()), None)  # nothing is left to consume from
        if failure is not None and self.is_open:
            self.close()
            self._owner.forget(self)
        reply(failure if failure is not None else self.tag)
        for part, error in refused.items():
            if self.has(part):
                self.lost(part, error)
        for consumer, life, delivered in early:
            if life == consumer.link.life and consumer.queue in self.partitions:
                self.deliver(consumer, delivered)
        self._look_later()

    def deliver(self, consumer: Consumer, delivered: Delivered) -> None:
        """Take messages of a partition; the client gets none before it knows that its consumer runs."""
        if self._early is not None:
            self._early.append((consumer, consumer.link.life, delivered))
        else:
            if self._permits is not None:
                self._permits.delivered(consumer)
            super().deliver(consumer, delivered)

    def starved(self, consumer: Consumer) -> None:
        """Find a permit for a partition whose shard has messages beyond those it has, or decline."""
        if self._permits is None or self.is_ending:
            super().starved(consumer)
        elif self._early is not None:
            self._permits.hear(consumer)
        else:
            self._permits.want(consumer)
            self._look_later()

    def after_settling(self) -> None:
        """Hand out what has waited, let go of partitions, and move permits that are free."""
        super().after_settling()
        if self._permits is not None:
            self._permits.settled()
            self._look_later()

    def consumers_of(self, queues: Collection[int]) -> Iterable[SharedConsumer]:
        """Return the consumers of those of these partitions that it has."""
        for queue in queues:
            part = self.partitions.get(queue)
            if part is not None:
                assert isinstance(part.consumer, SharedConsumer), "its partitions have no others"
                yield part.consumer

    def drop(self, part: MemberPartition) -> None:
        """Forget a partition: acks of what the client has of it are ignored."""
        super().drop(part)
        if self._permits is not None:
            self._permits.remove(part.consumer)

    def resize(self) -> None:
        """Consume from partitions that the topic has got."""
        if self.is_ending:
            return
        for number, queue in enumerate(self.topic_partitions):
            if queue not in self.partitions and queue not in self._retries:
                self._begin(self.add(queue, number, 0))

    def quit(self) -> None:
        """Leave the group: nothing is held any more."""
        self.client.state.memberships.forget(self)

    def gone(self, part: MemberPartition) -> None:
        """Note nothing: others have the partition, too."""

    def lost(self, part: MemberPartition, fault: RequestError | None) -> None:
        """Give up a partition that a shard has taken away: for good, or until it can be served again.

        The member ends with its last partition, and where it is refused for another reason.
        """
        consumer = part.consumer
        self.has_lost_acks |= fault is not None and (consumer.acks_lost or consumer.acked_in is not None)
        self.drop(part)
        if fault is None:
            self._retries.pop(consumer.queue, None)
            is_over = not (self.partitions or self._retries or self.is_ending)
        else:
            is_over = not (_is_passing(fault) and (self.partitions or self.is_ending))
        if is_over:
            self.end(fault)
            return
        if fault is not None:
            self._try_later(consumer.queue)
        self._advance()

    def _try_later(self, queue: int) -> None:
        """Try in a while whether a partition can be served again."""
        retries = self._retries.get(queue, 0)
        self._retries[queue] = retries + 1
        asyncio.get_running_loop().call_later(retry_seconds(retries), self._try_again, queue)

    def _try_again(self, queue: int) -> None:
        if not self.is_open or self.is_ending:
            return
        queues = self.topic_partitions
        if queue in queues:
            part = self.add(queue, queues.index(queue), 0)
            self._beginning.come_late(part.consumer)
            self._begin(part)
            return
        del self._retries[queue]
        if not (self.partitions or self._retries):
            self.end(None)  # its topic was deleted

    def _begin(self, part: MemberPartition) -> None:
        part.consumer.link.start(part.consumer, partial(self._resumed, part), FOREVER)

    def _started(self, part: MemberPartition, outcome: Outcome) -> None:
        if isinstance(outcome, RequestError):
            part.consumer.running = False
        else:
            part.is_told = True

    def _resumed(self, part: MemberPartition, outcome: Outcome) -> None:
        self._started(part, outcome)
        if not isinstance(outcome, RequestError):
            self._retries.pop(part.consumer.queue, None)
        elif self.has(part):
            self.lost(part, None if isinstance(outcome, NotFound) else outcome)

    @property
    def may_pause(self) -> bool:
        """Whether others would get what this member has no room for: where its permits do not see to that."""
        return self._permits is None

    def _share(self) -> None:
        super()._share()
        self._split()

    def _split(self) -> None:
        """Give each partition its permits, where there are to be some."""
        if self._shared is None or self._shared.limit > PERMITS_MAX:
            self._permits = None
        elif self._permits is None:
            self._permits = Permits(self.prefetch, self._turn, self._tell, self._decline)
            for part in self.partitions.values():
                self._permits.add(part.consumer, self.prefetch)

    def _prefetch_of(self, consumer: Consumer) -> int:
        """Return what a partition's shard is to know as the prefetch: its permits."""
        permits = self._permits
        if permits is None:
            return super()._prefetch_of(consumer)
        count = permits.count(consumer)
        if count is None:
            partitions = len(self.topic_partitions)
            place = (consumer.partition + self._turn) % partitions
            permits.add(consumer, even_share(self.prefetch, partitions, place))
            count = permits.count(consumer)
        return count or PAUSED

    def _tell_limits(self) -> None:
        """Tell shards of the prefetch, where that was changed."""
        self._split()
        if self._permits is not None:
            self._permits.limit(self.prefetch)
        super()._tell_limits()

    def _tell(self, consumer: Consumer, count: int, answered: Callable[[], None]) -> None:
        consumer.prefetch = count or PAUSED
        consumer.link.ask(Qos(consumer.number, consumer.prefetch), lambda _: answered())

    def _decline(self, consumer: Consumer) -> None:
        consumer.link.decline(consumer)

    def _look_later(self) -> None:
        """Look in a while who uses its permits, where others want some."""
        permits = self._permits
        if permits is None or not permits.is_wanted:
            return
        if not self._is_looked_at and permits.is_idle:  # to ask for the loop is a system call, and so not done before
            self._is_looked_at = True
            permits.rest()
            asyncio.get_running_loop().call_later(permits.idle_seconds, self._look)
        if not self._is_rotated:
            self._is_rotated = True
            asyncio.get_running_loop().call_later(ROTATE_SECONDS, self._rotate)

    def _look(self) -> None:
        self._is_looked_at = False
        if self._permits is not None and self.is_open:
            self._permits.look()
            self._look_later()

    def _rotate(self) -> None:
        self._is_rotated = False
        if self._permits is not None and self.is_open:
            self._permits.rotate()
            self._look_later()


def _is_passing(error: RequestError) -> bool:
    """Whether a partition may be served later that was refused so: it is out of service, or its shard is away."""
    return error.code == ReplyCode.RESOURCE_ERROR
