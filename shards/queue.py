"""One queue: what is ready, in which order, what was handed out, what is done with.

Messages are numbered in the order they came. All below the cursor were handed out at least once; of those, the ones
that came back are ready again, at their place, before the fresh ones. The counts are kept as things happen.

    0 ............ done with ..............|.. handed out ..|. returned .|.. handed out ..| fresh .......... next
                                                                                          ^ cursor       ^ mark (stored)
"""

from collections.abc import Iterable
from typing import Any, Final

from shardmq.limits import RUN_RECORDS_MAX
from shardmq.model import Queue as Declared
from shardmq.ranges import RangeSet
from shardmq.records import PERSISTENT, Run, continues, join
from shardmq.shards.journal import Journal
from shardmq.shards.segments import SEGMENT_BYTES, Cutter, Index, NumberedRun, Segment, place_of

MARK_LEAP: Final = 16_384
"""How far the mark is raised ahead of the cursor. It costs one 16-byte write per so many messages; after a crash, up to
so many messages are called redelivered though they were not."""

JOIN_BYTES_MAX: Final = 4096
"""Runs up to this size are joined on delivery where they continue one another; larger ones cost more to copy than to
send by themselves."""

Parcel = tuple[int, bool, Run]
"""(number of the first message, redelivered, messages)"""


