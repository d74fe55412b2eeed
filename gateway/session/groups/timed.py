"""A member of an ordered group that has a time to acknowledge: one that stands still leaves the group.

    in the group ──the oldest message it has stays so for its time──► out of it: others have its partitions
         ▲                                                                 │
         └───────────────── its client is heard to be at work ─────────────┘

What counts is how long a message has been the oldest of those that the client holds. Messages that wait behind it, as
most do of a large prefetch, cost a client that works nothing. Shards are told of no time: they would return each
message by itself, and to the same member.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Final

from shardmq.bus.coordinator_link import Outcome
from shardmq.bus.messages.membership import Held
from shardmq.bus.messages.shard import Delivered
from shardmq.errors import NotFound, RequestError, Unavailable
from shardmq.gateway.links.consumer import Consumer, HeldDelivery
from shardmq.gateway.session.client import Client
from shardmq.gateway.session.groups.channel import MembersChannel
from shardmq.gateway.session.groups.member import MembersOwner
from shardmq.gateway.session.groups.ordered import OrderedMember
from shardmq.gateway.session.groups.partition import RETRY_SECONDS, MemberPartition
from shardmq.gateway.session.groups.subscription import Subscription

LOOKS: Final = 4
"""A member that holds messages is looked at so often in its time: it leaves a quarter of the time too late at most.
Looks are counted, and not the time, as a gateway that stood still itself has not read what its clients said."""

LOOK_SECONDS_MIN: Final = 0.01
"""However short a member's time is: the gateway has other work."""

_log = logging.getLogger(__name__)


class TimedMember(OrderedMember):
    """A member of an ordered group that leaves it while its client acknowledges nothing for too long."""

    __slots__ = ("_is_looked_at", "_is_out", "_looks", "_oldest")

    def __init__(
        self, client: Client, channel: MembersChannel, subscription: Subscription, tag: str, owner: MembersOwner
    ) -> None:
        super().__init__(client, channel, subscription, tag, owner)
        self._is_out = False  # of the group
        self._is_looked_at = False  # in a while
        self._oldest = 0  # delivery tag of the oldest message, when it was looked at last
        self._looks = 0  # in a row, at which it was that

    def add(self, queue_id: int, number: int, epoch: int) -> MemberPartition:
        """Take in a partition; its shard is not asked for it yet."""
        part = super().add(queue_id, number, epoch)
        part.consumer.timeout_ms = 0
        return part

    def deliver(self, consumer: Consumer, delivered: Delivered) -> None:
        """Take messages of a partition."""
        super().deliver(consumer, delivered)
        if not self._is_looked_at:
            self._is_looked_at = True
            asyncio.get_running_loop().call_soon(self._look)

    def heard(self) -> None:
        """Begin the time anew: the client is at work. One that had left the group joins it again."""
        self._looks = -1
        if self._is_out and self.is_open and not self.is_ending:
            self._is_out = False
            self.quit()  # where a shard has not answered yet
            self.name = self.client.state.memberships.next_name(self.client.identity)
            self._join_again()

    def assigned(self, held: Sequence[Held]) -> None:
        """Begin to consume from partitions; what one that leaves is assigned is free when it has left."""
        if not self._is_out:
            super().assigned(held)

    def released(self, numbers: Collection[int]) -> None:
        """Let go of revoked partitions, or know that the program has heard of those that it has lost."""
        super().released(numbers)
        if self._is_out:
            self.heard()

    def gone(self, part: MemberPartition) -> None:
        """Tell the coordinator that others may have a partition, or all of them."""
        if not self._is_out:
            super().gone(part)
        elif not self._reaching:
            self.quit()

    def _look(self) -> None:
        """See whether the client still has the same oldest message; it is looked at again while it has one."""
        self._is_looked_at = False
        found = self._find_oldest() if self.is_open and not self.is_ending else None
        if found is None:
            return
        tag, (consumer, _), sequence = found
        if tag != self._oldest:
            self._oldest, self._looks = tag, 0
        else:
            self._looks += 1
        if self._looks >= LOOKS:
            self._stand_out(consumer, sequence)
            return
        self._is_looked_at = True
        seconds = max(self.subscription.timeout_ms / 1000 / LOOKS, LOOK_SECONDS_MIN)
        asyncio.get_running_loop().call_later(seconds, self._look)

    def _find_oldest(self) -> tuple[int, HeldDelivery, int] | None:
        found = [tags.oldest(self._has_from) for tags in self._channel.all_tags]
        return min([each for each in found if each is not None], key=lambda each: each[0], default=None)

    def _has_from(self, holder: HeldDelivery) -> bool:
        """Whether what stands behind a delivery tag is a message that this member can still settle."""
        consumer, life = holder
        return consumer.receiver is self and life == consumer.link.life

    def _stand_out(self, consumer: Consumer, sequence: int) -> None:
        """Leave the group until the client is at work again.

        The message at which it stands counts as delivered in vain, so that a delivery limit ends what nobody gets
        done. The others do not: nobody has looked at them. The coordinator hears of it when all shards have.
        """
        subscription, parts = self.subscription, list(self.partitions.values())
        _log.warning(
            "member %s of group %r of topic %r in vhost %r has not acknowledged its oldest message for %d ms: others "
            "get its partitions until its program goes on",
            self.name,
            subscription.group,
            subscription.topic,
            self.client.vhost,
            subscription.timeout_ms,
        )
        self._is_out = True
        consumer.link.nack(consumer, sequence, sequence + 1, requeue=True)
        told = [part.number for part in parts if part.is_told]
        self._reaching += 1  # until all have been let go of
        for part in parts:
            self.finish(part)
        self._reaching -= 1
        if not self._reaching:
            self.quit()
        if told:
            self.client.front.send_revoked(self.number, self.tag, told, is_lost=True)
        self.client.state.changed()

    def _join_again(self) -> None:
        """Join the group, as soon as the coordinator is there; end where the topic is not."""

        def joined(outcome: Outcome) -> None:
            if not isinstance(outcome, RequestError) or not self.is_open or self.is_ending:
                return
            if isinstance(outcome, Unavailable):
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self._try_again)
            else:
                self.end(None if isinstance(outcome, NotFound) else outcome)

        self.client.state.memberships.join(self, joined)

    def _try_again(self) -> None:
        if self.is_open and not self.is_ending:
            self._join_again()
