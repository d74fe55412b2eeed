"""Many small messages of one pass as one, column by column: what a message of its own would cost is paid once.

Publish q1 [a]   Publish q2 [b]   Publish q3 [c d]    ─►   Publishes   queues    q1   q2   q3
counts    1    1    2
records   a    b    c d
"""

from collections.abc import Iterator
from itertools import accumulate, chain

from shardmq.bus.messages.base import BusMessage
from shardmq.message.record_batch import RecordBatch

COLUMN_ENTRIES_MAX = 1024
"""Entries of one message: shards deal with a message whole, and clients are served in between."""

FORWARDED = 1 << 63
"""Added to the numbers by which consumers know what was forwarded to them, which the shard may number differently. All
numbers that messages have in their queues are below it."""

TELL = -1
"""Stands for a consumer in a publish that none has: its gateway wants to be told when it may forward to its queue."""


class Publishes(BusMessage, frozen=True, tag=87):
    """Publishes to one queue each, which nobody has numbered, and which are neither delayed nor staged.

    Each counts as one for Confirmed and PublishRefusal, in order. They mean what `Publish` of each would.

    Attributes:
        exchange: all were published to.
        flags: as in `RecordBatch`.
        priority: of each message.
        timestamp_ms: as in `RecordBatch`.
        origin: as in `RecordBatch`.
        serial: of the first message; those of the others follow.
        queues: id of the queue of each publish.
        keys: routing key of each.
        counts: messages of each.
        records: of each.
        unawaited: whether nobody waits for the confirm of any of them.
        forwarded: as in `Publish`, of each; none where all are 0.
        forwarded_as: as in `Publish`, of each.
    """

    exchange: str
    flags: int
    priority: int
    timestamp_ms: int
    origin: int
    serial: int
    queues: list[int]
    keys: list[str]
    counts: list[int]
    records: list[bytes]
    unawaited: bool = False
    forwarded: list[int] = []
    forwarded_as: list[int] = []

    @property
    def size(self) -> int:
        """Bytes of all records."""
        return sum(map(len, self.records))

    def batches(self) -> Iterator[RecordBatch]:
        """Make the record batch of each publish, in order."""
        exchange, flags, priority = self.exchange, self.flags, self.priority
        timestamp_ms, origin = self.timestamp_ms, self.origin
        serials = accumulate(chain((self.serial,), self.counts))
        for serial, key, count, records in zip(serials, self.keys, self.counts, self.records, strict=False):
            yield RecordBatch(exchange, key, flags, timestamp_ms, origin, serial, count, records, priority)


class Deliveries(BusMessage, frozen=True, tag=89):
    """Messages for several consumers, none of which was delivered before: they mean what `Delivered` of each would.

    Attributes:
        consumers: number of each.
        firsts: sequence number of the first message of each.
        batches: messages of each.
    """

    consumers: list[int]
    firsts: list[int]
    batches: list[RecordBatch]

    @property
    def size(self) -> int:
        """Bytes of all records."""
        return sum([len(batch.records) for batch in self.batches])


class MayForward(BusMessage, frozen=True, tag=75):
    """The queues of these consumers have nothing ready, and no other consumer: what comes next is theirs.

    Their gateway may forward it to them, and says so where it publishes it.

    Attributes:
        consumers: number of each.
        firsts: the number that the next message of each one's queue will have; 0 to forward nothing more to it.
        upto: number of the last publish of the session that was taken in.
    """

    consumers: list[int]
    firsts: list[int]
    upto: int


class Acks(BusMessage, frozen=True, tag=88):
    """Settle messages as acked: of each consumer one range, [start, end).

    Attributes:
        consumers: number of each.
        starts: of their ranges.
        ends: of their ranges.
    """

    consumers: list[int]
    starts: list[int]
    ends: list[int]


def entries_of(message: object) -> int:
    """Count the messages that a message stands for: 1 where it is not made of columns."""
    if isinstance(message, Publishes):
        return len(message.queues)
    return len(message.consumers) if isinstance(message, Deliveries | Acks) else 1
