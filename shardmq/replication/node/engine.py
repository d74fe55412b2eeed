"""The engine that the owner of the primary's store has: each commit is a record, which is sent before it is applied.

    owner ── edits ──► PrimaryEngine ──► node ─┬─ record ──► the other replicas
                                               └─ edits, note, touched keys ──► engine

What is this replica's alone is no record.
"""

from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any, ClassVar, Protocol

from shardmq.replication.store.envelope import SealedEdits
from shardmq.replication.store.note import replicas_of
from shardmq.runtime.statistics.histograms import TimeHistogram
from shardmq.storage.engine import Edit, Engine, Room, Row
from shardmq.storage.store_copy import StoreCopy


class Proposes(Protocol):
    """Makes a record of edits, and returns when it is on this disk."""

    def __call__(self, edits: SealedEdits, local: list[Edit], is_small: bool, deleted: int) -> None: ...


class PrimaryEngine(Engine):
    """An engine in front of the replica's, for the owner of its store while it leads.

    Args:
        engine: with the rows; it is started already.
        propose: of the node.

    Attributes:
        told: what its status tells of the other replicas.
    """

    is_replicated: ClassVar[bool] = True

    def __init__(self, engine: Engine, propose: Proposes) -> None:
        self._engine = engine
        self._propose = propose
        self.file = engine.file
        self.layout = engine.layout
        self.version = engine.version
        self.space = engine.space
        self.told: Callable[[], dict[str, Any]] = dict
        self._local = replicas_of(engine).local

    def start(self, applied: int | None, check: Callable[[], object]) -> None:
        """Do nothing: the replica has opened the redo log."""

    def raise_version(self, version: int) -> None:
        """Do nothing: the replica raises it, with all others of its broker."""

    def apply(self, edits: Iterable[Edit], size: int | None = None, touched: int = 0) -> None:
        """Send edits as a record, and make them durable here; see `Engine.apply`.

        Raises:
            NotPrimary: this replica does not lead any more.
            StoreUnwritable: they may not be on disk. The process must end.
        """
        local = self._local
        own: list[Edit] = []

        def shared() -> Iterable[Edit]:
            for edit in edits:
                if edit[0] in local:
                    value = edit[2]
                    own.append((edit[0], edit[1], None if value is None else bytes(value)))
                else:
                    yield edit

        sealed = SealedEdits.sealed(shared() if local else edits)
        if sealed:
            self._propose(sealed, own, size is not None, touched)
        elif own:
            self._engine.apply(own, size, touched)

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

    def replication(self) -> dict[str, Any]:
        return self.told()

    def copy(self, folder: Path, bytes_per_second: int) -> StoreCopy:
        return self._engine.copy(folder, bytes_per_second)

    def close(self) -> None:
        """Do nothing: the replica goes on, and its node closes the store."""
