"""Acks of members of shared groups of which nobody knows yet whether they are on disk.

A shared group's offset does not tell whether an ack had an effect. So it is noted in which life of its shard's link
the first ack of a partition was sent: if that life is not over when the shard has answered, all of them had.
"""

from collections.abc import Collection, Iterable
from typing import Final, Protocol

from shardmq.gateway.links.consumer import Consumer

LOST: Final = -1
"""The life of a link in which acks were sent that had no effect: no link has it."""


class SharedConsumer(Consumer):
    """The consumer of a partition, of a member of a shared group."""

    __slots__ = ()

    def hold(self, count: int) -> None:
        """Count messages, and note that some were settled."""
        if count < 0 and self.acked_in is None:
            self.acked_in = self.link.life
        super().hold(count)

    def take_acked_in(self) -> int | None:
        """Take the life in which the first ack was sent that is not known to be on disk; None where there is none."""
        life = LOST if self.acks_lost else self.acked_in
        self.acked_in, self.acks_lost = None, False
        return life


class Acknowledging(Protocol):
    """A member of a shared group.

    Attributes:
        has_lost_acks: whether acks had no effect in a partition that it does not have any more.
    """

    has_lost_acks: bool

    def consumers_of(self, queues: Collection[int]) -> Iterable[SharedConsumer]:
        """The consumers of those of these partitions that it has."""


class UnprovenAcks:
    """Acks that answers of shards are to prove. They are taken from their members, and put back where that fails.

    Args:
        members: those of a channel in one group.
        queues: ids of the partitions that are asked about.
    """

    __slots__ = ("_deprived", "_taken")

    def __init__(self, members: Collection[Acknowledging], queues: Collection[int]) -> None:
        found = [consumer for member in members for consumer in member.consumers_of(queues)]
        lives = [(consumer, consumer.take_acked_in()) for consumer in found]
        self._taken = [(consumer, life) for consumer, life in lives if life is not None]
        self._deprived = [member for member in members if member.has_lost_acks]
        for member in self._deprived:
            member.has_lost_acks = False

    @property
    def queues(self) -> set[int]:
        """The partitions with acks that may be on disk: nobody else's answer is needed."""
        return {consumer.queue for consumer, life in self._taken if life == consumer.link.life}

    @property
    def are_lost(self) -> bool:
        """Whether some had no effect."""
        return bool(self._deprived) or any(life != consumer.link.life for consumer, life in self._taken)

    def put_back(self) -> None:
        """Note that nothing is proven: they are asked about again."""
        for consumer, life in self._taken:
            consumer.acked_in = life
        for member in self._deprived:
            member.has_lost_acks = True
