"""What one commit of a shard writes."""

from dataclasses import dataclass, field

from shardmq.errors import RowDamaged
from shardmq.runtime.clock import ClockNote
from shardmq.shards.segments.segment import Segment
from shardmq.shards.storage.entries import Reservation, Sealed, SequenceSet, Staged, StagedPlace, StoredCursor, Timer
from shardmq.shards.storage.identity import StoreIdentity
from shardmq.topology.entities import Queue as Declared


@dataclass(slots=True)
class WriteBatch:
    """The changes of one commit. Deletions come first.

    Attributes:
        delete: segments that are stored.
        put: segments with their bodies.
        gone: segments of which ranges are gone.
        marks: of subqueues, by queue and subqueue; None for those that are no more.
        queues: that are new.
        dropped: ids of queues to be deleted.
        cleared: ids of queues of which nothing is left.
        timers: that are new.
        fired: timers that are no more.
        producers: numbers that a queue has of a producer, by (queue, producer); None when it is forgotten.
        staged: batches that are new.
        unstaged: places of staged batches that are no more.
        sealed: attempts, by (transaction, attempt); None when they are forgotten.
        concluding: attempts whose messages are to join their queues, by transaction; None when they have.
        ended: numbers of transactions that are decided, all of them, where there is a new one.
        reservations: by (queue, name); None for those that are no more.
        cursors: of groups, by (queue, group); None for those that are no more.
        replaced: damaged cursors that give way to others, keys and values; they are kept aside.
        clock: what time it is, where that is to be noted.
        damaged: what was found damaged, of queues that are out of service from now on.
        identity: whose the store is, where that has changed.
        bodies: shared bodies that are new: (whether durable, number, records).
        unreferred: shared bodies that nothing refers to any more: (whether durable, number).
        bodies_noted: every number of a shared body is below it, where that is to be noted.
        referred_bytes: of the records of `put` and `staged`, those that are written elsewhere or are there already.
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
    producers: dict[tuple[int, int], SequenceSet | None] = field(default_factory=dict)
    staged: list[Staged] = field(default_factory=list)
    unstaged: list[StagedPlace] = field(default_factory=list)
    sealed: dict[tuple[int, int], Sealed | None] = field(default_factory=dict)
    concluding: dict[int, list[int] | None] = field(default_factory=dict)
    ended: list[tuple[int, int]] | None = None
    reservations: dict[tuple[int, str], Reservation | None] = field(default_factory=dict)
    cursors: dict[tuple[int, str], StoredCursor | None] = field(default_factory=dict)
    replaced: list[tuple[bytes, bytes]] = field(default_factory=list)
    clock: ClockNote | None = None
    damaged: list[RowDamaged] = field(default_factory=list)
    identity: StoreIdentity | None = None
    bodies: list[tuple[bool, int, bytes]] = field(default_factory=list)
    unreferred: list[tuple[bool, int]] = field(default_factory=list)
    bodies_noted: int | None = None
    referred_bytes: int = 0

    @property
    def is_of_segments(self) -> bool:
        """Whether there is nothing but segments, as in most commits."""
        return not (
            self.marks
            or self.producers
            or self.queues
            or self.dropped
            or self.cleared
            or self.timers
            or self.fired
            or self.staged
            or self.unstaged
            or self.sealed
            or self.concluding
            or self.ended is not None
            or self.reservations
            or self.cursors
            or self.replaced
            or self.clock is not None
            or self.damaged
            or self.identity is not None
            or self.bodies
            or self.unreferred
            or self.bodies_noted is not None
        )
