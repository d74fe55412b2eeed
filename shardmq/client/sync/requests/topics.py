"""Topics: part of Channel."""

from abc import ABC, abstractmethod
from typing import Any, TypeVar

from shardmq.client.core.requests import topics
from shardmq.client.core.requests.request import Request

T = TypeVar("T")


class TopicRequests(ABC):
    """Requests that declare, extend and delete topics: part of a channel.

    Each may raise AccessRefused where the user may not do that, and the errors that `Channel` names.
    """

    @abstractmethod
    def _ask(self, request: Request[T]) -> T:
        """Ask, and wait for the answer."""

    def topic_declare(
        self,
        topic: str,
        partitions: int = 1,
        *,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        retention_messages: int | None = None,
        partitioner: str = "key",
    ) -> None:
        """Declare a topic: make it with its partitions, or find the same one there.

        Publish to the exchange of its name; partition i is also the stream queue `topic-i`.

        Args:
            topic: its name.
            partitions: how many; they are spread over the shards.
            retention_ms: how old messages may be, in whole seconds; None keeps them for ever, as below.
            retention_bytes: how many bytes of messages each partition keeps.
            retention_messages: how many messages each partition keeps.
            partitioner: what picks a message's partition: "key", the hash of its routing key (messages without one take
                partitions in turns); "round-robin", all take them in turns; "explicit", the header `x-partition`.

        Raises:
            PreconditionFailed: there is one with other settings, or something else has the name of one of its parts.
        """
        limits = {
            "retention_ms": retention_ms,
            "retention_bytes": retention_bytes,
            "retention_messages": retention_messages,
        }
        self._ask(topics.topic_declare(topic, partitions, limits, partitioner))

    def topic_delete(self, topic: str, if_unused: bool = False) -> None:
        """Delete a topic with all its messages and its groups' offsets.

        Raises:
            PreconditionFailed: if_unused, and somebody consumes from it.
        """
        self._ask(topics.topic_delete(topic, if_unused))

    def topic_extend(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic until it has so many. From then on keys go to other partitions than before.

        Raises:
            PreconditionFailed: it has more already; they are never removed.
        """
        self._ask(topics.topic_extend(topic, partitions))

    def topic_info(self, topic: str) -> dict[str, Any]:
        """Return what there is of a topic.

        Returns:
            Its `name`, `arguments` and `epoch`; of all `partitions` in order the queue, the shard, the offsets `first`
            and `next`, messages and bytes (None while the shard is away); of its `groups` the lag, and in
            `damaged` the partitions where a group is out of service, as its offset is damaged on disk.

        Raises:
            NotFound: there is no such topic.
        """
        return self._ask(topics.topic_info(topic))
