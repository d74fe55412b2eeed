"""What became of a queue's messages, as statistics tell it apart."""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from shardmq.topology.entities import Queue

COUNTS: Final = (
    "publish",
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "get_empty",
    "ack",
    "redeliver",
    "reject",
    "expire",
    "drop",
    "dead_letter",
)
"""What is counted of each queue, since its shard started; RabbitMQ's words, and four more."""


def identity_of(declared: Queue) -> dict[str, Any]:
    """Which queue it is, as `shardmq status` shows it."""
    return {"id": declared.id, "vhost": declared.vhost, "name": declared.name, "durable": declared.durable}


class Counted(Protocol):
    """A subqueue, as far as it counts."""

    published: int
    delivered: int
    acked: int
    redelivered: int


class Tally:
    """What the messages themselves do not tell; since start.

    What most consumers do costs nothing: messages that are delivered and settled are counted where they lie, and these
    here are taken off.

    Attributes:
        no_ack: delivered to consumers that acknowledge nothing.
        unasked: settled, and nobody has acknowledged them: those of such consumers, and what was rejected.
        rejected: messages that consumers rejected without requeue.
        gets: by basic.get, to be acknowledged.
        gets_no_ack: by basic.get, not to be acknowledged.
        gets_empty: answers of basic.get that had no message.
        delivered: of a partition, to all its readers.
        acked: of a partition, by all its readers.
    """

    __slots__ = ("acked", "delivered", "gets", "gets_empty", "gets_no_ack", "no_ack", "rejected", "unasked")

    def __init__(self) -> None:
        self.no_ack = self.unasked = self.rejected = 0
        self.gets = self.gets_no_ack = self.gets_empty = 0
        self.delivered = self.acked = 0

    def counts(self, published: int, delivered: int, acked: int, others: tuple[int, int, int, int]) -> tuple[int, ...]:
        """All of COUNTS.

        Args:
            published: messages that came.
            delivered: messages that went out, however that was.
            acked: messages that were settled.
            others: redelivered, expired, dropped, dead-lettered.
        """
        deliver = delivered - self.no_ack - self.gets - self.gets_no_ack
        redelivered, *ends = others
        return (
            published,
            deliver,
            self.no_ack,
            self.gets,
            self.gets_no_ack,
            self.gets_empty,
            acked - self.unasked,
            redelivered,
            self.rejected,
            *ends,
        )

    def counts_of(self, levels: Sequence[Counted], ends: tuple[int, int, int]) -> tuple[int, ...]:
        """All of COUNTS, of a queue of several subqueues; `ends` are expired, dropped, dead-lettered."""
        published, delivered = sum([each.published for each in levels]), sum([each.delivered for each in levels])
        acked, redelivered = sum([each.acked for each in levels]), sum([each.redelivered for each in levels])
        return self.counts(published, delivered, acked, (redelivered, *ends))
