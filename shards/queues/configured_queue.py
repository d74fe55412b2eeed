"""The queue with terms: priorities, times to live, bounds, delivery limits, dead letters, in any combination."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

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
)
from shardmq.shards.queues.delivery import ALL_RUNS, Delivery
from shardmq.shards.queues.length_limit import LengthLimit
from shardmq.shards.queues.plain_queue import PEEK_BYTES
from shardmq.shards.queues.priority_levels import PriorityLevels
from shardmq.shards.queues.subqueue import EXPIRE_RUNS, Subqueue
from shardmq.shards.segments.segment import Ranges, Segment
from shardmq.shards.segments.slicer import BatchSlicer
from shardmq.shards.segments.steps import Steps
from shardmq.shards.storage.recovery import NOTHING_STORED, RecoveredQueue
from shardmq.shards.storage.write_buffer import WriteBuffer
from shardmq.topology.arguments import QueueArguments
from shardmq.topology.entities import Queue as Declared

_SUMS: Final = ("total", "valid", "bytes", "published", "delivered", "acked", "redelivered")


class ConfiguredQueue:
    """See the module, and `queue.Queue` for what it does.

    Args:
        declared: what it is.
        journal: where its changes are written down.
        clock: what times to live are measured by.
        stored: what a start found of it.
    """

    __slots__ = (
        "_bounds",
        "_clock",
        "_lanes",
        "_parked",
        "declared",
        "deaths",
        "dropped",
        "expired",
        "id",
        "reserved",
        "terms",
    )

    def __init__(
        self, declared: Declared, journal: WriteBuffer, clock: SteadyClock, stored: RecoveredQueue = NOTHING_STORED
    ) -> None:
        terms = QueueArguments.of(declared.arguments)
        self.id = declared.id
        self.declared = declared
        self.terms = terms
        self._clock = clock
        self._lanes = PriorityLevels(declared, journal, terms, stored)
        self.deaths: DeadLetterOutbox | None = None
        if terms.dead_letter_exchange is not None:
            self.deaths = DeadLetterOutbox(self._lanes, declared.id, declared.durable)
        self.expired = self.dropped = 0
        self._parked = RangeSet(self._lanes.keep_aside(stored.parked))
        self.reserved = _count_of(self._lanes.keep_aside(stored.reserved))
        self._bounds = LengthLimit.of(terms, self._lanes)
        self._resume()

    @property
    def ready(self) -> int:
        """As `Queue.ready`."""
        return self._lanes.ready

    @property
    def valid(self) -> int:
        """As `Queue.valid`."""
        return sum([lane.valid for lane in self._lanes])

    @property
    def unacked(self) -> int:
        """As `Queue.unacked`."""
        return sum([lane.unacked for lane in self._lanes])

    @property
    def next_expiry_ms(self) -> int | None:
        """As `Queue.next_expiry_ms`."""
        return self._lanes.next_expiry_ms

    @property
    def lanes(self) -> Sequence[Subqueue]:
        """As `Queue.lanes`."""
        return self._lanes.order

    # --- messages come and go ---------------------------------------------------------------------------------------

    def append(self, run: RecordBatch, credit: int = 0, /) -> int:
        """As `Queue.append`."""
        if self.terms.ttl_ms is not None or run.ttl_ms is not None:
            run.timestamp_ms = self._clock.now_ms()  # the gateway's clock may be another one
        bounds = self._bounds
        if bounds is None:
            self._lanes.append(run)
            return run.count
        taken = bounds.room_for(run, credit)
        if taken < run.count:
            if self.deaths is not None and bounds.overflow == "reject-publish-dlx":
                self.deaths.add(self._lanes.refuse(BatchSlicer().cut(run, taken, run.count)), MAXLEN)
            if not taken:
                return 0
            run = BatchSlicer().cut(run, 0, taken)
        bounds.append(run)
        return taken

    def has_room(self, runs: Sequence[RecordBatch], credit: int) -> bool:
        """As `Queue.has_room`."""
        return self._bounds is None or self._bounds.has_room(runs, credit)

    def take(self, limit: int, room: int, alone: bool) -> list[Delivery]:
        """As `Queue.take`."""
        parcels = (
            self._take_living(limit, room, alone) if self._lanes.is_mortal else self._lanes.take(limit, room, alone)
        )
        if self.terms.delivery_limit is not None:
            parcels = [part for parcel in parcels for part in self._counted(parcel)]
        if self._bounds is not None:
            self._bounds.went(parcels)
        return parcels

    def stored_bytes(self) -> int:
        """As `Queue.stored_bytes`."""
        return self._lanes.stored_bytes()

    def head_bytes(self) -> int:
        """As `Queue.head_bytes`."""
        return self._lanes.head_bytes()

    def peek(self, offset: int, count: int) -> list[Delivery]:
        """As `Queue.peek`."""
        return self._lanes.peek(offset, count, PEEK_BYTES)

    def settle(self, ranges: Ranges) -> None:
        """As `Queue.settle`."""
        self._lanes.settle(ranges)

    def give_back(self, ranges: Ranges) -> None:
        """As `Queue.give_back`."""
        ranges = self._count(ranges)
        self._lanes.give_back(ranges)
        if self._bounds is not None:
            self._bounds.came_back(ranges)

    def purge(self) -> tuple[int, Steps]:
        """As `Queue.purge`."""
        purged = self._lanes.purge()
        if self._bounds is not None:
            self._bounds.bytes = 0
        return purged

    def extent(self, number: int) -> tuple[int, int]:
        """As `Queue.extent`."""
        return self._lanes.extent(number)

    # --- messages die -----------------------------------------------------------------------------------------------

    def reject(self, ranges: Ranges) -> None:
        """As `Queue.reject`."""
        if self.deaths is None:
            self._lanes.settle(ranges)
        else:
            self._lanes.set_aside(ranges)
            self.deaths.add(ranges, REJECTED)

    def time_out(self, ranges: Ranges) -> None:
        """As `Queue.time_out`."""
        if self.terms.timeout_dead_letters:
            self._lanes.set_aside(ranges)
            self._bury(ranges, ACK_TIMEOUT)
        else:
            self.give_back(ranges)

    def expire(self, now_ms: int, runs_max: int = ALL_RUNS) -> None:
        """As `Queue.expire`."""
        ranges = self._lanes.withdraw_expired(now_ms, runs_max)
        if ranges:
            if self._bounds is not None:
                self._bounds.withdrew(ranges)
            self.expired += _count_of(ranges)
            self._bury(ranges, EXPIRED)

    def catch_up(self) -> None:
        """As `Queue.catch_up`."""
        if self._lanes.is_mortal:
            for lane in self._lanes:
                lane.offered()
            self.expire(self._clock.now_ms(), EXPIRE_RUNS)
        self.trim()

    def trim(self) -> None:
        """As `Queue.trim`."""
        if self._bounds is not None:
            self._bury(self._bounds.withdraw_excess(), MAXLEN)

    # --- messages wait for a time -----------------------------------------------------------------------------------

    def park(self, ranges: Ranges) -> Ranges:
        """As `Queue.park`."""
        ranges = self._count(ranges)
        self._lanes.set_aside(ranges)
        for start, end in ranges:
            self._parked.add(start, end)
        return ranges

    def unpark(self, ranges: Ranges) -> None:
        """As `Queue.unpark`."""
        for start, end in ranges:
            parts = self._parked.within(start, end)
            self._parked.remove(start, end)
            self._lanes.put_back(parts)
            if self._bounds is not None:
                self._bounds.came_back(parts)

    # --- messages are reserved --------------------------------------------------------------------------------------

    def reserve(self, count: int) -> Ranges:
        """As `Queue.reserve`."""
        ranges = self._lanes.reserve(count)
        self.reserved += _count_of(ranges)
        if self._bounds is not None:
            self._bounds.withdrew(ranges)
        return ranges

    def release(self, ranges: Ranges) -> None:
        """As `Queue.release`."""
        self.reserved -= _count_of(ranges)
        self._lanes.put_back(ranges)
        if self._bounds is not None:
            self._bounds.came_back(ranges)

    def settle_reserved(self, ranges: Ranges) -> None:
        """As `Queue.settle_reserved`."""
        self.reserved -= _count_of(ranges)
        for lane, part in self._lanes.split(ranges):
            lane.acked += _count_of(part)
            lane.drop(part)

    def show(self, ranges: Ranges, fresh_from: Mapping[int, int]) -> list[Delivery]:
        """As `Queue.show`."""
        return self._lanes.show(ranges, PEEK_BYTES, fresh_from)

    # --- passes, and the end ----------------------------------------------------------------------------------------

    def seal(self) -> None:
        """As `Queue.seal`."""
        self.trim()
        for lane in self._lanes:
            lane.seal()

    def mark_exactly(self) -> None:
        """As `Queue.mark_exactly`."""
        for lane in self._lanes:
            lane.mark_exactly()

    def retire(self) -> list[Segment]:
        """As `Queue.retire`."""
        segments = []
        for lane in self._lanes:
            lane.close()
            segments += lane.index.segments
        return segments

    def table(self, consumers: int) -> dict[str, Any]:
        """As `Queue.table`."""
        declared = self.declared
        return {
            "id": self.id,
            "vhost": declared.vhost,
            "name": declared.name,
            "durable": declared.durable,
            "ready": self.ready,
            "unacked": self.unacked,
            "delayed": self._parked.count,
            "dying": self.deaths.count if self.deaths is not None else 0,
            "reserved": self.reserved,
            "consumers": consumers,
            "segments": sum([len(lane.index.segments) for lane in self._lanes]),
            **{name: sum([getattr(lane, name) for lane in self._lanes]) for name in _SUMS},
            "expired": self.expired,
            "dropped": self.dropped,
            "dead_lettered": self.deaths.dead_lettered if self.deaths is not None else 0,
        }

    # --- inside -----------------------------------------------------------------------------------------------------

    def _resume(self) -> None:
        """At start: what was dying when the process ended, and can be told from what was not, dies again."""
        refused = self._lanes.withdraw_refused()
        if refused:
            self._bury(refused, MAXLEN)
        limit = self.terms.delivery_limit
        if limit is not None:
            spent = self._lanes.keep_aside(self._lanes.over(limit))
            if self._bounds is not None:
                self._bounds.withdrew(spent)
            self._bury(spent, DELIVERY_LIMIT)
        self.trim()

    def _take_living(self, limit: int, room: int, alone: bool) -> list[Delivery]:
        """As `PriorityLevels.take`, which stops where something has expired behind what has not."""
        parcels: list[Delivery] = []
        now_ms = self._clock.now_ms()
        while limit > 0:
            self.expire(now_ms)
            got = self._lanes.take(limit, room, alone and not parcels)
            parcels += got
            if not got or not self._lanes.ready:
                break
            limit -= sum([parcel.run.count for parcel in got])
            room -= sum([len(parcel.run.records) for parcel in got])
        return parcels

    def _bury(self, ranges: Ranges, reason: str) -> None:
        """Messages that were set aside are dead letters, or done with."""
        if self.deaths is not None:
            self.deaths.add(ranges, reason)
        else:
            self._lanes.drop(ranges)
            if reason != EXPIRED:
                self.dropped += _count_of(ranges)

    def _count(self, ranges: Ranges) -> Ranges:
        """Unacked messages were delivered in vain; returns those that may be delivered again."""
        limit = self.terms.delivery_limit
        if limit is None:
            return ranges
        again, spent = self._lanes.count(ranges, limit)
        if spent:
            self._lanes.set_aside(spent)
            self._bury(spent, DELIVERY_LIMIT)
        return again

    def _counted(self, parcel: Delivery) -> list[Delivery]:
        """A parcel, cut where its messages were not delivered equally often."""
        if not parcel.redelivered:
            return [parcel]
        pieces = self._lanes.divide(parcel.first, parcel.run)
        return [Delivery(first, True, deliveries, run) for first, deliveries, run in pieces]


def _count_of(ranges: Ranges) -> int:
    return sum([end - start for start, end in ranges])