class Queue:
    """State of one queue.

    Args:
        declared: what it is.
        journal: where its changes are written down.
        mark: as stored: every number handed out to anybody, ever, is below it.
        segments: as stored, in order.

    Attributes:
        next: the number the next message gets.
        cursor: below it, everything was handed out once.
        mark: see above.
        fresh: messages never handed out.
        returned: handed out before, and ready again.
        unacked: handed out, and not done with.
        total: messages in its segments, dead ones included.
        bytes: of their records.
        published, delivered, acked, redelivered: since start.
    """

    def __init__(self, declared: Declared, journal: Journal, mark: int = 0, segments: Iterable[Segment] = ()) -> None:
        self.declared = declared
        self.id = declared.id
        self.index = Index()
        self.cursor = self.next = self.mark = mark
        self.returned = RangeSet()
        self.fresh = self.unacked = self.total = self.bytes = 0
        self.published = self.delivered = self.acked = self.redelivered = 0
        self.young = 0
        self._durable = declared.durable
        self._journal = journal
        self._open: Segment | None = None
        self._cutter = Cutter()
        self._reading: Segment | None = None
        self._reading_place = 0
        for segment in segments:
            self._adopt(segment)

    @property
    def ready(self) -> int:
        """Messages that wait for a consumer."""
        return self.fresh + self.returned.count

    @property
    def valid(self) -> int:
        """Messages not done with."""
        return self.fresh + self.returned.count + self.unacked

    # --- messages come ----------------------------------------------------------------------------------------------

    def append(self, run: Run) -> None:
        """Put a run at the end."""
        count = run.count
        size = len(run.records)
        durable = self._durable and run.flags & PERSISTENT != 0
        segment = self._open
        if segment is None or segment.durable is not durable or segment.bytes >= SEGMENT_BYTES:
            segment = self._open = Segment(self.id, self.next, durable, self._journal.now)
            self.index.append(segment)
            self.young += 1
            self._journal.open(segment)
        assert segment.runs is not None
        segment.runs.append((self.next, run))
        self.next = segment.end = self.next + count
        segment.count += count
        segment.live += count
        segment.bytes += size
        self.fresh += count
        self.total += count
        self.bytes += size
        self.published += count

    def seal(self) -> None:
        """The pass ends; what comes next goes into another segment."""
        self._open = None

    # --- messages go out --------------------------------------------------------------------------------------------

    def take(self, limit: int, room: int, alone: bool) -> list[Parcel]:
        """Hand out ready messages, in order; they are unacked from here on.

        Args:
            limit: so many at most.
            room: bytes they may take together.
            alone: whether a first message larger than `room` may go nevertheless, by itself.
        """
        parcels: list[tuple[int, bool, list[Run]]] = []
        end = taken = joined = 0
        returned = self.returned
        while limit > 0:
            redelivered = bool(returned)
            if redelivered:
                first, count, place, run = self._next_returned()
            elif self.fresh:
                first, count, place, run = self._next_fresh()
            else:
                break
            count = min(count, limit)
            piece = run
            if count < run.count or len(run.records) > room:
                count = min(count, self._cutter.fitting(run, place, room)) or (alone and not parcels)
                if not count:
                    break
                piece = self._cutter.cut(run, place, place + count)
            if redelivered:
                returned.remove(first, first + count)
                self.redelivered += count
            else:
                self.fresh -= count
                self._pass(first + count, run, place + count)
            size = len(piece.records)
            room -= size
            limit -= count
            taken += count
            if (first == end and size <= JOIN_BYTES_MAX and parcels and parcels[-1][1] is redelivered
                    and joined + count <= RUN_RECORDS_MAX and continues(parcels[-1][2][-1], piece)):  # fmt: skip
                parcels[-1][2].append(piece)
                joined += count
            else:
                parcels.append((first, redelivered, [piece]))
                joined = count
            end = first + count
        self.unacked += taken
        self.delivered += taken
        return [(first, again, runs[0] if len(runs) == 1 else join(runs)) for first, again, runs in parcels]

    # --- messages are done with, or come back -----------------------------------------------------------------------

    def settle(self, ranges: list[tuple[int, int]]) -> None:
        """Unacked messages are done with."""
        for start, end in ranges:
            self.unacked -= end - start
            self.acked += end - start
            self._bury(start, end)

    def give_back(self, ranges: list[tuple[int, int]]) -> None:
        """Unacked messages are ready again, at their place."""
        for start, end in ranges:
            self.unacked -= self.returned.add(start, end)

    def purge(self) -> int:
        """Remove what is ready; returns how many messages that were."""
        count = self.ready
        for start, end in self.returned:
            self._bury(start, end)
        self.returned.clear()
        if self.fresh:
            segments = self.index.segments
            for segment in segments[self.index.place(self.cursor) :]:
                for start, end in segment.living(self.cursor, segment.end):
                    self._bury(start, end)
            self.cursor = self.next
            self.fresh = 0
            self._reading = None
            self._cutter.forget()
            if self._durable and self.mark < self.cursor:
                # Below the mark, what is not stored as gone is taken to be alive; above, it is fresh.
                self._raise_mark(self.cursor)
        return count

    def exact_mark(self) -> int | None:
        """The mark of a clean stop, unless it is what is stored: nobody need be told of redeliveries that were none."""
        return self.cursor if self._durable and self.mark != self.cursor else None

    # --- segments are replaced --------------------------------------------------------------------------------------

    def replace(self, start: int, stop: int, new: list[Segment]) -> None:
        """Segments `start` to `stop` give way to others with the same live messages."""
        old = self.index.segments[start:stop]
        for segment in old:
            self.total -= segment.count
            self.bytes -= segment.bytes
            if segment is self._reading:
                self._reading = None
        for segment in new:
            self.total += segment.count
            self.bytes += segment.bytes
        self._cutter.forget()
        self.index.replace(start, stop, new)
        self._journal.rewrite(old, new)

    def table(self, consumers: int) -> dict[str, Any]:
        """Its counts, as `shardmq status` shows them."""
        return {
            "id": self.id, "vhost": self.declared.vhost, "name": self.declared.name, "durable": self._durable,
            "total": self.total, "valid": self.valid, "ready": self.ready, "unacked": self.unacked,
            "consumers": consumers, "bytes": self.bytes, "segments": len(self.index.segments),
            "published": self.published, "delivered": self.delivered, "acked": self.acked,
            "redelivered": self.redelivered,
        }  # fmt: skip

    # --- inside -----------------------------------------------------------------------------------------------------

    def _adopt(self, segment: Segment) -> None:
        """Take over a stored segment: what is live below the mark may have been handed out, and is ready again."""
        self.index.append(segment)
        self.young += 1
        self.total += segment.count
        self.bytes += segment.bytes
        self.next = max(self.next, segment.end)
        if segment.first >= self.cursor:
            self.fresh += segment.live
            return
        for start, end in segment.living(segment.first, self.cursor):
            self.returned.add(start, end)
        self.fresh += sum(end - start for start, end in segment.living(self.cursor, segment.end))

    def _next_returned(self) -> tuple[int, int, int, Run]:
        first, end = self.returned.first()
        runs = self._journal.runs(self.index.segments[self.index.place(first)])
        run_first, run = runs[place_of(runs, first)]
        return first, min(end, run_first + run.count) - first, first - run_first, run

    def _next_fresh(self) -> tuple[int, int, int, Run]:
        segment = self._reading
        runs = segment.runs if segment is not None else None
        if runs is None or self._reading_place >= len(runs):
            runs = self._locate()
        run_first, run = runs[self._reading_place]
        first = self.cursor
        if first < run_first:  # noqa: PLR1730 - max() would take four times as long
            first = run_first
        place = first - run_first
        return first, run.count - place, place, run

    def _locate(self) -> list[NumberedRun]:
        """Find the run that holds the first fresh message."""
        segment = self._reading = self.index.segments[self.index.place(self.cursor)]
        runs = self._journal.runs(segment)
        self._reading_place = place_of(runs, self.cursor)
        return runs

    def _pass(self, end: int, run: Run, place: int) -> None:
        """The fresh messages up to number `end`, which is `place` in its run, are handed out."""
        self.cursor = end
        if place == run.count:
            self._reading_place += 1
        if end > self.mark and self._durable and run.flags & PERSISTENT:
            self._raise_mark(end + MARK_LEAP)

    def _raise_mark(self, mark: int) -> None:
        self.mark = mark
        self._journal.mark(self.id, mark)

    def _bury(self, start: int, end: int) -> None:
        """Live messages [start, end) are done with."""
        index = self.index
        segments = index.segments
        place = index.place(start)
        while start < end:
            segment = segments[place]
            stop = min(end, segment.end)
            segment.bury(start, stop)
            start = stop
            if segment.live:
                if segment.durable:
                    self._journal.change(segment)
                place += 1
            else:
                self._remove(place, segment)

    def _remove(self, place: int, segment: Segment) -> None:
        self.index.replace(place, place + 1, [])
        self.total -= segment.count
        self.bytes -= segment.bytes
        if segment is self._open:
            self._open = None
        if segment is self._reading:
            self._reading = None
        self._journal.end(segment)
