"""The storage engine on LMDB, with an optional redo log in front of it.

    edits ─┬─ few ───► redo log (one flush) ─► overlay ─┐ after CHECKPOINT_SECONDS, together
           └─ many ──────────────────────────────────────┴──► one LMDB transaction (two flushes)

What is in the redo log and not yet in LMDB is in the overlay, which every read looks into first.
"""

import contextlib
import heapq
import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Final

from shardmq.runtime.statistics.histograms import TimeHistogram
from shardmq.storage.compaction import COPY_AT_START_BYTES_MAX, UNMADE, Slack, clear, copy, is_worth_it, swap
from shardmq.storage.disk_space import MARGIN_BYTES, RESERVE_BYTES, DiskSpace, unwritable, writing
from shardmq.storage.engine import Edit, Engine, Layout, Room, Row
from shardmq.storage.lmdb_environment import open_environment, rewrite
from shardmq.storage.page_map import AHEAD_BYTES_MIN, READ_BYTES_MAX, PageMap
from shardmq.storage.pages.page_check import Head, Keys
from shardmq.storage.redo.edits import LoggedEdit, edits_in, encode_edits
from shardmq.storage.redo.log import REDO, RedoLog
from shardmq.storage.store_copy import StoreCopy
from shardmq.storage.versions import VERSION

CHECKPOINT_SECONDS: Final = 0.25
"""How long edits stay in the redo log. Longer lets more of them cancel out, and makes the commit after it longer."""

CHECKPOINT_BUSY_SECONDS: Final = 1.0
"""The same, while messages come and go: they wait for LMDB's two flushes, 1.2 ms and more each time. A second of them
takes less than twice as long to bring in as a quarter of one, as most are settled by then."""

CHECKPOINT_ROWS: Final = 4096
"""So many rows in the redo log are enough: every scan of a database goes through those of its own."""

LOGGED_BYTES_MAX: Final = 64 << 10
"""Commits up to this size go to the redo log first. Above, LMDB's second flush is a small part of the cost, and writing
twice would not be."""

_KEY_BYTES: Final = 512
"""About what a row takes of the map when only its key is read: its page is mapped together with its neighbours."""

_NOTE_BYTES: Final = 8

_log: Final = logging.getLogger(__name__)
_key_of: Final = itemgetter(0)


