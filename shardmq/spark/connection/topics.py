"""What Spark's processes ask of topics. Every request is repeated while a gateway or a shard is away."""

from dataclasses import dataclass
from typing import Any, Final

from shardmq.errors import InvalidRequest
from shardmq.spark.connection.broker import BrokerConnection
from shardmq.spark.connection.protocol import Op

READ_BYTES: Final = 2 << 20
"""Bytes of messages that one answer has at most, unless one message is larger."""

ANY_GROUP: Final = "spark"
"""A group that is asked for where it is to learn where partitions begin and end, which no group changes. There need be
none of that name."""

SAMPLE: Final = 256
SAMPLE_BYTES: Final = 1 << 16
"""Messages, and their bytes, by which the size of those behind them is told, at most."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition at a moment.

    Attributes:
        number: in its topic.
        first: the offset of its oldest message.
        next: the offset of the next message to come.
        id: tells it from one of its name that was made anew, or restored from a backup; 0 where that is not known.
    """

    number: int
    first: int
    next: int
    id: int = 0


class Topics:
    """Requests about topics.

    Args:
        broker: the connection they take.
    """

    def __init__(self, broker: BrokerConnection) -> None:
        self._broker = broker

    def names(self) -> list[str]:
        """The names of the topics and streams that the user may read.

        An earlier version of the broker tells topics alone, with those that the user may not read.

        Raises:
            ShardmqError: they cannot be asked for.
        """
        try:
            rows = self._broker.insist(Op.TOPOLOGY_LIST, "readable-topics")
        except InvalidRequest:  # it has no such list
            rows = self._broker.insist(Op.TOPOLOGY_LIST, "topics")
        return [row["name"] for row in rows]

    def states(self, topic: str) -> list[PartitionState]:
        """The partitions of a topic, in their order.

        Raises:
            NotFound: there is no such topic.
            PreconditionFailed: it is a queue whose messages have no offsets.
            ShardmqError: it cannot be asked for.
        """
        rows = self._broker.insist(Op.GROUP_OFFSETS, topic, ANY_GROUP)
        return [PartitionState(row["partition"], row["first"], row["end"], row.get("id", 0)) for row in rows]

    def commit(self, topic: str, group: str, offsets: list[tuple[int, int]]) -> None:
        """Move a group's offsets on, which others see.

        Args:
            topic: its name.
            group: its name. One that does not exist is made.
            offsets: numbers of partitions, and the offsets that the group reads next there.

        Raises:
            PreconditionFailed: the group is further already, or has members that consume.
            ShardmqError: it cannot be asked for.
        """
        self._broker.insist(Op.GROUP_COMMIT, topic, group, offsets)

    def read(self, topic: str, number: int, first: int, count: int) -> list[dict[str, Any]]:
        """Read messages of a partition from an offset on, `count` and READ_BYTES at most; one at least if there is one.

        Returns:
            Deliveries as SPEC.md has them, and in each `first`, the offset of its first message, in rising order.

        Raises:
            OffsetOutOfRange: there is no message of that offset any more, or none will have it next.
            NotFound: there is no such topic.
            ShardmqError: it cannot be read.
        """
        deliveries: list[dict[str, Any]] = self._pull(topic, number, "offset", first, count)["deliveries"]
        for delivery in deliveries:
            delivery["first"] = delivery["offset"]
        return deliveries

    def seek(self, topic: str, number: int, time_ms: int) -> int:
        """The offset of the first message that came at a time, or later; of the next one to come where none did.

        Raises:
            NotFound: there is no such topic.
            ShardmqError: it cannot be read.
        """
        answer = self._pull(topic, number, "time", time_ms)
        offset: int = answer["deliveries"][0]["offset"] if answer["deliveries"] else answer["next"]
        return offset

    def message_bytes(self, topic: str, number: int, offset: int) -> float:
        """The average size of some messages of a partition, from an offset on; 0 where there are none.

        Raises:
            OffsetOutOfRange: there is no message of that offset any more.
            NotFound: there is no such topic.
            ShardmqError: it cannot be read.
        """
        seen = self._pull(topic, number, "offset", offset, SAMPLE, SAMPLE_BYTES)["deliveries"]
        count = sum(delivery["count"] for delivery in seen)
        return sum(len(delivery["records"]) for delivery in seen) / count if count else 0.0

    def _pull(
        self, topic: str, number: int, begin: str, place: int = 0, count: int = 1, bytes_max: int = READ_BYTES
    ) -> dict[str, Any]:
        values = (topic, number, begin, place, count, bytes_max, 0, None, False)
        answer: dict[str, Any] = self._broker.insist(Op.TOPIC_PULL, *values)
        return answer
