"""The store of a shard, in LMDB.

    queues      queue id u64              msgpack Queue
    dropped     queue id u64              empty; its segments are being deleted
    marks       queue id u64 | lane u64   u64, see Lane.mark; the lane is left out where it is 0
    index       queue u64 | first u64     end u64 | count u32 | flags and bytes u32 | what the flags say (see `_extent`)
    segments    queue u64 | first u64     xxh3_64 u64 | msgpack [[first, Run], ...]
    spilled     as segments; of transient messages, emptied at start
    timers      queue u64 | due ms u64 | serial u64 | count u32     xxh3_64 u64 | msgpack Run, delayed; or, with the
                highest bit of the count set, empty: messages [serial, serial + count) are parked (timers.py)
    spilled_timers   as timers; of transient messages, emptied at start
    producers   queue u64 | producer u64  msgpack [[start, end], ...], numbers it has (producers.py)
    state       "redo"                    u64, number of the last entry of the redo log (redo.py) that is in here
                "clock"                   msgpack ClockNote

All numbers are big-endian, so keys lie in order. A start reads the index and never a body: bodies are apart from it
because LMDB's Python binding touches every page of a value it passes, wanted or not. The store writes what it is told
and decides nothing.
"""

import heapq
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

import lmdb
import msgspec
from xxhash import xxh3_64_intdigest

from shardmq.clock import ClockNote
from shardmq.environment import open_environment
from shardmq.errors import StoreRefused
from shardmq.model import Queue as Declared
from shardmq.ranges import RangeSet
from shardmq.records import Run
from shardmq.shards.counts import Counts
from shardmq.shards.mapping import Map
from shardmq.shards.producers import Seen
from shardmq.shards.redo import RedoLog
from shardmq.shards.segments import NumberedRun, Segment

FORMAT: Final = b"shardmq-shard"
REDO_ENTRY_BYTES: Final = 64 << 10
"""Commits up to this size go to the redo log first. Above, LMDB's second flush is a small part of the cost, and writing
twice would not be."""

CHECKPOINT_SECONDS: Final = 0.25
"""How long changes stay in the redo log. Longer lets more of them cancel out, and makes the commit after it longer."""

_DATABASES: Final = (b"queues", b"dropped", b"marks", b"index", b"segments", b"spilled", b"state",
                     b"timers", b"spilled_timers", b"producers")  # fmt: skip
(_QUEUES, _DROPPED, _MARKS, _INDEX, _SEGMENTS, _SPILLED, _STATE,
 _TIMERS, _SPILLED_TIMERS, _PRODUCERS) = range(len(_DATABASES))  # fmt: skip
_APPLIED: Final = b"redo"
_CLOCK: Final = b"clock"
_EXTENT: Final = Struct(">QII")
_NUMBER: Final = Struct(">Q")
_PLACE: Final = Struct(">QQ")
_NEVER: Final = 1 << 63
_TIMER: Final = Struct(">QQQI")
_PARKED: Final = 1 << 31
_NOTHING: Final = b"\x90"
_TWO: Final = b"\x92"
_MORTAL: Final = 1 << 31
_BODIES: Final = 1 << 30
_COUNTED: Final = 1 << 29
_BYTES: Final = _COUNTED - 1
"""Of an index entry's last number; a segment is some MB at most."""
_PAGE_BYTES: Final = 4096
_TIMER_BYTES: Final = 1024
"""About what a timer takes of the map when only its key is read: small ones lie among the keys."""
_CHECKSUM_BYTES: Final = 8

_encoder: Final = msgspec.msgpack.Encoder()
_decode_runs: Final = msgspec.msgpack.Decoder(list[NumberedRun]).decode
_decode_queue: Final = msgspec.msgpack.Decoder(Declared).decode
_Edit = tuple[int, bytes, bytes | bytearray | None]
"""(database, key, value), None to delete."""
_decode_edits: Final = msgspec.msgpack.Decoder(list[tuple[int, bytes, bytes | None]]).decode
_decode_run: Final = msgspec.msgpack.Decoder(Run).decode
_decode_note: Final = msgspec.msgpack.Decoder(ClockNote).decode
_decode_ranges: Final = msgspec.msgpack.Decoder(list[tuple[int, int]]).decode
_decode_counted: Final = msgspec.msgpack.Decoder(tuple[list[tuple[int, int]], list[tuple[int, int, int]]]).decode


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


