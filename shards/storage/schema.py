"""How a shard's store lies in the engine: databases, keys and values, and the edits of a write batch.

    queues      queue id u64              msgpack Queue
    dropped     queue id u64              empty; its segments are being deleted
    marks       queue id u64 | subqueue u64     u64, see ReadyMessages; the subqueue is left out where it is 0; of a
                stream, where a repair has lost messages: the offset that the next one has at least
    index       queue u64 | first u64     end u64 | count u32 | flags and bytes u32 | the rest (see `extent_of`)
    segments    queue u64 | first u64     body: msgpack [[first, RecordBatch], ...]; in the place of records, a batch
                with the flag BY_REFERENCE has: shared body u64 | begin u32 | bytes u32
    spilled     as segments; of transient messages, emptied at start
    shared      number u64                body: records that segments of several queues refer to, or staged batches, and
                their queues' segments later; its number is never used again (shared_bodies.py)
    spilled_shared   as shared; what `spilled` refers to, emptied at start
    timers      queue u64 | due ms u64 | serial u64 | count u32     key checksum u64 | body: msgpack RecordBatch, which
                is delayed; or, with the highest bit of the count set, no body: messages [serial, serial + count) were
                returned with a delay (handlers/delays.py)
    spilled_timers   as timers; of transient messages, emptied at start
    producers   queue u64 | producer u64  msgpack [[start, end], ...], numbers it has (deduplication.py)
    stages      transaction u64 | attempt u64 | sequence u64 | count u32 | bytes u32     empty, or the number of the
                shared body u64 that the batch refers to (transactions.py)
    staged      as stages                 body: msgpack [[queue, ...], delay ms, RecordBatch]; the batch may have the
                flag BY_REFERENCE, as in segments
    sealed      transaction u64 | attempt u64                       msgpack [messages, bytes]
    concluding  transaction u64           msgpack [attempt, ...], whose batches are on their way into their queues
    reservations   queue u64 | xxh3_64 of the name u64              msgpack Reservation (reservations.py)
    cursors     queue u64 | name of the group                  msgpack CursorRow (shards/topics/group_cursor.py)
    replica     what a replica notes of itself (replication/store/note.py, touched_keys.py); empty on one machine
    state       "redo"                    u64, number of the last entry of the redo log (storage/redo) that is in here
                "clock"                   msgpack ClockNote
                "identity"                msgpack StoreIdentity (identity.py)
                "ended"                   msgpack [[start, end], ...], numbers of transactions that are decided
                "damaged" | queue u64     msgpack [database, key, what]: the queue is out of service
                "replaced" | key of a cursor   what was damaged there, until the group was reset
                "shared"                  u64, every number that a shared body ever had is below it

Every value begins with a checksum u64 (storage/checksums.py), which is left out above and added when it is stored. A
body's own is made with the body. It covers the key, too; but a start looks at keys alone: those of segments are those
of the index, those of staged are those of stages, those of shared are in the index, and those of timers have a
checksum before the body's.

The first version had checksums of bodies alone, which did not cover the key. Such bodies are read as they are. The
first two had no shared bodies, no version before the seventh has segments of partitions, and none before the eighth
summaries of their tags and cursors of groups.

All numbers are big-endian, so keys lie in order. A start reads the index and never a body: bodies are apart from it
because LMDB's Python binding touches every page of a value it passes, wanted or not.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

import msgspec
from xxhash import xxh3_64_intdigest

from shardmq.errors import RowDamaged
from shardmq.shards.segments.index_entry import extent_of
from shardmq.shards.segments.segment import NumberedBatch, Segment
from shardmq.shards.segments.shared_batch import SharedBatch, referring
from shardmq.shards.storage.entries import StagedPlace, Timer
from shardmq.shards.storage.write_batch import WriteBatch
from shardmq.storage.checksums import CHECKSUM_BYTES, is_row, row_seed, seal_row, sealed_row, was_row
from shardmq.storage.engine import Bytes, Edit, Layout, ReplicaLayout

FORMAT: Final = b"shardmq-shard"

DATABASES: Final = (
    b"queues",
    b"dropped",
    b"marks",
    b"index",
    b"segments",
    b"spilled",
    b"state",
    b"timers",
    b"spilled_timers",
    b"producers",
    b"stages",
    b"staged",
    b"sealed",
    b"concluding",
    b"reservations",
    b"shared",
    b"spilled_shared",
    b"cursors",
    b"replica",
)
"""By number: the redo log has numbers."""

(
    QUEUES,
    DROPPED,
    MARKS,
    INDEX,
    SEGMENTS,
    SPILLED,
    STATE,
    TIMERS,
    SPILLED_TIMERS,
    PRODUCERS,
    STAGES,
    STAGED,
    SEALED,
    CONCLUDING,
    RESERVATIONS,
    SHARED,
    SPILLED_SHARED,
    CURSORS,
    REPLICA,
) = range(len(DATABASES))

_QUEUES_FIRST: Final = frozenset(
    {QUEUES, DROPPED, MARKS, INDEX, SEGMENTS, SPILLED, TIMERS, SPILLED_TIMERS, PRODUCERS, RESERVATIONS, CURSORS}
)
"""Databases whose keys begin with a queue's id."""

