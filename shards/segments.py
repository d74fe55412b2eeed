"""Segments: the unit in which messages are stored, read back and deleted; and which bodies are in memory.

A queue numbers its messages from 0 up. A segment holds runs in order; numbers in between may be missing.

    queue     |  segment [0, 900)      |  segment [900, 1400)  |  segment [1500, 1510)
    runs      |  0: 500   500: 400     |  900: 500             |  1500: 1   1503: 7
    gone      |  0..300                |                       |  1501..1503
"""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from operator import itemgetter
from typing import Final

from shardmq.ranges import RangeSet
from shardmq.records import AMQP, Run, ends, unpack, unpack_raw
from shardmq.shards.counts import Counts

SEGMENT_BYTES: Final = 1 << 20
"""About where a segment is closed. Read back whole when a body of it is needed, so not larger than a read-ahead."""

RUN_OVERHEAD_BYTES: Final = 450
"""What a run takes in memory besides its records: the struct, its numbers, names and tuple (measured)."""

_NIL_HEADERS: Final = {b"\x92\xc0\xc4": 4, b"\x92\xc0\xc5": 5, b"\x92\xc0\xc6": 7}
"""How a record without properties begins, and how many bytes come before its body."""

_first = itemgetter(0)
NumberedRun = tuple[int, Run]


class Segment:
    """Runs of one queue that lie in one stored value.

    Attributes:
        queue: the queue's id.
        first: the lowest number.
        end: one past the highest number.
        count: messages in it, dead ones included.
        bytes: of their records.
        live: messages not done with.
        gone: numbers in [first, end) that are not live: done with, or never there. None is none.
        runs: bodies, when they are in memory.
        durable: whether it survives a restart.
        stored: whether it is in the store.
        born: when it was made, monotonic seconds.
        mortal: whether a message in it brought a time to live.
        body_bytes: of its messages' bodies, dead ones included, in queues that count them; None in others.
        counts: how often messages in it were delivered in vain, in queues that count that. None is never.
    """

    __slots__ = ("body_bytes", "born", "bytes", "count", "counts", "durable", "end", "first", "gone", "live", "mortal",
                 "queue", "runs", "stored")  # fmt: skip

    def __init__(self, queue: int, first: int, durable: bool, born: float) -> None:
        self.queue = queue
        self.first = first
        self.end = first
        self.count = 0
        self.bytes = 0
        self.live = 0
        self.gone: RangeSet | None = None
        self.runs: list[NumberedRun] | None = []
        self.durable = durable
        self.stored = False
        self.born = born
        self.mortal = False
        self.body_bytes: int | None = None
        self.counts: Counts | None = None

    def __repr__(self) -> str:
        return f"Segment(queue {self.queue}, [{self.first}, {self.end}), {self.live} of {self.count} live)"

    def bury(self, start: int, end: int) -> None:
        """Live messages [start, end) of this segment are done with."""
        self.live -= end - start
        if self.live:
            gone = self.gone
            if gone is None:
                gone = self.gone = RangeSet()
            gone.add(start, end)
            if self.counts is not None:
                self.counts.remove(start, end)

    def living(self, start: int, end: int) -> list[tuple[int, int]]:
        """Ranges of live numbers inside [start, end)."""
        start, end = max(start, self.first), min(end, self.end)
        if start >= end:
            return []
        return [(start, end)] if self.gone is None else self.gone.gaps(start, end)


def place_of(runs: list[NumberedRun], number: int) -> int:
    """Which run holds that number, or is the first behind it."""
    place = bisect_right(runs, number, key=_first)
    if place:
        first, run = runs[place - 1]
        if number < first + run.count:
            return place - 1
    return place


def body_sizes(run: Run) -> list[int]:
    """How many bytes each message's body has."""
    if run.count == 1:
        header = _NIL_HEADERS.get(run.records[:3])
        if header is not None:
            return [len(run.records) - header]
    if run.flags & AMQP:
        return [len(body) for _, body in unpack_raw(run.records, run.count)]
    return [len(record.body) for record in unpack(run.records, run.count)]


class Cutter:
    """Cuts pieces off one run after another.

    It remembers where the records of the last run end: a consumer with a prefetch of 1 would otherwise have a run of
    500 skipped through 500 times (10 to 25 us each).
    """

    __slots__ = ("_ends", "_run")

    def __init__(self) -> None:
        self._run: Run | None = None
        self._ends: list[int] = []

    def cut(self, run: Run, start: int, stop: int) -> Run:
        """Messages [start, stop) of a run, as a run."""
        if start == 0 and stop == run.count:
            if run is self._run:  # it may be a large one: each queue would keep its last
                self.forget()
            return run
        offsets = self._offsets(run)
        begin = offsets[start - 1] if start else 0
        piece = Run(run.exchange, run.routing_key, run.flags, run.timestamp_ms, run.origin, run.serial + start,
                    stop - start, run.records[begin : offsets[stop - 1]], run.priority, run.ttl_ms)  # fmt: skip
        if stop == run.count:
            self.forget()
        return piece

    def fitting(self, run: Run, start: int, room: int) -> int:
        """How many messages from `start` on take at most `room` bytes."""
        offsets = self._offsets(run)
        begin = offsets[start - 1] if start else 0
        return max(0, bisect_right(offsets, begin + room) - start)  # room is below 0 behind a message larger than it

    def size(self, run: Run, place: int) -> int:
        """Bytes of the message at a place of a run."""
        if run.count == 1:
            return len(run.records)
        offsets = self._offsets(run)
        return offsets[place] - (offsets[place - 1] if place else 0)

    def forget(self) -> None:
        """Let go of the run."""
        self._run = None
        self._ends = []

    def _offsets(self, run: Run) -> list[int]:
        if run is not self._run:
            self._ends = ends(run.records, run.count)
            self._run = run
        return self._ends


class Cache:
    """Which segments have their bodies in memory, first come first dropped.

    Args:
        bytes_max: what they may take together.
    """

    __slots__ = ("_costs", "bytes", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self.bytes_max = bytes_max
        self._costs: OrderedDict[Segment, int] = OrderedDict()

    def add(self, segment: Segment) -> None:
        """The bodies of this segment are in memory, and complete."""
        cost = segment.bytes + RUN_OVERHEAD_BYTES * len(segment.runs or ())
        self._costs[segment] = cost
        self.bytes += cost

    def remove(self, segment: Segment) -> None:
        """They are not any more."""
        self.bytes -= self._costs.pop(segment, 0)

    def surplus(self) -> list[Segment]:
        """Take out what is over the limit; the owner drops their bodies."""
        segments = []
        while self.bytes > self.bytes_max:
            segment, cost = self._costs.popitem(last=False)
            self.bytes -= cost
            segments.append(segment)
        return segments


class Index:
    """The segments of a queue in order."""

    __slots__ = ("_firsts", "segments")

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self._firsts: list[int] = []

    def append(self, segment: Segment) -> None:
        """One more, behind all others."""
        self.segments.append(segment)
        self._firsts.append(segment.first)

    def place(self, number: int) -> int:
        """Where the segment is that holds that number, or the first behind it."""
        place = bisect_right(self._firsts, number)
        if place and number < self.segments[place - 1].end:
            return place - 1
        return place

    def place_of(self, segment: Segment) -> int:
        """Where that segment is."""
        return bisect_left(self._firsts, segment.first)

    def replace(self, start: int, stop: int, segments: list[Segment]) -> None:
        """Put others in the place of segments `start` to `stop`."""
        self.segments[start:stop] = segments
        self._firsts[start:stop] = [segment.first for segment in segments]