@dataclass(slots=True)
class Contents:
    """What a start finds.

    Attributes:
        queues: durable queues.
        marks: of lanes, by queue and lane.
        segments: of all queues, in order of queue and number.
        dropped: ids of queues that are being deleted.
        producers: numbers that queues have of producers: (queue, producer, ranges).
        clock: what time it was last.
    """

    queues: list[Declared] = field(default_factory=list)
    marks: dict[tuple[int, int], int] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    producers: list[tuple[int, int, list[tuple[int, int]]]] = field(default_factory=list)
    clock: ClockNote | None = None


@dataclass(slots=True)
class Writes:
    """What goes into one transaction. Deletions come first.

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
        clock: what time it is, where that is to be noted.
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
    clock: ClockNote | None = None


class Store:
    """An open store.

    Args:
        folder: of this shard alone.

    Raises:
        StoreRefused: as `open_environment`.
    """

    def __init__(self, folder: Path) -> None:
        self._environment = open_environment(folder, FORMAT, _DATABASES)
        self.file = self._environment.file
        self._env = self._environment.env
        self._dbs = [self._environment.dbs[name] for name in _DATABASES]
        self._value = bytearray()
        self._map = Map(self.file)
        self._overlay: dict[tuple[int, bytes], bytes | None] = {}  # in the redo log, not yet in LMDB; None is deleted
        self._overlay_since = 0.0
        self._overlay_due = _NEVER  # the earliest timer in the overlay
        self._scattered = 0  # timers written since the last commit: each may map a page of its own
        try:
            applied = self._applied()
            self._redo = RedoLog(folder / "redo", applied)
            if applied is None:
                self._commit(())  # from here on, the log must be there
            self._recover()
        except BaseException:
            self._environment.close()
            raise

    def load(self) -> Contents:
        """Read the index; what was spilled before is forgotten.

        Raises:
            StoreRefused: records that no shard wrote. Nothing was touched.
        """
        if self._overlay:
            self._commit(())
        contents = self._contents()
        self._check(contents)
        with self._env.begin(write=True) as transaction:
            for spilled in (_SPILLED, _SPILLED_TIMERS):
                if transaction.stat(self._dbs[spilled])["entries"]:
                    transaction.drop(self._dbs[spilled], delete=False)
        return contents

    def write(self, writes: Writes) -> None:
        """Make changes durable, all or none of them.

        A few go to the redo log and into LMDB later, together with others, or not at all where they cancel out. Many go
        into LMDB at once.
        """
        if _is_small(writes):
            edits = [(db, key, None if value is None else bytes(value)) for db, key, value in self._edits(writes)]
            payload = _encoder.encode(edits)
            if self._redo.has_room(len(payload)):
                self._redo.append(payload)
                if not self._overlay:
                    self._overlay_since = time.monotonic()
                self._overlay.update(((db, key), value) for db, key, value in edits)
                if writes.timers:
                    self._overlay_due = min(self._overlay_due, *[timer.due_ms for timer in writes.timers])
                return
        self._commit(self._edits(writes))

    @property
    def is_pending(self) -> bool:
        """Whether there are changes in the redo log that are not in LMDB."""
        return bool(self._overlay)

    def rest(self, now: float) -> None:
        """Between passes: bring into LMDB what has been in the redo log for long enough."""
        if self._overlay and now - self._overlay_since >= CHECKPOINT_SECONDS:
            self._commit(())

    def _commit(self, edits: Iterable[_Edit]) -> None:
        """Bring into LMDB what is in the redo log, then these edits, in one transaction."""
        with self._env.begin(write=True) as transaction:
            for (number, key), value in self._overlay.items():
                self._apply(transaction, number, key, value)
            for edit in edits:
                self._apply(transaction, *edit)
            transaction.put(_APPLIED, _NUMBER.pack(self._redo.last), db=self._dbs[_STATE])
        self._map.read(self._scattered * _PAGE_BYTES)
        self._scattered = 0
        self._overlay.clear()
        self._overlay_due = _NEVER
        self._redo.rewind()

    def _apply(self, transaction: lmdb.Transaction, number: int, key: bytes, value: bytes | bytearray | None) -> None:
        if value is None:
            transaction.delete(key, db=self._dbs[number])
        else:
            transaction.put(key, value, db=self._dbs[number])

    def _edits(self, writes: Writes) -> Iterator[_Edit]:
        """The changes as they are in the databases, in order. A value is good until the next one is asked for."""
        for segment in writes.delete:
            key = _key(segment)
            if segment.durable:
                yield _SEGMENTS, key, None
                yield _INDEX, key, None
            else:
                yield _SPILLED, key, None
        for segment in writes.put:
            key = _key(segment)
            yield _SEGMENTS if segment.durable else _SPILLED, key, self._encode(segment)
            if segment.durable:
                yield _INDEX, key, _extent(segment)
        for segment in writes.gone:
            yield _INDEX, _key(segment), _extent(segment)
        for (queue, lane), mark in writes.marks.items():
            key = _PLACE.pack(queue, lane) if lane else _NUMBER.pack(queue)
            yield _MARKS, key, None if mark is None else _NUMBER.pack(mark)
        for declared in writes.queues:
            yield _QUEUES, _NUMBER.pack(declared.id), _encoder.encode(declared)
        for queue in writes.dropped:
            yield _QUEUES, _NUMBER.pack(queue), None
            yield _DROPPED, _NUMBER.pack(queue), b""
        for queue in writes.cleared:
            yield _DROPPED, _NUMBER.pack(queue), None
        yield from self._edits_in_time(writes)

    def _edits_in_time(self, writes: Writes) -> Iterator[_Edit]:
        self._scattered += len(writes.timers)
        for timer in writes.fired:
            yield _timers_of(timer.durable), _timer_key(timer), None
        for timer in writes.timers:
            yield _timers_of(timer.durable), _timer_key(timer), self._encode_timer(timer)
        for (queue, producer), ranges in writes.producers.items():
            yield _PRODUCERS, _PLACE.pack(queue, producer), None if ranges is None else _encoder.encode(list(ranges))
        if writes.clock is not None:
            yield _STATE, _CLOCK, _encoder.encode(writes.clock)

    def _recover(self) -> None:
        """Bring into LMDB what a crash left in the redo log; it is small."""
        if self._redo.pending:
            self._check(self._contents())
            for payload in self._redo.pending:
                self._overlay.update(((number, key), value) for number, key, value in _decode_edits(payload))
            self._redo.pending.clear()
            self._commit(())

    def read(self, segment: Segment) -> list[NumberedRun]:
        """The bodies of a stored segment.

        Raises:
            StoreRefused: they are not what was written.
        """
        number, key = _SEGMENTS if segment.durable else _SPILLED, _key(segment)
        recent = self._overlay.get((number, key))
        if recent is not None:
            return self._decode(segment, memoryview(recent))
        with self._env.begin(db=self._dbs[number], buffers=True) as transaction:
            value = transaction.get(key)
            if value is None:
                raise self._damaged(f"{segment!r} is not there")
            runs = self._decode(segment, value)
            self._map.read(len(value))
        return runs

    def _decode(self, segment: Segment, value: memoryview) -> list[NumberedRun]:
        with value[_CHECKSUM_BYTES:] as body:
            if xxh3_64_intdigest(body) != _number(value[:_CHECKSUM_BYTES]):
                raise self._damaged(f"{segment!r} is not what was written")
            return _decode_runs(body)

    # --- timers -----------------------------------------------------------------------------------------------------

    def timers(self) -> Iterator[Timer]:
        """All that are in LMDB and survive a restart, in order, without their messages."""
        with self._env.begin(db=self._dbs[_TIMERS]) as transaction:
            for key in transaction.cursor().iternext(keys=True, values=False):
                yield self._timer(key, durable=True)
                self._map.read(_TIMER_BYTES)
        self._map.release()

    def timers_due(
        self, queue: int, since_ms: int, until_ms: int, count_max: int, bytes_max: int
    ) -> tuple[list[Timer], int | None]:
        """The first timers of a queue that are due.

        Args:
            queue: its id.
            since_ms: none is due before; so that those deleted in the redo log need not be passed over.
            until_ms: what time it is.
            count_max: so many at most.
            bytes_max: about where to end.

        Returns:
            Them, and when the next one is due; that may be a little early.
        """
        if self._overlay_due <= until_ms:
            self._commit(())  # they are looked for in LMDB alone
        timers: list[Timer] = []
        size = 0
        following = self._overlay_due if self._overlay_due < _NEVER else None
        with self._env.begin(buffers=True) as transaction:
            streams = [self._timers(transaction, number, queue, since_ms) for number in (_TIMERS, _SPILLED_TIMERS)]
            for timer, value in heapq.merge(*streams, key=itemgetter(0)):
                if timer.due_ms > until_ms or len(timers) >= count_max or size >= bytes_max:
                    following = timer.due_ms if following is None else min(following, timer.due_ms)
                    break
                size += len(value)
                timers.append(timer if timer.parked else timer._replace(run=self._decode_timer(timer, value)))
            for stream in streams:
                stream.close()
            self._map.read(size)
        return timers, following

    def timers_of(self, queue: int, count_max: int) -> list[Timer]:
        """Some timers of a queue, without their messages."""
        if self._overlay_due < _NEVER:
            self._commit(())
        with self._env.begin(buffers=True) as transaction:
            streams = [self._timers(transaction, number, queue, 0) for number in (_TIMERS, _SPILLED_TIMERS)]
            timers = [timer for timer, _ in islice(chain(*streams), count_max)]
            for stream in streams:
                stream.close()
        return timers

    def _timers(
        self, transaction: "lmdb.Transaction[memoryview]", number: int, queue: int, since_ms: int
    ) -> Generator[tuple[Timer, memoryview]]:
        """Those of a queue in one database that are not deleted in the redo log."""
        overlay = self._overlay
        prefix = _NUMBER.pack(queue)
        with transaction.cursor(self._dbs[number]) as cursor:
            if cursor.set_range(_PLACE.pack(queue, since_ms)):
                for place, value in cursor.iternext(keys=True, values=True):
                    key = bytes(place)
                    if key[:8] != prefix:
                        break
                    if (number, key) not in overlay:
                        yield self._timer(key, number == _TIMERS), value

    def _timer(self, key: bytes, durable: bool) -> Timer:
        if len(key) != _TIMER.size:
            raise self._damaged(f"timer {key.hex()} has {len(key)} bytes")
        queue, due_ms, serial, count = _TIMER.unpack(key)
        return Timer(queue, due_ms, serial, count & ~_PARKED, count & _PARKED != 0, durable)

    def _encode_timer(self, timer: Timer) -> bytes:
        if timer.run is None:
            return b""
        body = _encoder.encode(timer.run)
        return _NUMBER.pack(xxh3_64_intdigest(body)) + body

    def _decode_timer(self, timer: Timer, value: memoryview) -> Run:
        with value[_CHECKSUM_BYTES:] as body:
            if xxh3_64_intdigest(body) != _number(value[:_CHECKSUM_BYTES]):
                raise self._damaged(f"{timer!r} is not what was written")
            return _decode_run(body)

    def sizes(self) -> dict[str, int]:
        """Bytes of the file, of the pages in it that hold something, and of the map. The file keeps what it has had."""
        with self._env.begin() as transaction:
            stats = [transaction.stat(db) for db in self._dbs]
        pages = sum(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] for stat in stats)
        return {
            "file_bytes": self.file.stat().st_size,
            "used_bytes": pages * stats[0]["psize"],
            "map_bytes": self._env.info()["map_size"],
        }

    def close(self) -> None:
        """Bring everything into LMDB and close the files."""
        if self._overlay:
            self._commit(())
        self._redo.close()
        self._environment.close()

    def _encode(self, segment: Segment) -> bytearray:
        value = self._value
        _encoder.encode_into(segment.runs, value, _CHECKSUM_BYTES)
        with memoryview(value) as view:
            _NUMBER.pack_into(value, 0, xxh3_64_intdigest(view[_CHECKSUM_BYTES:]))
        return value

    def _applied(self) -> int | None:
        """Number of the last entry of the redo log whose changes are here."""
        with self._env.begin(db=self._dbs[_STATE]) as transaction:
            value = transaction.get(_APPLIED)
            return _number(value) if value is not None else None

    def _contents(self) -> Contents:
        with self._env.begin(buffers=False) as transaction:
            contents = Contents(
                queues=[_decode_queue(value) for _, value in self._items(transaction, self._dbs[_QUEUES])],
                marks={
                    (_number(key[:8]), _number(key[8:])): _number(value)
                    for key, value in self._items(transaction, self._dbs[_MARKS])
                },
                dropped=[_number(key) for key, _ in self._items(transaction, self._dbs[_DROPPED])],
            )
            index = self._items(transaction, self._dbs[_INDEX])
            contents.segments = [self._segment(key, value) for key, value in index]
            for key, value in self._items(transaction, self._dbs[_PRODUCERS]):
                contents.producers.append((*_PLACE.unpack(key), _decode_ranges(value)))
            note = transaction.get(_CLOCK, db=self._dbs[_STATE])
            contents.clock = _decode_note(note) if note is not None else None
        return contents

    def _items(self, transaction: "lmdb.Transaction[bytes]", db: "lmdb._Database") -> Iterator[tuple[bytes, bytes]]:
        return transaction.cursor(db).iternext(keys=True, values=True)

    def _segment(self, key: bytes, value: bytes) -> Segment:
        if len(key) != _PLACE.size or len(value) <= _EXTENT.size:
            raise self._damaged(f"index entry {key.hex()} has {len(value)} bytes")
        queue, first = _PLACE.unpack(key)
        segment = Segment(queue, first, durable=True, born=0.0)
        segment.end, segment.count, flags = _EXTENT.unpack_from(value)
        rest = value[_EXTENT.size :]
        segment.bytes, segment.mortal = flags & _BYTES, flags & _MORTAL != 0
        if flags & _BODIES:
            segment.body_bytes, rest = _number(rest[: _NUMBER.size]), rest[_NUMBER.size :]
        if flags & _COUNTED:
            ranges, counted = _decode_counted(rest)
            segment.counts = Counts(counted)
        else:
            ranges = _decode_ranges(rest)
        gone = RangeSet(ranges)
        segment.gone = gone or None
        segment.live = segment.end - segment.first - gone.count
        segment.stored, segment.runs = True, None
        return segment

    def _check(self, contents: Contents) -> None:
        known = {queue.id for queue in contents.queues}.union(contents.dropped)
        strange = {segment.queue for segment in contents.segments} - known
        if strange:
            raise self._damaged(f"messages of queue {min(strange)}, which is not in it")

    def _damaged(self, what: str) -> StoreRefused:
        return StoreRefused(f"{self.file} is damaged: {what}; restore it from a copy")


def _is_small(writes: Writes) -> bool:
    others = len(writes.delete) + len(writes.gone) + len(writes.dropped) + len(writes.fired) + len(writes.producers)
    bodies = sum([segment.bytes for segment in writes.put])
    if writes.timers:
        others += len(writes.timers)
        bodies += sum([len(timer.run.records) for timer in writes.timers if timer.run is not None])
    return bodies + 100 * others <= REDO_ENTRY_BYTES


def _key(segment: Segment) -> bytes:
    return _PLACE.pack(segment.queue, segment.first)


def _extent(segment: Segment) -> bytes:
    """A segment's index entry. Most have no flags.

    _MORTAL    a message in it brought a time to live
    _BODIES    bytes of its bodies u64 follow
    _COUNTED   msgpack [[[start, end], ...], [[start, end, count], ...]]: what is gone, what was delivered in vain
               without it: msgpack [[start, end], ...]: what is gone
    """
    flags = segment.bytes
    ranges = _encoder.encode(list(segment.gone)) if segment.gone is not None else _NOTHING
    if segment.mortal:
        flags |= _MORTAL
    if segment.counts:
        flags |= _COUNTED
        ranges = _TWO + ranges + _encoder.encode(list(segment.counts))
    if segment.body_bytes is not None:
        flags |= _BODIES
        ranges = _NUMBER.pack(segment.body_bytes) + ranges
    return _EXTENT.pack(segment.end, segment.count, flags) + ranges


def _timers_of(durable: bool) -> int:
    return _TIMERS if durable else _SPILLED_TIMERS


def _timer_key(timer: Timer) -> bytes:
    count = timer.messages | _PARKED if timer.parked else timer.messages
    return _TIMER.pack(timer.queue, timer.due_ms, timer.serial, count)


def _number(value: bytes | memoryview) -> int:
    return int.from_bytes(value, "big")
