"""The members of a group, in turn; those of a shared one are asked to take more where messages wait.

Each member has a prefetch over all partitions of its topic, which its gateway splits. So one that has used up its part
here may have more of it lying idle elsewhere.
"""

from shardmq.bus.messages.groups import Starved
from shardmq.shards.consumers.consumer import Consumer
from shardmq.shards.consumers.round_robin import RoundRobin
from shardmq.shards.consumers.serving import Source


class MemberTurns(RoundRobin):
    """The consumers of a group.

    Args:
        source: its deliveries.
        is_shared: whether there may be several.
    """

    __slots__ = ("_unasked", "is_shared")

    def __init__(self, source: Source, is_shared: bool) -> None:
        super().__init__(source)
        self.is_shared = is_shared
        self._unasked: dict[Consumer, None] = {}  # those with a prefetch that were not told of messages beyond it

    def join(self, consumer: Consumer) -> None:
        """Add a consumer, last in turn."""
        super().join(consumer)
        self.retuned(consumer)

    def leave(self, consumer: Consumer) -> None:
        """Remove a consumer, if it is there."""
        super().leave(consumer)
        self._unasked.pop(consumer, None)

    def retuned(self, consumer: Consumer) -> None:
        """Note that a consumer's prefetch was changed: it may be asked again."""
        if self.is_shared and consumer.prefetch and consumer.is_active:
            self._unasked[consumer] = None
        else:
            self._unasked.pop(consumer, None)

    def deliver(self) -> None:
        """Hand out what is ready to those with credit; then ask as many others as messages are left."""
        super().deliver()
        if not self._unasked or (ready := self._source.ready) <= 0:
            return
        starved: list[Consumer] = []
        for consumer in self._unasked:
            if consumer.held.count >= consumer.prefetch:
                starved.append(consumer)
                if len(starved) >= ready:
                    break
        for consumer in starved:
            del self._unasked[consumer]
            consumer.peer.post(Starved(consumer.number))
