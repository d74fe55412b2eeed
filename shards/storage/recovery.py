"""What a start finds of each queue."""

from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from shardmq.errors import RowDamaged
from shardmq.runtime.clock import ClockNote
from shardmq.shards.segments.index_entry import segment_of
from shardmq.shards.segments.segment import Segment
from shardmq.shards.storage import decoding
from shardmq.shards.storage.entries import CursorRow, Reservation, Sealed
from shardmq.shards.storage.rows import Rows
from shardmq.shards.storage.schema import (
    BODIES_NOTED,
    CLOCK,
    CONCLUDING,
    CURSORS,
    DATABASES,
    DROPPED,
    ENDED,
    INDEX,
    MARKS,
    PRODUCERS,
    QUEUES,
    RESERVATIONS,
    SEALED,
    SEGMENTS,
    STAGED,
    STAGES,
    STATE,
    number_of,
    segment_key,
)
from shardmq.topology.entities import Queue as Declared


@dataclass(slots=True)
class StoredState:
    """What a start finds in the store.

    Attributes:
        queues: durable queues.
        marks: of subqueues, by queue and subqueue.
        segments: of all queues, in order of queue and number.
        dropped: ids of queues that are being deleted.
        producers: numbers that queues have of producers: (queue, producer, ranges).
        sealed: by transaction and attempt.
        concluding: attempts that were committed, by transaction, where their messages may not be in their queues yet.
        ended: numbers of transactions that are decided, as half-open ranges.
        reservations: of all queues.
        cursors: of groups: (queue, group, cursor).
        clock: what time it was last.
        damaged: what is damaged, of queues that are out of service for that.
        bodies_noted: every number that a shared body ever had is below it.
        is_index_whole: whether all segments and staged batches that are stored are known.
    """

    queues: list[Declared] = field(default_factory=list)
    marks: dict[tuple[int, int], int] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    producers: list[tuple[int, int, list[tuple[int, int]]]] = field(default_factory=list)
    sealed: dict[tuple[int, int], Sealed] = field(default_factory=dict)
    concluding: dict[int, list[int]] = field(default_factory=dict)
    ended: list[tuple[int, int]] = field(default_factory=list)
    reservations: list[Reservation] = field(default_factory=list)
    cursors: list[tuple[int, str, CursorRow]] = field(default_factory=list)
    clock: ClockNote | None = None
    damaged: list[RowDamaged] = field(default_factory=list)
    bodies_noted: int = 0
    is_index_whole: bool = True


_REFERRING: Final = frozenset({DATABASES[number].decode() for number in (INDEX, SEGMENTS, STAGES, STAGED)})
"""Databases of which damage may hide references to shared bodies."""


def read_state(rows: Rows, key_damage: Iterable[RowDamaged] = ()) -> StoredState:
    """Read all small rows of a store, and the index of segments.

    Args:
        rows: of the store.
        key_damage: damaged keys that are known.

    Raises:
        RowDamaged: a row is not what was written, and belongs to no queue.
    """
    damaged = list(key_damage)
    contents = StoredState(
        queues=rows.all(QUEUES, decoding.declaration_of, damaged),
        marks=dict(rows.all(MARKS, decoding.mark_of, damaged)),
        dropped=rows.all(DROPPED, lambda key, _: number_of(key), damaged),
        segments=rows.all(INDEX, segment_of, damaged),
        producers=rows.all(PRODUCERS, decoding.producer_of, damaged),
        sealed=dict(rows.all(SEALED, decoding.sealed_of, damaged)),
        concluding=dict(rows.all(CONCLUDING, decoding.concluding_of, damaged)),
        ended=rows.state(ENDED, decoding.decode_ranges) or [],
        reservations=rows.all(RESERVATIONS, decoding.reservation_of, damaged),
        cursors=rows.all(CURSORS, decoding.cursor_of, damaged),
        clock=rows.state(CLOCK, decoding.decode_note),
        bodies_noted=rows.state(BODIES_NOTED, number_of) or 0,
    )
    contents.is_index_whole = not any(damage.database in _REFERRING for damage in damaged)
    contents.damaged = damaged + list(filter(None, rows.all(STATE, rows.noted_damage, damaged)))
    return contents


def check_owners(contents: StoredState, rows: Rows) -> None:
    """Note messages of a queue that is not there: its own row is damaged, or what says whose they are."""
    known = {queue.id for queue in contents.queues}.union(contents.dropped)
    known.update(damage.queue for damage in contents.damaged if damage.queue is not None)
    for segment in contents.segments:
        if segment.queue not in known:
            known.add(segment.queue)
            what = f"messages of queue {segment.queue}, which is not in it"
            contents.damaged.append(rows.damage(INDEX, segment_key(segment), what))


_first = attrgetter("first")


@dataclass(slots=True)
class RecoveredQueue:
    """What a start finds of one queue.

    Attributes:
        marks: of its subqueues, by number.
        segments: of all its subqueues, in order.
        delayed: numbers of messages that are neither ready nor unacked, but wait for a time to come.
        reserved: of those that are reserved.
        cursors: of groups that read it, by name.
    """

    marks: dict[int, int] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    delayed: list[tuple[int, int]] = field(default_factory=list)
    reserved: list[tuple[int, int]] = field(default_factory=list)
    cursors: dict[str, CursorRow] = field(default_factory=dict)

    def living(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return those of the messages [start, end) that are there and not settled."""
        ranges: list[tuple[int, int]] = []
        place = max(bisect_right(self.segments, start, key=_first) - 1, 0)
        while place < len(self.segments) and self.segments[place].first < end:
            ranges += self.segments[place].living(start, end)
            place += 1
        return ranges

    def has_living(self, start: int, end: int) -> bool:
        """Whether one of the messages [start, end) is there and not settled."""
        return bool(self.living(start, end))


NOTHING_STORED: Final = RecoveredQueue()
"""Of a queue that is new."""


def stored_queues(contents: StoredState, left_out: Collection[int] = ()) -> dict[int, RecoveredQueue]:
    """Return what a start found, by queue; deleted queues of which something is left are among them.

    Args:
        contents: what a start found.
        left_out: ids of queues that are out of service.
    """
    numbers = [*(queue.id for queue in contents.queues), *contents.dropped]
    found = {number: RecoveredQueue() for number in numbers if number not in left_out}
    for (queue, subqueue), mark in contents.marks.items():
        if queue in found:
            found[queue].marks[subqueue] = mark
    for segment in contents.segments:
        if segment.queue in found:  # else it is out of service
            found[segment.queue].segments.append(segment)
    for queue, group, cursor in contents.cursors:
        if queue in found:
            found[queue].cursors[group] = cursor
    return found
