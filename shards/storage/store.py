"""The store of a shard, in LMDB (schema.py), with a redo log before it (redo_log.py).

It writes what it is told and decides nothing.
"""

import heapq
import logging
import struct
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain, islice, takewhile
from operator import itemgetter
from pathlib import Path
from typing import Final, TypeVar

import lmdb
import msgspec

from shardmq.errors import RowDamaged, StoreDamaged
from shardmq.message.record_batch import RecordBatch
from shardmq.shards.segments.segment import NumberedRun, Segment
from shardmq.shards.storage import decoding
from shardmq.shards.storage.entries import DamagedStage, Staged, StagedPlace, Timer
from shardmq.shards.storage.identity import StoreIdentity, identified
from shardmq.shards.storage.key_check import KeyCheck, upgrade
from shardmq.shards.storage.recovery import StoredState
from shardmq.shards.storage.schema import (
    APPLIED,
    CLOCK,
    CONCLUDING,
    DAMAGED,
    DATABASES,
    DROPPED,
    ENDED,
    IDENTITY,
    INDEX,
    MARKS,
    NUMBER,
    PARKED,
    PLACE,
    PRODUCERS,
    QUEUES,
    RESERVATIONS,
    ROWS,
    SEALED,
    SEGMENTS,
    SPILLED,
    SPILLED_TIMERS,
    STAGE,
    STAGED,
    STAGES,
    STATE,
    TIMER,
    TIMERS,
    Edit,
    Edits,
    is_small,
    number_of,
    queue_of,
    segment_key,
    segment_of,
    staged_place,
    stored_value,
    timer_key,
    timers_of,
)
from shardmq.shards.storage.write_batch import WriteBatch
from shardmq.storage.checksums import CHECKSUM_BYTES, is_row, row_content, was_row
from shardmq.storage.compaction import COPY_AT_START_BYTES_MAX, UNMADE, Slack, clear, copy, is_worth_it, swap
from shardmq.storage.disk_space import Room, Space, unwritable, writing
from shardmq.storage.lmdb_engine import VERSION, open_environment
from shardmq.storage.page_map import PageMap
from shardmq.storage.redo_log import RedoLog
from shardmq.storage.store_copy import StoreCopy
from shardmq.topology.entities import Queue

FORMAT: Final = b"shardmq-shard"
CHECKPOINT_SECONDS: Final = 0.25
"""How long changes stay in the redo log. Longer lets more of them cancel out, and makes the commit after it longer."""

_NEVER: Final = 1 << 63
_PAGE_BYTES: Final = 4096
_TIMER_BYTES: Final = 1024
"""About what a timer takes of the map when only its key is read: small ones lie among the keys."""
_STAGE_BYTES: Final = 256
"""And a staged run, whose keys lie by themselves, but on pages that are mapped with their neighbours."""

_log = logging.getLogger(__name__)

Decoded = TypeVar("Decoded")

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_runs: Final = msgspec.msgpack.Decoder(list[NumberedRun]).decode
_decode_edits: Final = msgspec.msgpack.Decoder(list[tuple[int, bytes, bytes | None]]).decode
_decode_run: Final = msgspec.msgpack.Decoder(RecordBatch).decode
_decode_ranges: Final = msgspec.msgpack.Decoder(list[tuple[int, int]]).decode
_decode_staged: Final = msgspec.msgpack.Decoder(tuple[tuple[int, ...], int, RecordBatch]).decode