APPLIED: Final = b"redo"
CLOCK: Final = b"clock"
ENDED: Final = b"ended"
DAMAGED: Final = b"damaged"
REPLACED: Final = b"replaced"
IDENTITY: Final = b"identity"
BODIES_NOTED: Final = b"shared"

NUMBER: Final = Struct(">Q")
PLACE: Final = Struct(">QQ")
TIMER: Final = Struct(">QQQI")
STAGE: Final = Struct(">QQQII")
RETURNED: Final = 1 << 31
VALUE_BYTES_KEPT: Final = 4 << 20
"""A buffer for values is used again; one that held a larger message is not kept."""

SMALL_BYTES_MAX: Final = 2 << 10
"""Up to so many bytes it takes less time to put a body and its checksum together than to write both into one buffer."""

ROWS: Final = (
    "the queue",
    "the note of a deleted queue",
    "the mark of what was handed out",
    "the entry of a segment",
    "a segment",
    "a segment",
    "the row",
    "a delayed message",
    "a delayed message",
    "what is known of a producer",
    "the entry of a staged batch",
    "a staged batch",
    "what an attempt staged",
    "the decision of a transaction",
    "a reservation",
    "a body that messages of several queues share",
    "a body that messages of several queues share",
    "the cursor of a group",
    "the note of a replica",
)
"""What a row of each database is, for messages."""

BODIES_APART: Final = frozenset({SEGMENTS, SPILLED, STAGED, SHARED, SPILLED_SHARED})
"""Databases of bodies whose keys are known from elsewhere."""

STAGED_DATABASES: Final = frozenset({DATABASES[STAGES].decode(), DATABASES[STAGED].decode()})
"""Databases whose keys begin with a transaction's number."""

FORGOTTEN: Final = (SPILLED, SPILLED_TIMERS, SPILLED_SHARED)
"""Databases that each start empties."""

WITH_KEYS_CHECKED: Final = frozenset({TIMERS, SPILLED_TIMERS})
"""Databases of bodies whose keys have a checksum of their own."""

_encoder: Final = msgspec.msgpack.Encoder()
_encode: Final = _encoder.encode


class Edits:
    """Turns a write batch into edits."""

    __slots__ = ("_value",)

    def __init__(self) -> None:
        self._value = bytearray()

    def of(self, writes: WriteBatch) -> Iterator[Edit]:
        """Yield the edits of a write batch, in order. A value is good until the next one is asked for."""
        for segment in writes.delete:
            key = segment_key(segment)
            if segment.durable:
                yield SEGMENTS, key, None
                yield INDEX, key, None
            else:
                yield SPILLED, key, None
        for place in writes.unstaged:
            key = STAGE.pack(*place)
            yield STAGED, key, None
            yield STAGES, key, None
        for segment in writes.put:
            key = segment_key(segment)
            number = SEGMENTS if segment.durable else SPILLED
            yield number, key, self._bodies_of(number, key, segment)
            if segment.durable:
                yield INDEX, key, extent_of(segment)
        for staged in writes.staged:
            key = STAGE.pack(*staged.place)
            yield STAGED, key, self._body(STAGED, key, staged.stored)
            yield STAGES, key, b"" if staged.body is None else NUMBER.pack(staged.body)
        for segment in writes.gone:
            yield INDEX, segment_key(segment), extent_of(segment)
        if len(self._value) > VALUE_BYTES_KEPT:
            self._value = bytearray()
        if not writes.is_of_segments:
            yield from _edits_of_others(writes)

    def _bodies_of(self, database: int, key: bytes, segment: Segment) -> bytes | bytearray:
        """A checksum, and the bodies of a segment behind it."""
        if segment.bytes <= SMALL_BYTES_MAX:
            return sealed_row(database, key, _encode(_stored_batches(segment)))
        return self._body(database, key, _stored_batches(segment))

    def _body(self, database: int, key: bytes, content: object) -> bytearray:
        """A checksum, and the content behind it."""
        value = self._value
        _encoder.encode_into(content, value, CHECKSUM_BYTES)
        seal_row(database, key, value)
        return value