class LmdbEngine(Engine):
    """An open store on disk.

    Args:
        folder: of this store alone; it is made where there is none.
        layout: what is in it.
        heads: by database, called with every row's key and the first bytes of its value while the file is checked.
        keys: by database, called with the keys of every page while the file is checked.
        reserve_bytes: see `DiskSpace`.
        margin_bytes: see `DiskSpace`.
        new_version: of the format of a store that is made.

    Attributes:
        environment: LMDB's side of it.

    Raises:
        StoreRefused: in use, not LMDB, cut short, damaged, of another format or version. Nothing was touched.
        StoreUnwritable: its disk does not take anything.
    """

    space: DiskSpace

    def __init__(
        self,
        folder: Path,
        layout: Layout,
        heads: Mapping[str, Head] | None = None,
        keys: Mapping[str, Keys] | None = None,
        reserve_bytes: int = RESERVE_BYTES,
        margin_bytes: int = MARGIN_BYTES,
        new_version: int = VERSION,
    ) -> None:
        self.environment = open_environment(folder, layout.format, layout.databases, heads, keys, new_version)
        try:
            clear(folder)
            self.space = DiskSpace(self.environment, reserve_bytes, margin_bytes)
        except OSError as fault:
            self.environment.close()
            raise unwritable(folder, fault) from fault
        self.layout = layout
        self.file = self.environment.file
        self.version = self.environment.version
        self._use()
        self._map = PageMap(self.file)
        self._slack = Slack()
        self._redo: RedoLog | None = None
        self._overlay: list[dict[bytes, bytes | None]] = [{} for _ in layout.databases]
        self._bodies, self._entries = layout.paired or (-1, -1)
        self._new: set[bytes] = set()  # keys of paired bodies that are in the overlay, and not in LMDB
        self._pending_since: float | None = None  # monotonic; when the oldest edits of the overlay were logged
        self._touched = 0

    def _use(self) -> None:
        """The environment is new."""
        self._env = self.environment.env
        self._dbs = [self.environment.dbs[name] for name in self.layout.databases]

    def upgrade(self, databases: Iterable[int]) -> None:
        """Write all rows of some databases anew, as the layout has them, and raise the version; in one transaction.

        Raises:
            StoreUnwritable: all is as it was.
        """
        self._raise_version(VERSION, databases)

    def raise_version(self, version: int) -> None:
        self._raise_version(version, ())

    def _raise_version(self, version: int, databases: Iterable[int]) -> None:
        stored_value = self.layout.stored_value
        with writing(self.environment) as transaction:
            for number in databases:
                rewrite(transaction, self._dbs[number], partial(stored_value, number))
            self.environment.raise_version(transaction, version)
        self.version = version

    def start(self, applied: int | None, check: Callable[[], object]) -> None:
        if self.layout.log_note is None:
            return
        try:
            self._redo = redo = RedoLog(self.environment.folder / REDO, applied)
            if redo.pending:
                check()
                left = [edit for payload in redo.pending for edit in edits_in(redo.file, payload, len(self._dbs))]
                redo.pending.clear()
                self._commit(left)
            redo.renew()
        except OSError as fault:
            raise unwritable(self.environment.folder, fault) from fault

    @property
    def flush_seconds(self) -> TimeHistogram | None:
        return None if self._redo is None else self._redo.flush_seconds

    def get(self, database: int, key: bytes, size: int = 0) -> memoryview | None:
        recent = self._overlay[database]
        if key in recent:
            value = recent[key]
            return None if value is None else memoryview(self.layout.stored_value(database, key, value))
        if self._map.bytes >= READ_BYTES_MAX:
            self._map.release()
        ahead = self._map.ahead() if size >= AHEAD_BYTES_MIN else contextlib.nullcontext()
        with ahead, self._env.begin(db=self._dbs[database], buffers=True) as reading:
            found = reading.get(key)
        if found is not None:
            self._map.bytes += len(found)  # given back later: the pages are about to be read
        return found

    def scan(self, database: int, start: bytes = b"", end: bytes | None = None) -> Generator[Row]:
        recent = self._recent(database, start, end)
        stored = self._stored(database, start, end)
        if not recent:
            with contextlib.closing(stored):
                yield from stored
            return
        stored_value = self.layout.stored_value
        there = sorted([(key, value) for key, value in recent.items() if value is not None])
        logged = ((key, memoryview(stored_value(database, key, value))) for key, value in there)
        with contextlib.closing(stored):
            yield from heapq.merge((row for row in stored if row[0] not in recent), logged, key=_key_of)

    def keys(self, database: int, start: bytes = b"", end: bytes | None = None) -> Generator[bytes]:
        recent = self._recent(database, start, end)
        stored = self._stored_keys(database, start, end)
        with contextlib.closing(stored):
            if not recent:
                yield from stored
            else:
                there = sorted([key for key, value in recent.items() if value is not None])
                yield from heapq.merge((key for key in stored if key not in recent), there)

    def _recent(self, database: int, start: bytes, end: bytes | None) -> dict[bytes, bytes | None]:
        """Return the edits of the overlay within a scan."""
        recent = self._overlay[database]
        if not recent:
            return recent
        if end is None:
            return {key: value for key, value in recent.items() if start <= key}
        return {key: value for key, value in recent.items() if start <= key < end}

    def _stored(self, database: int, start: bytes, end: bytes | None) -> Generator[Row]:
        """The rows that LMDB has of a scan."""
        with self._env.begin(buffers=True) as reading, reading.cursor(self._dbs[database]) as cursor:
            if not cursor.set_range(start):
                return
            for place, value in cursor.iternext(keys=True, values=True):
                key = bytes(place)
                if end is not None and key >= end:
                    return
                yield key, value
                self._map.read(len(value))

    def _stored_keys(self, database: int, start: bytes, end: bytes | None) -> Generator[bytes]:
        """The keys that LMDB has of a scan."""
        with self._env.begin() as reading, reading.cursor(self._dbs[database]) as cursor:
            if not cursor.set_range(start):
                return
            for key in cursor.iternext(keys=True, values=False):
                if end is not None and key >= end:
                    return
                yield key
                self._map.read(_KEY_BYTES)

    def key_before(self, database: int, key: bytes) -> bytes | None:
        recent = self._overlay[database]
        logged = max([each for each, value in recent.items() if value is not None and each < key], default=None)
        stored: bytes | None = None
        with self._env.begin() as reading, reading.cursor(self._dbs[database]) as cursor:
            more = cursor.prev() if cursor.set_range(key) else cursor.last()
            while more and cursor.key() in recent:
                more = cursor.prev()
            if more:
                stored = cursor.key()
        self._map.read(_KEY_BYTES)
        return max(filter(None, (logged, stored)), default=None)

    def apply(self, edits: Iterable[Edit], size: int | None = None, touched: int = 0) -> None:
        self._touched += touched
        if size is not None and size <= LOGGED_BYTES_MAX and self._redo is not None:
            logged = [(number, key, None if value is None else bytes(value)) for number, key, value in edits]
            payload = encode_edits(logged)
            if self._redo.has_room(len(payload)):
                try:
                    self._redo.append(payload)
                except OSError as fault:
                    raise unwritable(self.environment.folder, fault) from fault
                self._log_applied(logged)
                return
            edits = logged
        self._commit(edits)

    def _log_applied(self, edits: list[LoggedEdit]) -> None:
        """Edits are in the redo log."""
        if self._pending_since is None:
            self._pending_since = time.monotonic()
        overlay, new = self._overlay, self._new
        bodies, entries = self._bodies, self._entries
        for number, key, value in edits:
            recent = overlay[number]
            if number == bodies:
                if value is not None:
                    if key not in recent:
                        new.add(key)
                elif key in new:
                    del recent[key]
                    continue
            elif number == entries and value is None and key in new:
                new.remove(key)
                recent.pop(key, None)
                continue
            recent[key] = value

    def _commit(self, edits: Iterable[Edit]) -> None:
        """Bring into LMDB what is in the redo log, then these edits, in one transaction."""
        dbs, stored_value = self._dbs, self.layout.stored_value
        if self._new:
            edits = self._without_news(iter(edits))
        with writing(self.environment) as transaction:
            put, delete = transaction.put, transaction.delete
            for number, recent in enumerate(self._overlay):
                for key, logged in recent.items():
                    if logged is None:
                        delete(key, db=dbs[number])
                    else:
                        put(key, stored_value(number, key, logged), db=dbs[number])
            for number, key, value in edits:
                if value is None:
                    delete(key, db=dbs[number])
                else:
                    put(key, stored_value(number, key, value), db=dbs[number])
            if self._redo is not None and self.layout.log_note is not None:
                number, key = self.layout.log_note
                put(key, stored_value(number, key, self._redo.last.to_bytes(_NOTE_BYTES, "big")), db=dbs[number])
        self._map.read(self._touched)
        self._touched = 0
        if self._pending_since is not None:
            self._pending_since = None
            for recent in self._overlay:
                recent.clear()
            self._new.clear()
        if self._redo is not None:
            self._redo.rewind()
        self.space.committed()

    def _without_news(self, edits: Iterator[Edit]) -> Iterator[Edit]:
        """Carry out the deletions that come first, where what they delete is in the overlay alone; return the rest."""
        overlay, new = self._overlay, self._new
        bodies, entries = self._bodies, self._entries
        others: list[Edit] = []
        for edit in edits:
            number, key, value = edit
            if value is not None:
                return chain(others, (edit,), edits)
            if key not in new or number not in (bodies, entries):
                others.append(edit)
                continue
            overlay[number].pop(key, None)
            if number == entries:
                new.remove(key)
        return iter(others)

    def sync(self) -> None:
        if self._pending_since is not None:
            self._commit(())

    def rest(self, now: float, is_busy: bool = False) -> None:
        since = self._pending_since
        if since is not None and now - since >= CHECKPOINT_SECONDS:
            may_wait = is_busy and now - since < CHECKPOINT_BUSY_SECONDS
            if not may_wait or sum(map(len, self._overlay)) >= CHECKPOINT_ROWS:
                self._commit(())
        if self._map.bytes >= READ_BYTES_MAX:
            self._map.release()
        elif not is_busy:
            self._map.rest(now)

    @property
    def is_pending(self) -> bool:
        return self._pending_since is not None

    def clear(self, *databases: int) -> None:
        self.sync()
        with writing(self.environment) as transaction:
            for number in databases:
                if transaction.stat(self._dbs[number])["entries"]:
                    transaction.drop(self._dbs[number], delete=False)

    def compact_at_start(self) -> None:
        if is_worth_it(self.space.look(), COPY_AT_START_BYTES_MAX):
            self._compact()

    def give_back(self, now: float, room: Room, is_pressed: bool) -> None:
        if self._slack.is_due(now, room, is_pressed):
            self._slack.rest(now)
            self._compact()

    def _compact(self) -> None:
        """Have a file without free pages. Where there is no room for it, all stays as it is."""
        self.sync()
        self._map.release()
        try:
            copy(self.environment)
        except UNMADE as fault:
            _log.warning("%s was not compacted: %s", self.file, fault)
            return
        self.environment = swap(self.environment)
        self._use()
        self._map.release()  # there is another one now
        self.space.use(self.environment)

    def sizes(self) -> dict[str, int]:
        room = self.space.room()
        return {
            "file_bytes": self.file.stat().st_size,
            "used_bytes": room.used,
            "free_bytes": room.inside,
            "map_bytes": self._env.info()["map_size"],
        }

    def copy(self, folder: Path, bytes_per_second: int) -> StoreCopy:
        self.sync()
        used = self.space.room().used
        begun = StoreCopy(self._env, folder, bytes_per_second, used, PageMap(self.file).read)
        self.space.hold(begun)
        return begun

    def close(self) -> None:
        self.sync()
        if self._redo is not None:
            self._redo.close()
        self.environment.close()