class Store:
    """An open store.

    Args:
        folder: of this shard alone.
        shard: its number.

    Raises:
        StoreRefused: as `open_environment`, and where it is another shard's.
    """

    def __init__(self, folder: Path, shard: int = 0) -> None:
        keys = KeyCheck()
        self._environment = open_environment(folder, FORMAT, DATABASES, keys.heads, keys.keys)
        self.file = self._environment.file
        self._env = self._environment.env
        self._dbs = [self._environment.dbs[name] for name in DATABASES]
        self._edits = Edits()
        self._map = PageMap(self.file)
        self._overlay: dict[tuple[int, bytes], bytes | None] = {}  # in the redo log, not yet in LMDB; None is deleted
        self._overlay_since = 0.0
        self._overlay_due = _NEVER  # the earliest timer in the overlay
        self._overlay_stages = False  # whether there are staged runs in the overlay
        self._scattered = 0  # timers written since the last commit: each may map a page of its own
        self._touched_bytes = 0  # deleted or staged since then: the kernel maps the neighbours of each page looked at
        clear(folder)
        self.space = Space(self._environment)
        self._slack = Slack()
        try:
            self._key_damage = keys.check(self._environment)
            if self._environment.version < VERSION:
                upgrade(self._environment)
            applied = self._applied()
            identity = identified(self.file, *self._whose(), shard, applied is None)
            self._redo = RedoLog(folder / "redo", applied)
            self._recover()
            if self._whose()[0] is None:
                self._commit([(STATE, IDENTITY, _encode(identity))])  # from here on, the log must be there
            self._redo.renew()
            self.identity = self._whose()[0] or identity
        except OSError as fault:
            self._environment.close()
            raise unwritable(folder, fault) from fault
        except BaseException:
            self._environment.close()
            raise

    def _whose(self) -> tuple[StoreIdentity | None, list[Queue]]:
        with self._env.begin() as transaction:
            queues = self._rows(transaction, [], QUEUES, decoding.declaration_of)
            return self._state(transaction, IDENTITY, decoding.decode_identity), queues

    def load(self) -> StoredState:
        """Read the index; what was spilled before is forgotten.

        Raises:
            StoreRefused: records that no shard wrote. Nothing was touched.
        """
        if self._overlay:
            self._commit(())
        contents = self._contents()
        self._check(contents)
        with writing(self._environment) as transaction:
            for spilled in (SPILLED, SPILLED_TIMERS):
                if transaction.stat(self._dbs[spilled])["entries"]:
                    transaction.drop(self._dbs[spilled], delete=False)
        if is_worth_it(self.space.look(), COPY_AT_START_BYTES_MAX):
            self._compact()
        return contents

    def write(self, writes: WriteBatch) -> None:
        """Make changes durable, all or none of them. Where that fails, as on a full disk, the process must end.

        A few go to the redo log and into LMDB later, together with others, or not at all where they cancel out. Many go
        into LMDB at once.
        """
        self._scattered += len(writes.timers)
        self._touched_bytes += sum([segment.bytes for segment in writes.delete])
        self._touched_bytes += sum([place.bytes for place in writes.unstaged])
        self._touched_bytes += sum([staged.place.bytes for staged in writes.staged])
        if is_small(writes):
            edits = [(db, key, None if value is None else bytes(value)) for db, key, value in self._edits.of(writes)]
            payload = _encode(edits)
            if self._redo.has_room(len(payload)):
                try:
                    self._redo.append(payload)
                except OSError as fault:
                    raise unwritable(self._environment.folder, fault) from fault
                if not self._overlay:
                    self._overlay_since = time.monotonic()
                self._overlay.update(((db, key), value) for db, key, value in edits)
                if writes.timers:
                    self._overlay_due = min(self._overlay_due, *[timer.due_ms for timer in writes.timers])
                self._overlay_stages = self._overlay_stages or bool(writes.staged)
                return
        self._commit(self._edits.of(writes))

    @property
    def is_pending(self) -> bool:
        """Whether there are changes in the redo log that are not in LMDB."""
        return bool(self._overlay)

    def copy(self, folder: Path, bytes_per_second: int) -> StoreCopy:
        """Begin to copy all that was written so far into a folder that is not there yet."""
        if self._overlay:
            self._commit(())
        return StoreCopy(self._env, folder, bytes_per_second, self.sizes()["used_bytes"], PageMap(self.file).read)

    def rest(self, now: float) -> None:
        """Between passes: bring into LMDB what has been in the redo log for long enough."""
        if self._overlay and now - self._overlay_since >= CHECKPOINT_SECONDS:
            self._commit(())

    def _commit(self, edits: Iterable[Edit]) -> None:
        """Bring into LMDB what is in the redo log, then these edits, in one transaction."""
        with writing(self._environment) as transaction:
            for (number, key), value in self._overlay.items():
                self._apply(transaction, number, key, value)
            for edit in edits:
                self._apply(transaction, *edit)
            self._apply(transaction, STATE, APPLIED, NUMBER.pack(self._redo.last))
        self._map.read(self._scattered * _PAGE_BYTES + self._touched_bytes)
        self._scattered = self._touched_bytes = 0
        self._overlay.clear()
        self._overlay_due = _NEVER
        self._overlay_stages = False
        self._redo.rewind()
        self.space.committed()

    def _apply(self, transaction: lmdb.Transaction, number: int, key: bytes, value: bytes | bytearray | None) -> None:
        if value is None:
            transaction.delete(key, db=self._dbs[number])
        else:
            transaction.put(key, stored_value(number, key, value), db=self._dbs[number])

    def _recover(self) -> None:
        """Bring into LMDB what a crash left in the redo log; it is small."""
        if self._redo.pending:
            self._check(self._contents())
            for payload in self._redo.pending:
                self._overlay.update(((number, key), value) for number, key, value in self._edits_in(payload))
            self._redo.pending.clear()
            self._commit(())

    def _edits_in(self, payload: bytes) -> list[tuple[int, bytes, bytes | None]]:
        try:
            edits = _decode_edits(payload)
        except msgspec.DecodeError as fault:
            raise StoreDamaged(self._redo.file, f"a commit in it cannot be read: {fault}") from fault
        if any(not 0 <= number < len(DATABASES) for number, _, _ in edits):
            raise StoreDamaged(self._redo.file, "a commit in it is of a database that is not there")
        return edits

    def read(self, segment: Segment) -> list[NumberedRun]:
        """The bodies of a stored segment.

        Raises:
            StoreRefused: they are not what was written.
        """
        number, key = SEGMENTS if segment.durable else SPILLED, segment_key(segment)
        recent = self._overlay.get((number, key))
        if recent is not None:
            return self._decode(segment, memoryview(recent))
        with self._env.begin(db=self._dbs[number], buffers=True) as transaction:
            value = transaction.get(key)
            if value is None:
                raise self._row_damaged(number, key, f"{segment!r} is not there")
            runs = self._decode(segment, value)
            self._map.read(len(value))
        return runs

    def _decode(self, segment: Segment, value: memoryview) -> list[NumberedRun]:
        number, key = SEGMENTS if segment.durable else SPILLED, segment_key(segment)
        return self._opened(number, key, value, _decode_runs, segment)

    def _opened(
        self, number: int, key: bytes, value: memoryview, decode: Callable[[memoryview], Decoded], what: object
    ) -> Decoded:
        """A body, decoded; the first version's checksums do not cover the key."""
        self._check_body(number, key, value, what)
        with value[CHECKSUM_BYTES:] as body:
            try:
                return decode(body)
            except msgspec.DecodeError as fault:
                raise self._row_damaged(number, key, f"{what!r} cannot be read: {fault}") from fault

    def _check_body(self, number: int, key: bytes, value: memoryview, what: object) -> None:
        if not (is_row(number, key, value) or was_row(value)):
            raise self._row_damaged(number, key, f"{what!r} is not what was written")

    def timers(self) -> Iterator[Timer]:
        """All that are in LMDB and survive a restart, in order, without their messages."""
        with self._env.begin(db=self._dbs[TIMERS]) as transaction:
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
            streams = [self._timers(transaction, number, queue, since_ms) for number in (TIMERS, SPILLED_TIMERS)]
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
            streams = [self._timers(transaction, number, queue, 0) for number in (TIMERS, SPILLED_TIMERS)]
            timers = [timer for timer, _ in islice(chain(*streams), count_max)]
            for stream in streams:
                stream.close()
        return timers

    def _timers(
        self, transaction: "lmdb.Transaction[memoryview]", number: int, queue: int, since_ms: int
    ) -> Generator[tuple[Timer, memoryview]]:
        """Those of a queue in one database that are not deleted in the redo log."""
        overlay = self._overlay
        prefix = NUMBER.pack(queue)
        with transaction.cursor(self._dbs[number]) as cursor:
            if cursor.set_range(PLACE.pack(queue, since_ms)):
                for place, value in cursor.iternext(keys=True, values=True):
                    key = bytes(place)
                    if key[:8] != prefix:
                        break
                    if (number, key) not in overlay:
                        yield self._timer(key, number == TIMERS), value

    def _timer(self, key: bytes, durable: bool) -> Timer:
        if len(key) != TIMER.size:
            number = timers_of(durable)
            raise self._row_damaged(number, key, f"the key of a delayed message has {len(key)} bytes")
        queue, due_ms, serial, count = TIMER.unpack(key)
        return Timer(queue, due_ms, serial, count & ~PARKED, count & PARKED != 0, durable)

    def _decode_timer(self, timer: Timer, value: memoryview) -> RecordBatch:
        with value[CHECKSUM_BYTES:] as body:  # behind the checksum of the key
            return self._opened(timers_of(timer.durable), timer_key(timer), body, _decode_run, timer)

    def all_staged(self) -> Iterator[StagedPlace]:
        """Where all staged runs are, in order of transaction, attempt and sequence. There may be millions."""
        for _, place in self._stages(b"", b""):
            yield place
            self._map.read(_STAGE_BYTES)
        self._map.release()

    def staged(self, transaction: int, attempt: int, since: int, bytes_max: int) -> list[Staged | DamagedStage]:
        """The next runs that an attempt staged, in order; what is damaged stands at its place.

        Args:
            transaction: its number.
            attempt: who staged them.
            since: the least sequence; so that those deleted in the redo log need not be passed over.
            bytes_max: about where to end; one at least, if there is one.
        """
        found: list[Staged | DamagedStage] = []
        size = 0
        start, prefix = STAGE.pack(transaction, attempt, since, 0, 0), PLACE.pack(transaction, attempt)
        for reading, place in self._stages(start, prefix):
            try:
                value = self._staged_value(reading, place)
                size += len(value)
                found.append(Staged(place, *self._opened(STAGED, STAGE.pack(*place), value, _decode_staged, place)))
            except RowDamaged as damage:
                found.append(DamagedStage(place, damage))
            if size >= bytes_max:
                break
        self._map.read(size)
        return found

    def check_staged(self, transaction: int, attempt: int, since: int, bytes_max: int) -> int | None:
        """Make sure that runs which an attempt staged are what was written; returns where to go on, None at the end.

        Args:
            transaction: its number.
            attempt: who staged them.
            since: the least sequence.
            bytes_max: about where to end.

        Raises:
            RowDamaged: one is not.
        """
        size = 0
        start, prefix = STAGE.pack(transaction, attempt, since, 0, 0), PLACE.pack(transaction, attempt)
        for reading, place in self._stages(start, prefix):
            if size >= bytes_max:
                self._map.read(size)
                return place.sequence
            value = self._staged_value(reading, place)
            size += len(value)
            self._check_body(STAGED, STAGE.pack(*place), value, place)
        self._map.read(size)
        return None

    def _staged_value(self, reading: "lmdb.Transaction[memoryview]", place: StagedPlace) -> memoryview:
        """A staged run as it lies there; good for as long as the reading goes on."""
        value = reading.get(STAGE.pack(*place), db=self._dbs[STAGED])
        if value is None:
            raise self._row_damaged(STAGED, STAGE.pack(*place), f"{place!r} is not there")
        return value

    def staged_places(self, transaction: int, since: StagedPlace | None, count_max: int) -> list[StagedPlace]:
        """Where a transaction's next staged runs are, in order; those behind `since`."""
        start = NUMBER.pack(transaction) if since is None else STAGE.pack(*since) + b"\0"
        return [place for _, place in islice(self._stages(start, NUMBER.pack(transaction)), count_max)]

    def staged_within(self, transaction: int, attempt: int, start: int, end: int) -> list[StagedPlace]:
        """Where the staged runs of an attempt are that have numbers in [start, end), in order."""
        if self._overlay_stages:
            self._commit(())
        key, prefix = STAGE.pack(transaction, attempt, start, 0, 0), PLACE.pack(transaction, attempt)
        with self._env.begin(db=self._dbs[STAGES]) as reading, reading.cursor() as cursor:
            if (cursor.prev() if cursor.set_range(key) else cursor.last()) and cursor.key().startswith(prefix):
                key = cursor.key()  # it may reach into the range
        places = takewhile(lambda place: place.sequence < end, (place for _, place in self._stages(key, prefix)))
        self._map.read(_PAGE_BYTES)
        return [place for place in places if place.sequence + place.messages > start]

    def _stages(self, start: bytes, prefix: bytes) -> "Generator[tuple[lmdb.Transaction[memoryview], StagedPlace]]":
        """Those from a key on that begin with a prefix, and are not deleted in the redo log."""
        if self._overlay_stages:
            self._commit(())  # they are looked for in LMDB alone
        overlay = self._overlay
        with self._env.begin(buffers=True) as reading, reading.cursor(self._dbs[STAGES]) as cursor:
            if not cursor.set_range(start):
                return
            for found in cursor.iternext(keys=True, values=False):
                key = bytes(found)
                if not key.startswith(prefix):
                    return
                if len(key) != STAGE.size:
                    raise self._row_damaged(STAGES, key, f"the key of a staged run has {len(key)} bytes")
                if (STAGES, key) not in overlay:
                    yield reading, staged_place(key)

    def sizes(self) -> dict[str, int]:
        """Bytes of the file, of the pages in it that hold something, of those that are free and lie on the disk, and of
        the map. The file keeps its length.
        """
        room = self.space.room()
        return {
            "file_bytes": self.file.stat().st_size,
            "used_bytes": room.used,
            "free_bytes": room.inside,
            "map_bytes": self._env.info()["map_size"],
        }

    def has_room(self, size: int) -> bool:
        """Whether so many bytes can be written before the disk is full. Of what is free in the file, half counts: much
        of it may be in pieces that are too small.
        """
        room = self.space.room()
        return room.free >= size or room.free + room.inside // 2 >= size

    def give_back(self, now: float, room: Room, is_pressed: bool) -> None:
        """Give free pages back to the file system, where that is due.

        Args:
            now: monotonic seconds.
            room: what there is.
            is_pressed: whether the disk is short of it.
        """
        if self._slack.is_due(now, room, is_pressed):
            self._slack.rest(now)
            self._compact()

    def _compact(self) -> None:
        """Have a file without free pages. Where there is no room for it, all stays as it is."""
        if self._overlay:
            self._commit(())
        self._map.release()
        try:
            copy(self._environment)
        except UNMADE as fault:
            _log.warning("%s was not compacted: %s", self.file, fault)
            return
        self._environment = swap(self._environment)
        self._env = self._environment.env
        self._dbs = [self._environment.dbs[name] for name in DATABASES]
        self.space.use(self._environment)

    def close(self) -> None:
        """Bring everything into LMDB and close the files."""
        if self._overlay:
            self._commit(())
        self._redo.close()
        self._environment.close()

    def _applied(self) -> int | None:
        """Number of the last entry of the redo log whose changes are here.

        All of `state` is looked at first: a row whose key is damaged is not found under its own.
        """
        with self._env.begin() as transaction:
            self._rows(transaction, [], STATE, lambda key, _: key)
            return self._state(transaction, APPLIED, number_of)

    def _contents(self) -> StoredState:
        with self._env.begin(buffers=False) as transaction:
            damaged: list[RowDamaged] = list(self._key_damage)
            return StoredState(
                queues=self._rows(transaction, damaged, QUEUES, decoding.declaration_of),
                marks=dict(self._rows(transaction, damaged, MARKS, decoding.mark_of)),
                dropped=self._rows(transaction, damaged, DROPPED, lambda key, _: number_of(key)),
                segments=self._rows(transaction, damaged, INDEX, segment_of),
                producers=self._rows(transaction, damaged, PRODUCERS, decoding.producer_of),
                sealed=dict(self._rows(transaction, damaged, SEALED, decoding.sealed_of)),
                concluding=dict(self._rows(transaction, damaged, CONCLUDING, decoding.concluding_of)),
                ended=self._state(transaction, ENDED, _decode_ranges) or [],
                reservations=self._rows(transaction, damaged, RESERVATIONS, decoding.reservation_of),
                clock=self._state(transaction, CLOCK, decoding.decode_note),
                damaged=damaged + list(filter(None, self._rows(transaction, damaged, STATE, self._noted))),
            )

    def _rows(
        self,
        transaction: "lmdb.Transaction[bytes]",
        damaged: list[RowDamaged],
        number: int,
        decode: Callable[[bytes, bytes], Decoded],
    ) -> list[Decoded]:
        """All rows of a database, decoded; damaged ones that belong to one queue are among `damaged` instead.

        Raises:
            RowDamaged: one is not what was written, and belongs to no queue.
        """
        found = []
        for key, value in transaction.cursor(self._dbs[number]).iternext(keys=True, values=True):
            try:
                found.append(self._row(number, key, value, decode))
            except RowDamaged as damage:
                if damage.queue is None:
                    raise
                damaged.append(damage)
        return found

    def _noted(self, key: bytes, content: bytes) -> RowDamaged | None:
        """What is damaged of a queue that is out of service; None for other rows of `state`."""
        if not key.startswith(DAMAGED):
            return None
        database, row, what = decoding.damage_of(content)
        return RowDamaged(self.file, database, row, what, number_of(key[len(DAMAGED) :]))

    def _row(self, number: int, key: bytes, value: bytes, decode: Callable[[bytes, bytes], Decoded]) -> Decoded:
        content = row_content(number, key, value)
        if content is None:
            raise self._row_damaged(number, key, f"{ROWS[number]} is not what was written")
        try:
            return decode(key, content)
        except (msgspec.DecodeError, struct.error, ValueError) as fault:
            raise self._row_damaged(number, key, f"{ROWS[number]} cannot be read: {fault}") from fault

    def _state(
        self, transaction: "lmdb.Transaction[bytes]", key: bytes, decode: Callable[[bytes], Decoded]
    ) -> Decoded | None:
        """A row of `state`, decoded; None where there is none."""
        value = transaction.get(key, db=self._dbs[STATE])
        return None if value is None else self._row(STATE, key, value, lambda _, content: decode(content))

    def _check(self, contents: StoredState) -> None:
        """Messages of a queue that is not there: its own row is damaged, or what says whose they are."""
        known = {queue.id for queue in contents.queues}.union(contents.dropped)
        known.update(damage.queue for damage in contents.damaged if damage.queue is not None)
        for segment in contents.segments:
            if segment.queue not in known:
                known.add(segment.queue)
                what = f"messages of queue {segment.queue}, which is not in it"
                contents.damaged.append(self._row_damaged(INDEX, segment_key(segment), what))

    def _row_damaged(self, database: int, key: bytes, what: str) -> RowDamaged:
        return RowDamaged(self.file, DATABASES[database].decode(), key, what, queue_of(database, key))