def _stored_batches(segment: Segment) -> list[NumberedBatch] | None:
    if segment.shared is None or segment.batches is None:
        return segment.batches
    return [(first, referring(each) if type(each) is SharedBatch else each) for first, each in segment.batches]


def stored_value(database: int, key: bytes, value: Bytes) -> Bytes:
    """Return what is stored of an edit's value: the value, and the checksums that it has not yet."""
    if database in BODIES_APART:
        return value
    if database in WITH_KEYS_CHECKED:
        return NUMBER.pack(row_seed(database, key)) + value
    return sealed_row(database, key, value)


def edit_value(database: int, key: bytes, value: memoryview) -> memoryview | None:
    """Return the edit's value that a stored one was made of; None where it is not what was written."""
    if database in BODIES_APART:
        return value if is_row(database, key, value) or was_row(value) else None
    if database not in WITH_KEYS_CHECKED:
        return value[CHECKSUM_BYTES:] if is_row(database, key, value) else None
    body = value[CHECKSUM_BYTES:]
    is_well = value[:CHECKSUM_BYTES] == NUMBER.pack(row_seed(database, key))
    return body if is_well and (not body or is_row(database, key, body) or was_row(body)) else None


LAYOUT: Final = Layout(
    FORMAT,
    DATABASES,
    stored_value,
    log_note=(STATE, APPLIED),
    paired=(SEGMENTS, INDEX),
    replicas=ReplicaLayout(REPLICA, frozenset(FORGOTTEN), edit_value),
)


def _edits_of_others(writes: WriteBatch) -> Iterator[Edit]:
    """The edits of all but segments and what is staged."""
    yield from _edits_of_bodies(writes)
    yield from _edits_of_queues(writes)
    yield from _edits_in_time(writes)
    yield from _edits_of_transactions(writes)
    if writes.clock is not None:
        yield STATE, CLOCK, _encode(writes.clock)
    for damage in writes.damaged:
        assert damage.queue is not None
        yield STATE, DAMAGED + NUMBER.pack(damage.queue), _encode((damage.database, damage.key, damage.what))
    if writes.identity is not None:
        yield STATE, IDENTITY, _encode(writes.identity)


def _edits_of_bodies(writes: WriteBatch) -> Iterator[Edit]:
    for durable, number in writes.unreferred:
        yield shared_of(durable), NUMBER.pack(number), None
    for durable, number, records in writes.bodies:
        key = NUMBER.pack(number)
        yield shared_of(durable), key, sealed_row(shared_of(durable), key, records)
    if writes.bodies_noted is not None:
        yield STATE, BODIES_NOTED, NUMBER.pack(writes.bodies_noted)


def _edits_of_queues(writes: WriteBatch) -> Iterator[Edit]:
    for (queue, subqueue), mark in writes.marks.items():
        key = PLACE.pack(queue, subqueue) if subqueue else NUMBER.pack(queue)
        yield MARKS, key, None if mark is None else NUMBER.pack(mark)
    for declared in writes.queues:
        yield QUEUES, NUMBER.pack(declared.id), _encode(declared)
    for queue in writes.dropped:
        yield QUEUES, NUMBER.pack(queue), None
        yield DROPPED, NUMBER.pack(queue), b""
    for queue in writes.cleared:
        yield DROPPED, NUMBER.pack(queue), None
    for (queue, name), reservation in writes.reservations.items():
        key = PLACE.pack(queue, xxh3_64_intdigest(name.encode()))
        yield RESERVATIONS, key, None if reservation is None else _encode(reservation)
    for key, value in writes.replaced:
        yield CURSORS, key, None
        yield STATE, REPLACED + key, value
    for (queue, name), cursor in writes.cursors.items():
        yield CURSORS, cursor_key(queue, name), None if cursor is None else _encode(cursor.row())


