"""The plain queue: one subqueue, and no arguments that its messages would notice. Most queues are this one.

A message may bring a time to live with it, so even here messages expire; who expires is dropped.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from shardmq.message.record_batch import PERSISTENT, RecordBatch
from shardmq.ranges import RangeSet
from shardmq.runtime.clock import SteadyClock
from shardmq.shards.queues.dead_letter_outbox import DeadLetterOutbox
from shardmq.shards.queues.delivery import ALL_BATCHES, Delivery
from shardmq.shards.queues.ready_messages import MARK_LEAP
from shardmq.shards.queues.subqueue import EXPIRE_BATCHES, Subqueue
from shardmq.shards.queues.tally import Tally, identity_of
from shardmq.shards.segments.segment import NumberedBatch, Ranges, Segment
from shardmq.shards.storage.recovery import NOTHING_STORED, RecoveredQueue
from shardmq.shards.storage.write_buffer import WriteBuffer
from shardmq.topology.arguments import QueueArguments
from shardmq.topology.entities import Queue as Declared

PEEK_BYTES: Final = 4 << 20
"""Bytes of messages that one look shows; it travels in one frame, and holds up everybody else."""

_NO_ARGUMENTS: Final = QueueArguments()


class PlainQueue(Subqueue):
    """A queue of one subqueue (`queue.Queue`).

    A policy may make it a part of a configured queue, which then is the queue.

    Args:
        declared: what it is.
        buffer: where its changes are written down.
        clock: what times to live are measured by.
        stored: what a start found of it.

    Attributes:
        delayed: numbers of messages that wait for a time; None where none ever did.
        is_part: whether it is a part of a configured queue.
    """

    __slots__ = ("_clock", "arguments", "declared", "delayed", "expired", "is_part", "reserved", "tally")

    outbox: DeadLetterOutbox | None = None

    def __init__(
        self, declared: Declared, buffer: WriteBuffer, clock: SteadyClock, stored: RecoveredQueue = NOTHING_STORED
    ) -> None:
        super().__init__(declared.id, declared.durable, buffer, 0, stored.marks.get(0, 0), stored.segments)
        self.is_part = False
        self.configure(declared)
        self.expired = 0
        self.tally = Tally()
        self._clock = clock
        self.delayed: RangeSet | None = None
        if stored.delayed:
            self.delayed = RangeSet(self.keep_held(stored.delayed))
        self.reserved = sum([end - start for start, end in self.keep_held(stored.reserved)])

    def configure(self, declared: Declared) -> None:
        """Take in arguments: none that its messages would notice."""
        self.declared = declared
        self.arguments = QueueArguments.of(declared.effective) if declared.effective else _NO_ARGUMENTS

    @property
    def subqueues(self) -> Sequence[Subqueue]:
        """Return the subqueues that consumers are served from, in that order."""
        return (self,)

    def take_alone(self, limit: int, room: int) -> NumberedBatch | None:
        """Hand out all that is ready, where that is one batch which came in this pass, as in most of many queues.

        Args:
            limit: so many messages at most.
            room: bytes they may take.

        Returns:
            The batch, and the number of its first message; None where it is not so simple.
        """
        segment = self._open
        if segment is None or self.fresh != segment.count or self.returned.count or self.can_expire:
            return None
        batches = segment.batches
        if batches is None or len(batches) != 1:
            return None
        only = first, batch = batches[0]
        count = batch.count
        if count > limit or len(batch.records) > room:
            return None
        self.hand_out_newest(first, batch)
        return only

    def hand_out_newest(self, first: int, batch: RecordBatch) -> None:
        """Hand out the batch that came last, whose first message is number `first`: nothing else is ready."""
        count = batch.count
        self.fresh = 0
        self._reading = None
        self.cursor = end = first + count
        if end > self.delivered_mark and self._durable and batch.flags & PERSISTENT:
            self._raise_mark(end + MARK_LEAP)
        self.unacked += count
        self.delivered += count

    def peek(self, offset: int, count: int) -> list[Delivery]:
        """Look at ready messages; nothing changes."""
        pieces = self.read(self.waiting(offset, count), PEEK_BYTES, apart=self.cursor)
        return [Delivery(first, first < self.cursor, 0, batch) for first, batch in pieces]

    def reject(self, ranges: Ranges) -> None:
        """Dead-letter unacked messages, or drop them."""
        self.tally.unasked += sum([end - start for start, end in ranges])
        self.settle(ranges)

    def time_out(self, ranges: Ranges) -> None:
        """Requeue or dead-letter messages whose consumer timeout is over, as declared."""
        self.requeue(ranges)

    def delay_return(self, ranges: Ranges) -> Ranges:
        """Hold unacked messages until `end_delay`; return those held."""
        if self.delayed is None:
            self.delayed = RangeSet()
        self.hold(ranges)
        for start, end in ranges:
            self.delayed.add(start, end)
        return ranges

    def end_delay(self, ranges: Ranges) -> None:
        """Make messages whose delay is over ready again, at their place."""
        if self.delayed is not None:
            for start, end in ranges:
                self.release_held(self.delayed.within(start, end))
                self.delayed.remove(start, end)

    def reserve(self, count: int) -> Ranges:
        """Reserve the first ready messages; return their numbers."""
        ranges = self.withdraw(count)
        self.reserved += sum([end - start for start, end in ranges])
        return ranges

    def release(self, ranges: Ranges) -> None:
        """Make reserved messages ready again, at their place."""
        self.reserved -= sum([end - start for start, end in ranges])
        self.release_held(ranges)

    def settle_reserved(self, ranges: Ranges) -> None:
        """Settle reserved messages: they are gone."""
        count = sum([end - start for start, end in ranges])
        self.reserved -= count
        self.acked += count
        self.drop(ranges)

    def show(self, ranges: Ranges, fresh_from: Mapping[int, int]) -> list[Delivery]:
        """Look at ready or reserved messages; nothing changes."""
        apart = fresh_from.get(self.number, self.cursor)
        pieces = self.read(ranges, PEEK_BYTES, apart=apart, keep=False)
        return [Delivery(first, first < apart, 0, batch) for first, batch in pieces]

    def expire(self, now_ms: int, batches_max: int = ALL_BATCHES) -> None:
        """Remove expired messages at the head."""
        ranges = self.withdraw_expired(now_ms, batches_max)
        self.expired += sum([end - start for start, end in ranges])
        self.drop(ranges)

    def has_room(self, _batches: Sequence[RecordBatch], _credit: int) -> bool:
        """Tell whether the queue would take all of these batches."""
        return True

    def catch_up(self) -> None:
        """Remove what has expired or is over the length limit."""
        if self.can_expire:
            self.offered()
            self.expire(self._clock.now_ms(), EXPIRE_BATCHES)

    def trim(self) -> None:
        """Remove what is over the length limit."""

    def _stamp(self, batch: RecordBatch) -> None:
        batch.timestamp_ms = self._clock.now_ms()  # the gateway's clock may be another one

    def _clear_head(self) -> bool:
        if self.is_part:
            return super()._clear_head()
        due_ms, now_ms = self.next_expiry_ms, self._clock.now_ms()
        if due_ms is not None and due_ms <= now_ms:
            self.expire(now_ms)
        return True

    def retire(self) -> list[Segment]:
        """Delete the queue; return its segments, which are to be ended."""
        self.close()
        return self.index.segments

    @property
    def segments(self) -> int:
        """Return how many segments hold its messages."""
        return len(self.index.segments)

    def counts(self) -> tuple[int, ...]:
        """Return what was counted since start, as `tally.COUNTS` names it."""
        return self.tally.counts(self.published, self.delivered, self.acked, (self.redelivered, self.expired, 0, 0))

    def table(self, consumers: int) -> dict[str, Any]:
        """Return the counts that `shardmq status` shows."""
        return {
            **identity_of(self.declared),
            "total": self.total,
            "valid": self.valid,
            "ready": self.ready,
            "unacked": self.unacked,
            "delayed": self.delayed.count if self.delayed is not None else 0,
            "dying": 0,
            "reserved": self.reserved,
            "consumers": consumers,
            "bytes": self.bytes,
            "segments": self.segments,
            "published": self.published,
            "delivered": self.delivered,
            "acked": self.acked,
            "redelivered": self.redelivered,
            "expired": self.expired,
            "dropped": 0,
            "dead_lettered": 0,
        }
