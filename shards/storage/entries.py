"""What is stored beside segments: timers, staged batches, reservations, producers' sequences, groups' cursors."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

import msgspec

from shardmq.errors import RowDamaged
from shardmq.limits import LETTER_PRODUCERS
from shardmq.message.record_batch import RecordBatch
from shardmq.ranges import RangeSet
from shardmq.shards.segments.shared_batch import SharedBatch, referring

LETTER_RANGES_MAX: Final = 1024
"""Ranges kept of one queue's dead letters. There are as many as were rejected between others that were not, since the
oldest messages that the queue still has: gaps are closed as far as it tells."""


RANGES_MAX: Final = 64
"""Ranges kept of one producer: one that spreads its messages over queues leaves a gap at each that went elsewhere."""

RANGES_KEPT: Final = 32
"""Beyond, all below these is behind the horizon. Half of them at a time, as one by one would cost every publish."""

_HORIZON: Final = -1
"""No number; a first range that begins with it ends at the horizon."""


class SequenceSet(RangeSet):
    """The numbers a queue has of one producer.

    Attributes:
        producer: who.
        is_due: whether they are to be written with the next commit.
    """

    __slots__ = ("is_due", "producer")

    def __init__(self, producer: int, ranges: Iterable[tuple[int, int]] = ()) -> None:
        super().__init__(ranges)
        self.producer = producer
        self.is_due = False

    @property
    def horizon(self) -> int:
        """Below it, what is said to be seen may not have been."""
        if not self:
            return 0
        start, end = self.first()
        return end if start == _HORIZON else 0

    def trim(self) -> None:
        """Keep few enough ranges."""
        if self.producer >= LETTER_PRODUCERS:
            if len(self) > LETTER_RANGES_MAX:
                lost = [*self][: LETTER_RANGES_MAX // 2]
                self.remove(lost[0][0], lost[-1][1])
        elif len(self) > RANGES_MAX:
            self.fill(len(self) - RANGES_KEPT + 1)
            self.add(_HORIZON, 0)


class Timer(NamedTuple):
    """Messages of a queue that wait for a time: delayed publishes, or messages that were returned with a delay.

    Attributes:
        queue: the queue's id.
        due_ms: when.
        serial: tells it from others of that time; of returned messages, the first's number.
        messages: how many.
        is_return: whether they are in the queue already, returned with a delay.
        durable: whether it survives a restart.
        batch: the messages; None where they were returned, or were not asked for.
    """

    queue: int
    due_ms: int
    serial: int
    messages: int
    is_return: bool
    durable: bool
    batch: RecordBatch | None = None


class StagedPlace(NamedTuple):
    """The place of a staged batch, and what is known of it without reading it.

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
    """A staged batch: `queues` get it, `delay_ms` later, if its transaction is committed."""

    place: StagedPlace
    queues: tuple[int, ...]
    delay_ms: int
    batch: RecordBatch

    @property
    def body(self) -> int | None:
        """Return the number of the shared body that is its records; None where it has them itself."""
        return self.batch.body if isinstance(self.batch, SharedBatch) else None

    @property
    def stored(self) -> tuple[tuple[int, ...], int, RecordBatch]:
        """Return what is stored of it at its place."""
        batch = self.batch
        return self.queues, self.delay_ms, referring(batch) if isinstance(batch, SharedBatch) else batch


class DamagedStage(NamedTuple):
    """A staged batch that is not what was written."""

    place: StagedPlace
    damage: RowDamaged


class Sealed(NamedTuple):
    """What a sealed attempt has on this shard."""

    messages: int
    bytes: int


class Reservation(msgspec.Struct, array_like=True):
    """Messages of a queue that are held under a name until a time.

    Attributes:
        queue: the queue's id.
        name: its name.
        ranges: numbers of the messages that are left of it, as half-open ranges; those that are not in the queue any
            more may be among them.
        until_ms: when they are back at their place; when its name is forgotten, where it was acknowledged.
        is_acknowledged: whether all of it was.
        span: from the first number it had, when it was made, to behind the last.
        fresh_from: for each subqueue, the number below which its messages had been delivered before.
    """

    queue: int
    name: str
    ranges: list[tuple[int, int]]
    until_ms: int
    is_acknowledged: bool = False
    span: tuple[int, int] = (0, 0)
    fresh_from: list[int] = []


class GroupSettings(msgspec.Struct, array_like=True, frozen=True):
    """What the first member of a group said of it; all others have to say the same.

    Attributes:
        is_shared: whether any number of consumers get its messages in turn.
        delivery_limit: how often a message is returned before it dies; None for no limit.
        dead_letter_exchange: where dead letters go; None where they are dropped.
        dead_letter_routing_key: by which key; None for the one they were published with.
        tags: messages with one of these are read; None for all.
        has_untagged: beside them, messages without a tag.
    """

    is_shared: bool
    delivery_limit: int | None = None
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    tags: tuple[str, ...] | None = None
    has_untagged: bool = False


SETTINGS_KEPT: Final = 1024
"""Settings that cursors have in common."""


@lru_cache(SETTINGS_KEPT)
def common_settings(settings: GroupSettings) -> GroupSettings:
    """Return the settings that are equal to these and were asked for first: a thousand partitions have them once."""
    return settings


class CursorRow(msgspec.Struct, array_like=True):
    """What is stored of a group's cursor in a partition.

    Attributes:
        offset: the lowest message that is not acknowledged; what is read next where there is none.
        epoch: the newest.
        mark: what was delivered is below it.
        settings: of the group; None where no member has consumed yet.
        letters: whose messages its dead letters are published as.
        lost: how many messages retention dropped before the group had read them.
        acked: ranges above `offset` that are acknowledged, counted from it.
        counts: how often messages were returned: (start, end, count), where the group limits that.
        delays: messages returned with a delay: (when they are due, start, end).
        partitions_at_begin: how many the topic had when the group began; 0 where that is not known.
    """

    offset: int
    epoch: int
    mark: int
    settings: GroupSettings | None = None
    letters: int = 0
    lost: int = 0
    acked: list[tuple[int, int]] = []
    counts: list[tuple[int, int, int]] = []
    delays: list[tuple[int, int, int]] = []
    partitions_at_begin: int = 0


class StoredCursor(Protocol):
    """A cursor that is to be written."""

    @property
    def row_size(self) -> int:
        """Return about how large its row is, in hundreds of bytes."""

    def row(self) -> CursorRow:
        """Return what is stored of it."""