def _edits_in_time(writes: WriteBatch) -> Iterator[Edit]:
    for timer in writes.fired:
        yield timers_of(timer.durable), timer_key(timer), None
    for timer in writes.timers:
        number, key = timers_of(timer.durable), timer_key(timer)
        yield number, key, b"" if timer.batch is None else sealed_row(number, key, _encode(timer.batch))
    for (queue, producer), ranges in writes.producers.items():
        yield PRODUCERS, PLACE.pack(queue, producer), None if ranges is None else _encode(list(ranges))


def _edits_of_transactions(writes: WriteBatch) -> Iterator[Edit]:
    for (transaction, attempt), sealed in writes.sealed.items():
        yield SEALED, PLACE.pack(transaction, attempt), None if sealed is None else _encode(sealed)
    for transaction, attempts in writes.concluding.items():
        yield CONCLUDING, NUMBER.pack(transaction), None if attempts is None else _encode(attempts)
    if writes.ended is not None:
        yield STATE, ENDED, _encode(writes.ended)


def size_of(writes: WriteBatch) -> int:
    """Return about how many bytes the edits of a write batch are."""
    others = (
        len(writes.delete) // 2 + len(writes.gone) + len(writes.dropped) + len(writes.fired) + len(writes.producers)
    )
    bodies = sum([segment.bytes for segment in writes.put]) - writes.referred_bytes  # of `put` and `staged`
    if writes.bodies or writes.unreferred:
        others += len(writes.unreferred)
        bodies += sum([len(records) for _, _, records in writes.bodies])
    if writes.timers:
        others += len(writes.timers)
        bodies += sum([len(timer.batch.records) for timer in writes.timers if timer.batch is not None])
    if writes.staged or writes.unstaged:
        others += len(writes.staged) + len(writes.unstaged)
        bodies += sum([staged.place.bytes for staged in writes.staged])
    if writes.sealed or writes.reservations:
        others += len(writes.sealed)
        others += sum([len(each.ranges) for each in writes.reservations.values() if each is not None])
    if writes.replaced:
        others += 2 * len(writes.replaced)
        bodies += sum([len(value) for _, value in writes.replaced])
    if writes.cursors:
        others += sum([1 if each is None else each.row_size for each in writes.cursors.values()])
    return bodies + 100 * others


def segment_key(segment: Segment) -> bytes:
    """Return the key of a segment's index entry and of its bodies."""
    return PLACE.pack(segment.queue, segment.first)


def cursor_key(queue: int, group: str) -> bytes:
    """Return the key of a group's cursor in a partition."""
    return NUMBER.pack(queue) + group.encode()


def shared_of(durable: bool) -> int:
    """Return the database that shared bodies are in."""
    return SHARED if durable else SPILLED_SHARED


def timers_of(durable: bool) -> int:
    """Return the database that timers are in."""
    return TIMERS if durable else SPILLED_TIMERS


def timer_key(timer: Timer) -> bytes:
    """Return the key of a timer: all of it but the messages."""
    count = timer.messages | RETURNED if timer.is_return else timer.messages
    return TIMER.pack(timer.queue, timer.due_ms, timer.serial, count)


def staged_place(key: bytes) -> StagedPlace:
    """Return the place that a key of `staged` describes."""
    return StagedPlace._make(STAGE.unpack(key))


def queue_of(database: int, key: bytes) -> int | None:
    """Return the id of the queue a row belongs to; None where it belongs to none."""
    return number_of(key[:8]) if database in _QUEUES_FIRST and len(key) >= NUMBER.size else None


def number_of(value: bytes | memoryview) -> int:
    """Return a number of eight bytes."""
    return int.from_bytes(value, "big")


def group_of(damage: RowDamaged) -> str | None:
    """Return the group whose cursor is damaged, as its key names it; None where something else is."""
    if damage.database != DATABASES[CURSORS].decode():
        return None
    return damage.key[NUMBER.size :].decode(errors="replace")
