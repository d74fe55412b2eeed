"""A member of an ordered group: it has the partitions that the coordinator assigns to it.

It hears of partitions that are assigned, and consumes from them under the epoch that comes with each. A partition that
is revoked it lets go of. One that a shard takes away has been given to another under a higher epoch, or is damaged: the
coordinator is told, and assigns it anew.
"""

import asyncio
from collections.abc import Collection, Sequence
from functools import partial

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.bus.messages.groups import InspectPartition, PartitionState
from shardmq.bus.messages.membership import GroupMember, Held
from shardmq.errors import NotFound, OffsetOutOfRange, PreconditionFailed, RequestError
from shardmq.gateway.links.requests import FOREVER
from shardmq.gateway.session.groups.member import Member
from shardmq.gateway.session.groups.partition import MemberPartition, retry_seconds


class OrderedMember(Member):
    """A member of an ordered group."""

    __slots__ = ()

    def join(self, reply: Reply) -> None:
        """Join the group; the outcome is the consumer's tag, or the error that refused it."""

        def joined(outcome: Outcome) -> None:
            if isinstance(outcome, RequestError) and self.is_open:
                self.close()
                self._owner.forget(self)
            reply(outcome if isinstance(outcome, RequestError) else self.tag)

        self.client.state.memberships.join(self, joined)

    def said(self) -> GroupMember:
        """What the coordinator is to know of it."""
        held = [part.held for part in self.partitions.values()]
        return GroupMember(self.client.vhost, self.subscription.topic, self.subscription.group, self.name, held)

    def assigned(self, held: Sequence[Held]) -> None:
        """Begin to consume from partitions."""
        if self.is_ending or not held:
            return  # what a member that leaves is assigned is free when it has left
        places = {queue: number for number, queue in enumerate(self.topic_partitions)}
        for queue, epoch in held:
            before = self.partitions.get(queue)
            if before is not None and before.epoch == epoch:
                continue
            if before is not None:
                self._take_away(before)
            if queue in places:
                self._begin(self.add(queue, places[queue], epoch))
            else:  # deleted meanwhile
                self.client.state.memberships.released(self, [(queue, epoch)])

    def revoked(self, queues: Sequence[int]) -> None:
        """Let go of partitions, once the client has settled what it holds of them."""
        there = [self.partitions[queue] for queue in queues if queue in self.partitions]
        parts = [part for part in there if not part.is_leaving]
        told = [part.number for part in parts if part.is_told]
        if told:
            answers = self.client.front.send_revoked(self.number, self.tag, told, is_lost=False)
            for part in parts:
                part.awaits_client = answers and part.is_told
        self.let_go(parts)

    def released(self, numbers: Collection[int]) -> None:
        """Let go of revoked partitions: the client says that it has done so."""
        named = set(numbers)
        for part in list(self.partitions.values()):
            if part.awaits_client and part.number in named:
                self.finish(part)

    def ended(self) -> None:
        """End: the topic is deleted."""
        self.end(None)

    def quit(self) -> None:
        """Leave the group: nothing is held any more."""
        self.client.state.memberships.leave(self)

    def gone(self, part: MemberPartition) -> None:
        """Tell the coordinator that others may have a partition."""
        self.client.state.memberships.released(self, [part.held])

    def lost(self, part: MemberPartition, fault: RequestError | None) -> None:  # noqa: ARG002  (any is met so)
        """Give up a partition that a shard has taken away, and have the coordinator assign it anew."""
        self._take_away(part)
        self.client.state.memberships.released(self, [part.held])
        self._advance()

    def _take_away(self, part: MemberPartition) -> None:
        self.drop(part)
        if part.is_told and not self.is_ending:
            self.client.front.send_revoked(self.number, self.tag, [part.number], is_lost=True)

    def _begin(self, part: MemberPartition) -> None:
        part.consumer.link.start(part.consumer, partial(self._started, part), FOREVER)

    def _started(self, part: MemberPartition, outcome: Outcome) -> None:
        if not self.has(part):
            return
        if isinstance(outcome, RequestError):
            part.consumer.running = False
            self._refused(part, outcome)
        elif not part.is_leaving:
            part.is_told = True
            self.client.front.send_assigned(self.number, self.tag, [(part.number, outcome)])

    def _refused(self, part: MemberPartition, error: RequestError) -> None:
        """Meet a shard's refusal: to wait, to give the partition up, or to end."""
        if part.is_leaving:
            self.finish(part)
        elif isinstance(error, NotFound):
            self.lost(part, None)
        elif isinstance(error, OffsetOutOfRange):
            self.end(error)
        elif isinstance(error, PreconditionFailed):
            question = InspectPartition(part.consumer.queue, self.subscription.group)
            part.consumer.link.ask(question, partial(self._looked, part, error), FOREVER)
        else:
            asyncio.get_running_loop().call_later(retry_seconds(part.retries), self._retry, part)
            part.retries += 1

    def _looked(self, part: MemberPartition, error: RequestError, outcome: Outcome) -> None:
        """End where the group is of another kind or has other settings; somebody with a higher epoch is no error."""
        if not self.has(part):
            return
        groups = outcome.groups if isinstance(outcome, PartitionState) else []
        if any(group.name == self.subscription.group and group.epoch > part.epoch for group in groups):
            self.lost(part, None)
        else:
            self.end(error)

    def _retry(self, part: MemberPartition) -> None:
        if self.has(part) and not part.is_leaving:
            self._beginning.come_late(part.consumer)
            self._begin(part)
