"""The primary's engine: each commit with edits that replicas share is a record, which is sent before it is applied.

owner ── edits ──► ReplicatedEngine ─┬─ record ──► send
                                     └─ edits, note, touched keys ──► engine
"""

from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import ClassVar

from shardmq.errors import StoreRefused
from shardmq.replication.core.note import Note
from shardmq.replication.store.note import adopt, read_note, replicas_of
from shardmq.replication.store.record import Record, RecordHead, record_of
from shardmq.replication.store.replica import Replica
from shardmq.runtime.statistics.histograms import TimeHistogram
from shardmq.storage.engine import Edit, Engine, Room, Row
from shardmq.storage.store_copy import StoreCopy


class ReplicatedEngine(Engine):
    """An engine in front of another, which numbers its commits.

    Args:
        engine: with the rows. Its redo log is not open yet.
        term: of this primary.
        send: called with each record, before it is applied here.
        adopt_as: the incarnation of a new group, whose first replica a store without a note becomes; None to refuse
            such a store.
        clock: tells the seconds of the group's clock.

    Attributes:
        replica: the note and the touched keys; there once `start` returned.
    """

    is_replicated: ClassVar[bool] = True
    replica: Replica

    def __init__(
        self,
        engine: Engine,
        term: int,
        send: Callable[[Record], object],
        adopt_as: str | None = None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._engine = engine
        self._term = term
        self._send = send
        self._adopt_as = adopt_as
        self._clock = clock
        self.file = engine.file
        self.layout = engine.layout
        self.version = engine.version
        self.space = engine.space
        self._local = replicas_of(engine).local

    @property
    def index(self) -> int:
        """Return the index of the last commit; it is on this disk."""
        return self.replica.note.index

    def start(self, applied: int | None, check: Callable[[], object]) -> None:
        """Open the redo log, and promise the term; it is on disk when this returns.

        Raises:
            StoreRefused: the log is missing, damaged, or of another store; or the store is not one that can be the
                primary's: it is no replica's, or a join did not end.
            TermRefused: a higher term is promised.
            StoreUnwritable: the disk does not take it.
        """
        self._engine.start(applied, check)
        if self._adopt_as is not None and read_note(self._engine) is None:
            adopt(self._engine, Note(self._adopt_as, promised=self._term))
        self.replica = Replica(self._engine)
        if not self.replica.note.is_complete:
            raise StoreRefused(
                f"{self.file} has not all rows, as its join did not end; another replica must be primary, or this "
                "folder be moved away"
            )
        self.replica.promise(self._term)

    def apply(self, edits: Iterable[Edit], size: int | None = None, touched: int = 0) -> None:
        """Send edits as a record, and make them durable here; see `Engine.apply`."""
        note = self.replica.note
        head = RecordHead(note.term, self._term, note.index + 1, self._clock())
        record, own = record_of(self._engine, head, edits)
        if record is None:
            self._engine.apply(own, size, touched)
            return
        self._send(record)
        if size is not None:
            size = len(record.data) + sum([len(key) + len(value or b"") for _, key, value in own])
        self.replica.commit((record,), own, size, touched)

    def get(self, database: int, key: bytes, size: int = 0) -> memoryview | None:
        return self._engine.get(database, key, size)

    def scan(self, database: int, start: bytes = b"", end: bytes | None = None) -> Generator[Row]:
        return self._engine.scan(database, start, end)

    def keys(self, database: int, start: bytes = b"", end: bytes | None = None) -> Generator[bytes]:
        return self._engine.keys(database, start, end)

    def key_before(self, database: int, key: bytes) -> bytes | None:
        return self._engine.key_before(database, key)

    def sync(self) -> None:
        self._engine.sync()

    def rest(self, now: float, is_busy: bool = False) -> None:
        self._engine.rest(now, is_busy)

    @property
    def is_pending(self) -> bool:
        return self._engine.is_pending

    def clear(self, *databases: int) -> None:
        assert self._local.issuperset(databases), "no edits tell of what is cleared: replicas would differ"
        self._engine.clear(*databases)

    def compact_at_start(self) -> None:
        self._engine.compact_at_start()

    def give_back(self, now: float, room: Room, is_pressed: bool) -> None:
        self._engine.give_back(now, room, is_pressed)

    @property
    def flush_seconds(self) -> TimeHistogram | None:
        return self._engine.flush_seconds

    def sizes(self) -> dict[str, int]:
        return self._engine.sizes()

    def copy(self, folder: Path, bytes_per_second: int) -> StoreCopy:
        return self._engine.copy(folder, bytes_per_second)

    def close(self) -> None:
        self._engine.close()
