"""What the consumers of a channel may hold."""

from collections.abc import Collection

from shardmq.bus.coordinator_link import Reply
from shardmq.bus.messages.shard import Qos
from shardmq.errors import NotFound
from shardmq.gateway.links.consumer import Consumer
from shardmq.gateway.session.client import Client
from shardmq.gateway.session.prefetch.limits import PrefetchLimits
from shardmq.gateway.session.prefetch.waiting import SharedPrefetch


class ChannelPrefetch(PrefetchLimits):
    """How much a channel's consumers may hold.

    Args:
        client: whose channel it is.
        number: of the channel.

    Attributes:
        by_tag: consumers that run.
    """

    __slots__ = ("_cancelled", "_prefetch_of_all", "by_tag")

    def __init__(self, client: Client, number: int) -> None:
        super().__init__(client, number)
        self.by_tag: dict[str, Consumer] = {}
        self._cancelled: dict[Consumer, bool] = {}  # may hold messages; whether their shards have heard
        self._prefetch_of_all: int | None = None  # that running consumers are to have from the end of this pass on

    @property
    def limited(self) -> Collection[Consumer]:
        """The consumers that run."""
        return self.by_tag.values()

    @property
    def may_pause(self) -> bool:
        """Whether there are several: one consumer's shard knows its limit."""
        return len(self.by_tag) + len(self._cancelled) > 1

    @property
    def gives_back(self) -> bool:
        """Other consumers of the queues may have room."""
        return True

    def qos(self, tag: str, prefetch: int, reply: Reply) -> None:
        """Change a running consumer's prefetch.

        Raises:
            NotFound: the channel has no consumer of that tag.
        """
        consumer = self.by_tag.get(tag)
        if consumer is None:
            raise NotFound(f"channel {self.number} has no consumer '{tag}'")
        consumer.own_prefetch = prefetch
        consumer.prefetch = self._prefetch_of(consumer)
        consumer.link.ask(Qos(consumer.number, consumer.prefetch), reply)

    def qos_of_all(self, prefetch: int) -> None:
        """Change the prefetch of all running consumers; their shards follow in their time."""
        self._prefetch_of_all = prefetch
        self._retune_later()

    def share(self, prefetch: int) -> None:
        """Limit what all consumers hold together, beside what each may; 0 for no such limit.

        Consumers without acknowledgements hold nothing, but get nothing either while the others have used it up.
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

    def retune(self) -> None:
        """Apply the limits that were changed in this pass."""
        prefetch, self._prefetch_of_all = self._prefetch_of_all, None
        if prefetch is not None:
            for consumer in self.by_tag.values():
                consumer.own_prefetch = prefetch
        super().retune()
