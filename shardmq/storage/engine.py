"""The interface of a storage engine: ordered databases of keys and values, written in atomic batches.

    owner of a store ── edits ──► engine ──► LMDB and a redo log (lmdb_engine.py), or memory (memory_engine.py)

An edit is complete: it names the database and the key, and has the whole value, or None to delete the row. Two engines
of one layout that were given the same edits in the same order hold the same rows, so a stream of edits is all that a
copy of a store needs.

An edit's value is what the owner has to say. What lies in the database is `Layout.stored_value` of it, most often the
value behind a checksum; `get` and `scan` hand that out, and the owner checks it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

from shardmq.runtime.statistics.histograms import TimeHistogram
from shardmq.storage.store_copy import StoreCopy

Bytes = bytes | bytearray | memoryview

Edit = tuple[int, bytes, Bytes | None]
"""Database, key, value; None for the value deletes the row."""

Row = tuple[bytes, memoryview]
"""Key, and the value as it is stored."""

KEY_BYTES_MAX: Final = 511
"""The longest key; the shortest is one byte."""


@dataclass(frozen=True, slots=True)
class ReplicaLayout:
    """What of a store is the same on all of its replicas, and how its rows move between them.

    Attributes:
        notes: number of the database in which a replica notes how far it is. It is empty in a store of a broker on one
            machine, and each replica has its own.
        local: numbers of databases that each start empties; no replica has what another has there.
        edit_value: called with database, key and a stored value; returns the edit's value that it was made of, None
            where it is not what was written.
    """

    notes: int
    local: frozenset[int]
    edit_value: Callable[[int, bytes, memoryview], memoryview | None]


@dataclass(frozen=True, slots=True)
class Layout:
    """The databases of a store, and how its rows are stored.

    Attributes:
        format: whose store it is, as `shardmq-shard`; another format is refused.
        databases: names of the databases. Edits have their numbers: positions in this tuple.
        stored_value: called with database, key and an edit's value; returns what is stored.
        log_note: database and key of the row in which an engine with a redo log notes how far the log is in the
            databases, a number of 8 bytes; None for an engine without a log.
        paired: a database of bodies and one of their entries, at the same keys: a body is put only where there is
            none, and it is deleted before its entry is. Those that come and go within the log never reach the
            databases. None where there are no such databases.
        replicas: None for stores that no replica may have.
    """

    format: bytes
    databases: tuple[bytes, ...]
    stored_value: Callable[[int, bytes, Bytes], Bytes]
    log_note: tuple[int, bytes] | None = None
    paired: tuple[int, int] | None = None
    replicas: ReplicaLayout | None = None


@dataclass(frozen=True, slots=True)
class Room:
    """The room a store has, in bytes.

    Attributes:
        free: what is left for the file to grow by.
        inside: free pages in the file that can be written again. The reserve is not among them.
        used: what of the file holds something.
        is_capped: whether the file may grow by less than the disk has free: there is a limit to its size.
    """

    free: int
    inside: int
    used: int
    is_capped: bool = False

    @property
    def bytes(self) -> int:
        """How much can be written in all."""
        return self.free + self.inside


class Space(Protocol):
    """The room under a store.

    Attributes:
        left: bytes that may still be taken in, as of the last look; whoever takes some in subtracts them.
    """

    left: int

    def look(self) -> Room:
        """Measure the room, and set `left`."""

    def room(self) -> Room:
        """Measure the room."""


class Engine(ABC):
    """Databases of rows in the order of their keys. One thread of one process owns them.

    Attributes:
        file: the data file, for error texts.
        layout: what is in it.
        version: of the format.
        space: the room under it.
        is_replicated: whether its edits go to other hosts, too.
    """

    is_replicated: ClassVar[bool] = False
    file: Path
    layout: Layout
    version: int
    space: Space

    @abstractmethod
    def start(self, applied: int | None, check: Callable[[], object]) -> None:
        """Open the redo log, and bring into the databases what a crash left in it. Without a log, do nothing.

        Args:
            applied: what the row `log_note` says; None where it is not there.
            check: called before the first write, where a crash left something. What it raises leaves all as it was.

        Raises:
            StoreRefused: the log is missing, damaged, or of another store.
            StoreUnwritable: the disk does not take it.
        """

    @abstractmethod
    def raise_version(self, version: int) -> None:
        """Note on disk that rows are a version's from now on: earlier ones refuse the store.

        Args:
            version: VERSION at most.

        Raises:
            StoreUnwritable: all is as it was.
        """

    @abstractmethod
    def get(self, database: int, key: bytes, size: int = 0) -> memoryview | None:
        """Return a stored value, None where there is no such row.

        The view is good until the engine is next asked to write, to give space back, or to close.

        Args:
            database: number of the database.
            key: of the row.
            size: about how many bytes it has, where that is known: what is large is read ahead.
        """

    @abstractmethod
    def scan(self, database: int, start: bytes = b"", end: bytes | None = None) -> Generator[Row]:
        """Yield the rows with start <= key < end, in the order of their keys.

        The rows are those of the moment of the first step, whatever is applied meanwhile. A view is good until the next
        step. Close the iterator (`contextlib.closing`) when you leave it early.
        """

    @abstractmethod
    def keys(self, database: int, start: bytes = b"", end: bytes | None = None) -> Generator[bytes]:
        """Yield keys as `scan` yields rows, without reading the values."""

    @abstractmethod
    def key_before(self, database: int, key: bytes) -> bytes | None:
        """Return the last key that is less than a key; None where there is none."""

    @abstractmethod
    def apply(self, edits: Iterable[Edit], size: int | None = None, touched: int = 0) -> None:
        """Make edits durable, all or none of them. They are on disk when this returns.

        Args:
            edits: in order: of several edits of one key the last one counts. A value need only be good until the next
                edit is asked for.
            size: about how many bytes they are, where the owner knows: few may go to the redo log, which is cheaper.
            touched: about how many bytes of stored values the edits reach: those they delete or replace. They count
                as memory of the process until mapped pages are given back.

        Raises:
            StoreUnwritable: they may not be on disk. The process must end: only a new start knows what is there.
        """

    @abstractmethod
    def sync(self) -> None:
        """Bring into the databases what is in the redo log alone."""

    @abstractmethod
    def rest(self, now: float, is_busy: bool = False) -> None:
        """Do what may wait until nobody does: bring into the databases what has been in the redo log for long enough.

        Args:
            now: monotonic seconds.
            is_busy: somebody does, and it may wait for longer.
        """

    @property
    @abstractmethod
    def is_pending(self) -> bool:
        """Whether there are edits in the redo log that are not in the databases."""

    @abstractmethod
    def clear(self, *databases: int) -> None:
        """Delete all rows of some databases, whose content is not to outlive the process. No edits tell of it."""

    @abstractmethod
    def compact_at_start(self) -> None:
        """Give free space back to the file system, before anybody waits: more may be copied than in `give_back`."""

    @abstractmethod
    def give_back(self, now: float, room: Room, is_pressed: bool) -> None:
        """Give free space back to the file system, where that is due.

        Args:
            now: monotonic seconds.
            room: what `space.look` found.
            is_pressed: whether the disk is short of room.
        """

    @property
    def flush_seconds(self) -> TimeHistogram | None:
        """Return how long it took to have edits in the redo log on disk, since start; None where there is no log."""
        return None

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """Return how large the store is.

        Returns:
            `file_bytes`, `used_bytes` (pages that hold something), `free_bytes` (pages that hold nothing and take room
            on the disk) and `map_bytes` (address space).
        """

    def replication(self) -> dict[str, Any]:
        """Return what is known of the store's replicas on other hosts, for the status; nothing where there are none."""
        return {}

    @abstractmethod
    def copy(self, folder: Path, bytes_per_second: int) -> StoreCopy:
        """Begin to copy all that was applied so far into a folder that is not there yet.

        Raises:
            OSError: it cannot be made.
            StoreRefused: the engine is none that can be copied.
        """

    @abstractmethod
    def close(self) -> None:
        """Bring everything into the databases and let go of the files."""


def behind(prefix: bytes) -> bytes | None:
    """Return the least key behind all keys with a prefix, to end a scan with; None where there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) if kept else None
