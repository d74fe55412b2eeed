"""The queue with arguments: priorities, TTL, limits, retries, dead letters, in any combination."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from shardmq.limits import LETTER_PRODUCERS
from shardmq.message.record_batch import RecordBatch
from shardmq.ranges import RangeSet
from shardmq.runtime.clock import SteadyClock
from shardmq.shards.queues.dead_letter_outbox import (
    ACK_TIMEOUT,
    DELIVERY_LIMIT,
    EXPIRED,
    MAXLEN,
    REJECTED,
    DeadLetterOutbox,
    passing_producer,
)
from shardmq.shards.queues.delivery import ALL_BATCHES, Delivery
from shardmq.shards.queues.length_limit import LengthLimit
from shardmq.shards.queues.plain_queue import PEEK_BYTES, PlainQueue
from shardmq.shards.queues.priority_levels import PriorityLevels
from shardmq.shards.queues.subqueue import EXPIRE_BATCHES, Subqueue
from shardmq.shards.queues.tally import Tally, identity_of
from shardmq.shards.segments.segment import Ranges, Segment
from shardmq.shards.segments.slicer import BatchSlicer
from shardmq.shards.segments.steps import Steps
from shardmq.shards.storage.recovery import NOTHING_STORED, RecoveredQueue
from shardmq.shards.storage.write_buffer import WriteBuffer
from shardmq.topology.arguments import LENGTH_MAX, QueueArguments
from shardmq.topology.entities import Queue as Declared

_SUMS: Final = ("total", "valid", "bytes", "published", "delivered", "acked", "redelivered")


class ConfiguredQueue:
    """A queue whose arguments change what becomes of its messages (`queue.Queue`).

    Args:
        declared: what it is.
        buffer: where its changes are written down.
        clock: what times to live are measured by.
        stored: what a start found of it.
        part: the plain queue that it was until a policy changed that.
    """

    __slots__ = (
        "_length_limit",
        "_part",
        "_clock",
        "_levels",
        "_delayed",
        "declared",
        "outbox",
        "dropped",
        "expired",
        "id",
        "reserved",
        "arguments",
        "tally",
    )

    def __init__(
        self,
        declared: Declared,
        buffer: WriteBuffer,
        clock: SteadyClock,
        stored: RecoveredQueue = NOTHING_STORED,
        part: PlainQueue | None = None,
    ) -> None:
        self.id = declared.id
        self._clock = clock
        self._levels = PriorityLevels(declared, buffer, QueueArguments.of(declared.effective), stored, part)
        self._part = part
        self.outbox: DeadLetterOutbox | None = None
        self.expired = self.dropped = self.reserved = 0
        self.tally = Tally() if part is None else part.tally
        self._delayed = RangeSet(self._levels.keep_held(stored.delayed))
        self.reserved = _count_of(self._levels.keep_held(stored.reserved))
        if part is not None:
            part.is_part = True
            self.expired, self.reserved = part.expired, part.reserved
            self._delayed = part.delayed or self._delayed
        self._limit(declared)
        self._resume()

    def _limit(self, declared: Declared) -> None:
        """Take in arguments."""
        self.declared = declared
        self.arguments = arguments = QueueArguments.of(declared.effective)
        if arguments.dead_letter_exchange is not None and self.outbox is None:
            passing = passing_producer()
            lasting = LETTER_PRODUCERS + declared.id if declared.durable else passing
            self.outbox = DeadLetterOutbox(self._levels, lasting, passing)
        elif arguments.dead_letter_exchange is None and self.outbox is not None and not self.outbox.count:
            self.outbox = None  # where letters are on their way, they arrive nowhere, and later ones do not, either
        self._length_limit = LengthLimit.of(arguments, self._levels)

    def configure(self, declared: Declared) -> None:
        """Take in other arguments, all of whose messages are here: what is over a limit goes with this pass."""
        for subqueue in self._levels:
            subqueue.seal()  # a segment has the bytes of its bodies from its beginning on, or not at all
        self._limit(declared)
        self._levels.limit_life(self.arguments.ttl_ms)

    def plain(self) -> PlainQueue | None:
        """The plain queue that does the same, where there are no arguments and never was more to it; else None."""
        part = self._part
        if part is None or self.outbox is not None or not self._levels.is_single:
            return None
        part.is_part = False
        part.expired, part.reserved, part.delayed = self.expired, self.reserved, self._delayed or None
        part.configure(self.declared)
        return part

    @property
    def ready(self) -> int:
        """Return how many messages wait for a consumer."""
        return self._levels.ready

    @property
    def valid(self) -> int:
        """Return how many messages are not settled."""
        return sum([subqueue.valid for subqueue in self._levels])

    @property
    def unacked(self) -> int:
        """Return how many messages are delivered and not settled."""
        return sum([subqueue.unacked for subqueue in self._levels])

    @property
    def next_expiry_ms(self) -> int | None:
        """Return when `expire` has something to do, ms since 1970; None when nothing ready will expire."""
        return self._levels.next_expiry_ms

    @property
    def subqueues(self) -> Sequence[Subqueue]:
        """Return the subqueues that consumers are served from, in that order."""
        return self._levels.order

    def append(self, batch: RecordBatch, credit: int = 0, /) -> int:
        """Put a batch at the end; return how many messages of it were taken."""
        if self.arguments.ttl_ms is not None or batch.ttl_ms is not None:
            batch.timestamp_ms = self._clock.now_ms()  # the gateway's clock may be another one
        length_limit = self._length_limit
        if length_limit is None:
            self._levels.append(batch)
            return batch.count
        taken = length_limit.room_for(batch, credit)
        if taken < batch.count:
            if self.outbox is not None and self.arguments.dead_letters_refused:
                self.outbox.add(self._levels.refuse(BatchSlicer().cut(batch, taken, batch.count)), MAXLEN)
            if not taken:
                return 0
            batch = BatchSlicer().cut(batch, 0, taken)
        length_limit.append(batch)
        return taken

    def has_room(self, batches: Sequence[RecordBatch], credit: int) -> bool:
        """Tell whether the queue would take all of these batches."""
        return self._length_limit is None or self._length_limit.has_room(batches, credit)

    def take(self, limit: int, room: int, alone: bool) -> list[Delivery]:
        """Deliver ready messages, in order; they are unacked from here on."""
        deliveries = (
            self._take_living(limit, room, alone) if self._levels.can_expire else self._levels.take(limit, room, alone)
        )
        if self.arguments.delivery_limit is not None or self.arguments.retry_delays_ms is not None:
            deliveries = [part for delivery in deliveries for part in self._levels.counted(delivery)]
        if self._length_limit is not None:
            self._length_limit.went(deliveries)
        return deliveries

    def stored_bytes(self) -> int:
        """Return the bytes of the next message, where it is not in memory and its size is known; else 0."""
        return self._levels.stored_bytes()

    def head_bytes(self) -> int:
        """Return the bytes of the next message; 0 where none is ready."""
        return self._levels.head_bytes()

    def between(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield ready messages numbered [start, end)."""
        for subqueue in self.subqueues:
            yield from subqueue.between(start, end)

    def peek(self, offset: int, count: int) -> list[Delivery]:
        """Look at ready messages; nothing changes."""
        return self._levels.peek(offset, count, PEEK_BYTES)

    def settle(self, ranges: Ranges) -> None:
        """Settle unacked messages: they are gone."""
        self._levels.settle(ranges)

    def requeue(self, ranges: Ranges) -> None:
        """Make unacked messages ready again, at their place, unless the delivery limit is passed."""
        ranges = self._count(ranges)
        self._levels.requeue(ranges)
        if self._length_limit is not None:
            self._length_limit.came_back(ranges)

    def put_back(self, ranges: Ranges, fresh_from: int) -> None:
        """Make unacked messages ready again that nobody has seen since they were taken."""
        self._levels.put_back(ranges, fresh_from)
        if self._length_limit is not None:
            self._length_limit.came_back(ranges)

    def purge(self) -> tuple[int, Steps]:
        """Remove what is ready; return how much that is, and the steps that remove it."""
        purged = self._levels.purge()
        if self._length_limit is not None:
            self._length_limit.bytes = 0
        return purged

    def extent(self, number: int) -> tuple[int, int]:
        """Return the end of the segment a message is in, and about how many bytes a message of it has."""
        return self._levels.extent(number)

    def reject(self, ranges: Ranges) -> None:
        """Dead-letter unacked messages, or drop them."""
        if self.outbox is None:
            self.tally.unasked += _count_of(ranges)
            self._levels.settle(ranges)
        else:
            self._levels.hold(ranges)
            self.outbox.add(ranges, REJECTED)

    def time_out(self, ranges: Ranges) -> None:
        """Requeue or dead-letter messages whose consumer timeout is over, as declared."""
        if self.arguments.timeout_dead_letters or (self.arguments.retry_delays_ms and self.outbox is not None):
            self._levels.hold(ranges)
            self._settle(ranges, ACK_TIMEOUT)
        else:
            self.requeue(ranges)

    def expire(self, now_ms: int, batches_max: int = ALL_BATCHES) -> None:
        """Remove expired messages at the head."""
        ranges = self._levels.withdraw_expired(now_ms, batches_max)
        if ranges:
            if self._length_limit is not None:
                self._length_limit.withdrew(ranges)
            self.expired += _count_of(ranges)
            self._settle(ranges, EXPIRED)

    def catch_up(self) -> None:
        """Remove what has expired or is over the length limit."""
        if self._levels.can_expire:
            for subqueue in self._levels:
                subqueue.offered()
            self.expire(self._clock.now_ms(), EXPIRE_BATCHES)
        self.trim()

    def trim(self) -> None:
        """Remove what is over the length limit."""
        if self._length_limit is not None:
            self._settle(self._length_limit.withdraw_excess(), MAXLEN)

    def failures(self, ranges: Ranges) -> Iterator[tuple[int, int, int]]:
        """Yield how often messages were delivered in vain: (start, end, count)."""
        return self._levels.counts(ranges)

    def delay_return(self, ranges: Ranges, is_retry: bool = False) -> Ranges:
        """Hold unacked messages until `end_delay`; return those held. A retry is counted in any case."""
        ranges = self._count(ranges, is_retry)
        self._levels.hold(ranges)
        for start, end in ranges:
            self._delayed.add(start, end)
        return ranges

    def end_delay(self, ranges: Ranges) -> None:
        """Make messages whose delay is over ready again, at their place."""
        for start, end in ranges:
            parts = self._delayed.within(start, end)
            self._delayed.remove(start, end)
            self._levels.release_held(parts)
            if self._length_limit is not None:
                self._length_limit.came_back(parts)

    def reserve(self, count: int) -> Ranges:
        """Reserve the first ready messages; return their numbers."""
        ranges = self._levels.reserve(count)
        self.reserved += _count_of(ranges)
        if self._length_limit is not None:
            self._length_limit.withdrew(ranges)
        return ranges

    def release(self, ranges: Ranges) -> None:
        """Make reserved messages ready again, at their place."""
        self.reserved -= _count_of(ranges)
        self._levels.release_held(ranges)
        if self._length_limit is not None:
            self._length_limit.came_back(ranges)

    def settle_reserved(self, ranges: Ranges) -> None:
        """Settle reserved messages: they are gone."""
        self.reserved -= _count_of(ranges)
        for subqueue, part in self._levels.split(ranges):
            subqueue.acked += _count_of(part)
            subqueue.drop(part)

    def show(self, ranges: Ranges, fresh_from: Mapping[int, int]) -> list[Delivery]:
        """Look at ready or reserved messages; nothing changes."""
        return self._levels.show(ranges, PEEK_BYTES, fresh_from)

    def seal(self) -> None:
        """End a pass."""
        self.trim()
        for subqueue in self._levels:
            subqueue.seal()

    def mark_exactly(self) -> None:
        """Write down exactly what was delivered, at a clean stop."""
        for subqueue in self._levels:
            subqueue.mark_exactly()

    def retire(self) -> list[Segment]:
        """Delete the queue; return its segments, which are to be ended."""
        segments = []
        for subqueue in self._levels:
            subqueue.close()
            segments += subqueue.index.segments
        return segments

    @property
    def segments(self) -> int:
        """Return how many segments hold its messages."""
        return sum([len(subqueue.index.segments) for subqueue in self._levels])

    def counts(self) -> tuple[int, ...]:
        """Return what was counted since start, as `tally.COUNTS` names it."""
        dead_lettered = self.outbox.dead_lettered if self.outbox is not None else 0
        return self.tally.counts_of(list(self._levels), (self.expired, self.dropped, dead_lettered))

    def table(self, consumers: int) -> dict[str, Any]:
        """Return the counts that `shardmq status` shows."""
        return {
            **identity_of(self.declared),
            "ready": self.ready,
            "unacked": self.unacked,
            "delayed": self._delayed.count,
            "dying": self.outbox.count if self.outbox is not None else 0,
            "reserved": self.reserved,
            "consumers": consumers,
            "segments": self.segments,
            **{name: sum([getattr(subqueue, name) for subqueue in self._levels]) for name in _SUMS},
            "expired": self.expired,
            "dropped": self.dropped,
            "dead_lettered": self.outbox.dead_lettered if self.outbox is not None else 0,
        }

    def _resume(self) -> None:
        """At start: what was dying when the process ended, and can be told from what was not, dies again."""
        refused = self._levels.withdraw_refused()
        if refused:
            self._settle(refused, MAXLEN)
        limit = self.arguments.delivery_limit
        if limit is not None:
            spent = self._levels.keep_held(self._levels.over(limit))
            if self._length_limit is not None:
                self._length_limit.withdrew(spent)
            self._settle(spent, DELIVERY_LIMIT)
        self.trim()

    def _take_living(self, limit: int, room: int, alone: bool) -> list[Delivery]:
        """Deliver from the highest subqueue on; stop where something has expired behind what has not."""
        deliveries: list[Delivery] = []
        now_ms = self._clock.now_ms()
        while limit > 0:
            self.expire(now_ms)
            got = self._levels.take(limit, room, alone and not deliveries)
            deliveries += got
            if not got or not self._levels.ready:
                break
            limit -= sum([delivery.batch.count for delivery in got])
            room -= sum([len(delivery.batch.records) for delivery in got])
        return deliveries

    def _settle(self, ranges: Ranges, reason: str) -> None:
        """Dead-letter held messages, or settle them."""
        if self.outbox is not None:
            self.outbox.add(ranges, reason)
        else:
            self._levels.drop(ranges)
            if reason != EXPIRED:
                self.dropped += _count_of(ranges)

    def _count(self, ranges: Ranges, is_retry: bool = False) -> Ranges:
        """Unacked messages were delivered in vain; returns those that may be delivered again."""
        limit = self.arguments.delivery_limit
        if limit is None and not is_retry:
            return ranges
        again, spent = self._levels.count(ranges, LENGTH_MAX if limit is None else limit)
        if spent:
            self._levels.hold(spent)
            self._settle(spent, DELIVERY_LIMIT)
        return again


def _count_of(ranges: Ranges) -> int:
    return sum([end - start for start, end in ranges])
