"""A member of a shared group: it has all partitions, as all other members do."""

from functools import partial

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.bus.messages.shard import Delivered
from shardmq.errors import NotFound, RequestError
from shardmq.gateway.links.consumer import Consumer
from shardmq.gateway.links.requests import FOREVER
from shardmq.gateway.session.client import Client
from shardmq.gateway.session.groups.member import Member, MembersChannel, MembersOwner
from shardmq.gateway.session.groups.partition import MemberPartition
from shardmq.gateway.session.groups.subscription import Subscription


class SharedMember(Member):
    """A member of a shared group."""

    __slots__ = ("_early",)

    def __init__(
        self, client: Client, channel: MembersChannel, subscription: Subscription, tag: str, owner: MembersOwner
    ) -> None:
        super().__init__(client, channel, subscription, tag, owner)
        self._early: list[tuple[Consumer, int, Delivered]] | None = []  # came before all shards had answered

    def start(self, reply: Reply) -> None:
        """Consume from all partitions; the outcome is the consumer's tag, or the first error that refused one."""
        self.client.state.memberships.watch(self)
        waiting = set(self.topic_partitions)
        failure: RequestError | None = None

        def started(part: MemberPartition, outcome: Outcome) -> None:
            nonlocal failure
            waiting.discard(part.consumer.queue)
            if isinstance(outcome, RequestError):
                failure = failure or outcome
            self._started(part, outcome)
            if not waiting:
                answer()

        def answer() -> None:
            early, self._early = self._early or [], None
            if failure is not None and self.is_open:
                self.close()
                self._owner.forget(self)
            reply(failure if failure is not None else self.tag)
            for consumer, life, delivered in early:
                if life == consumer.link.life and consumer.queue in self.partitions:
                    self.deliver(consumer, delivered)

        if not waiting:
            failure = NotFound(f"no topic or stream '{self.subscription.topic}' in vhost '{self.client.vhost}'")
            answer()
        for part in [self.add(queue, number, 0) for number, queue in enumerate(self.topic_partitions)]:
            part.consumer.link.start(part.consumer, partial(started, part))

    def deliver(self, consumer: Consumer, delivered: Delivered) -> None:
        """Take messages of a partition; the client gets none before it knows that its consumer runs."""
        if self._early is not None:
            self._early.append((consumer, consumer.link.life, delivered))
        else:
            super().deliver(consumer, delivered)

    def resize(self) -> None:
        """Consume from partitions that the topic has got."""
        if self.is_ending:
            return
        for number, queue in enumerate(self.topic_partitions):
            if queue not in self.partitions:
                part = self.add(queue, number, 0)
                part.consumer.link.start(part.consumer, partial(self._resumed, part), FOREVER)

    def quit(self) -> None:
        """Leave the group: nothing is held any more."""
        self.client.state.memberships.forget(self)

    def gone(self, part: MemberPartition) -> None:
        """Note nothing: others have the partition, too."""

    def lost(self, part: MemberPartition, fault: RequestError | None) -> None:
        """Give up a partition whose queue is deleted. What is damaged ends the member, as it ends other consumers."""
        self.drop(part)
        if fault is not None or (not self.partitions and not self.is_ending):
            self.end(fault)
        else:
            self._advance()

    def _started(self, part: MemberPartition, outcome: Outcome) -> None:
        if isinstance(outcome, RequestError):
            part.consumer.running = False
        else:
            part.is_told = True

    def _resumed(self, part: MemberPartition, outcome: Outcome) -> None:
        self._started(part, outcome)
        if isinstance(outcome, RequestError) and self.has(part):
            self.lost(part, None if isinstance(outcome, NotFound) else outcome)
