"""What a start finds in a shard's store, and what a pass writes to it."""

from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from shardmq.clock import ClockNote
from shardmq.errors import RowDamaged
from shardmq.model import Queue as Declared
from shardmq.records import Run
from shardmq.shards.identity import StoreIdentity
from shardmq.shards.producers import Seen
from shardmq.shards.segments import Segment


class Timer(NamedTuple):
    """Something of a queue that waits for a time: messages that are to come, or some it has that are to be ready.

    Attributes:
        queue: the queue's id.
        due_ms: when.
        serial: tells it from others of that time; of parked messages, the first's number.
        messages: how many.
        parked: whether they are in the queue already.
        durable: whether it survives a restart.
        run: the messages, unless they are parked or were not asked for.
    """

    queue: int
    due_ms: int
    serial: int
    messages: int
    parked: bool
    durable: bool
    run: Run | None = None


class StagedPlace(NamedTuple):
    """Where a staged run is, and what is to be known of it without reading it.

    Attributes:
        transaction: number of the transaction.
        attempt: who staged it.
        sequence: the attempt's number of its first message.
        messages: how many.
        bytes: of their records.
    """

    transaction: int
    attempt: int
    sequence: int
    messages: int
    bytes: int


class Staged(NamedTuple):
    """A staged run: `queues` get it, `delay_ms` later, if its transaction is committed."""

    place: StagedPlace
    queues: tuple[int, ...]
    delay_ms: int
    run: Run


class DamagedStage(NamedTuple):
    """A staged run that is not what was written."""

    place: StagedPlace
    damage: RowDamaged


class Sealed(NamedTuple):
    """What an attempt has here: it takes nothing more."""

    messages: int
    bytes: int


class Reservation(msgspec.Struct, array_like=True):
    """Messages of a queue that are set aside under a name until a time.

    Attributes:
        queue: the queue's id.
        name: its name.
        ranges: numbers of the messages that are left of it, as half-open ranges; those that are not in the queue any
            more may be among them.
        until_ms: when they are back at their place; when its name is forgotten, where it was acknowledged.
        is_acknowledged: whether all of it was.
        span: from the first number it had, when it was made, to behind the last.
        fresh_from: numbers, one for each lane: those below had been handed out before, of the messages of that lane.
    """

    queue: int
    name: str
    ranges: list[tuple[int, int]]
    until_ms: int
    is_acknowledged: bool = False
    span: tuple[int, int] = (0, 0)
    fresh_from: list[int] = []


@dataclass(slots=True)
class Contents:
    """What a start finds.

    Attributes:
        queues: durable queues.
        marks: of lanes, by queue and lane.
        segments: of all queues, in order of queue and number.
        dropped: ids of queues that are being deleted.
        producers: numbers that queues have of producers: (queue, producer, ranges).
        sealed: by transaction and attempt.
        concluding: attempts that were committed, by transaction, where their messages may not be in their queues yet.
        ended: numbers of transactions that are decided, as half-open ranges.
        reservations: of all queues.
        clock: what time it was last.
        damaged: what is damaged, of queues that are out of service for that.
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
    clock: ClockNote | None = None
    damaged: list[RowDamaged] = field(default_factory=list)


@dataclass(slots=True)
class Writes:
    """What goes into one transaction of the store. Deletions come first.

    Attributes:
        delete: segments that are stored.
        put: segments with their bodies.
        gone: segments of which ranges are gone.
        marks: of lanes, by queue and lane; None for those that are no more.
        queues: that are new.
        dropped: ids of queues to be deleted.
        cleared: ids of queues of which nothing is left.
        timers: that are new.
        fired: timers that are no more.
        producers: numbers that a queue has of a producer, by (queue, producer); None when it is forgotten.
        staged: runs that are new.
        unstaged: places of staged runs that are no more.
        sealed: attempts, by (transaction, attempt); None when they are forgotten.
        concluding: attempts whose messages are to join their queues, by transaction; None when they have.
        ended: numbers of transactions that are decided, all of them, where there is a new one.
        reservations: by (queue, name); None for those that are no more.
        clock: what time it is, where that is to be noted.
        damaged: what was found damaged, of queues that are out of service from now on.
        identity: whose the store is, where that has changed.
    """

    delete: list[Segment] = field(default_factory=list)
    put: list[Segment] = field(default_factory=list)
    gone: list[Segment] = field(default_factory=list)
    marks: dict[tuple[int, int], int | None] = field(default_factory=dict)
    queues: list[Declared] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    cleared: list[int] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)
    fired: list[Timer] = field(default_factory=list)
    producers: dict[tuple[int, int], Seen | None] = field(default_factory=dict)
    staged: list[Staged] = field(default_factory=list)
    unstaged: list[StagedPlace] = field(default_factory=list)
    sealed: dict[tuple[int, int], Sealed | None] = field(default_factory=dict)
    concluding: dict[int, list[int] | None] = field(default_factory=dict)
    ended: list[tuple[int, int]] | None = None
    reservations: dict[tuple[int, str], Reservation | None] = field(default_factory=dict)
    clock: ClockNote | None = None
    damaged: list[RowDamaged] = field(default_factory=list)
    identity: StoreIdentity | None = None
