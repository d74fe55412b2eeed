"""A follower's store: takes records, promises terms, rejoins, joins. It has no queues, and decides nothing.

To be primary, it is closed, and opened by its owner behind a `ReplicatedEngine`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from shardmq.replication.core.messages import Touched
from shardmq.replication.core.note import Note
from shardmq.replication.store.faults import OutOfOrder, ReplicaFull, TermRefused
from shardmq.replication.store.joining import begin_join, put_range
from shardmq.replication.store.key_range import opened_range
from shardmq.replication.store.record import Record, opened_record
from shardmq.replication.store.replica import Replica, start_replica
from shardmq.replication.store.tail import opened_tail, rejoin
from shardmq.storage.engine import Engine, Layout
from shardmq.storage.lmdb_engine import LmdbEngine

FULL_BYTES_MAX: Final = 4 << 20
"""Bytes of values that are taken on a full disk: acknowledgements must be, as they make room. They go into the reserve,
which is larger."""

FULL_RECORD_BYTES_MAX: Final = 64 << 10
"""The same of one commit. With more, it has messages."""

_ROOM: Final = 2
"""A commit needs this many times its bytes: LMDB copies the pages above what it writes."""

_PAGE_BYTES: Final = 4096

Bytes = bytes | bytearray | memoryview


class FollowerStore:
    """The store of a follower.

    Args:
        engine: whose redo log is open, and which has a note.

    Attributes:
        engine: what the store lies in.
        replica: its note and touched keys.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.replica = Replica(engine)
        self._full_bytes = 0  # of values, taken since the disk was found full

    @classmethod
    def open(cls, folder: Path, layout: Layout) -> Self:
        """Open a replica's store on disk, or make one where there is none; a new one has to join.

        Args:
            folder: of the store.
            layout: what is in it.

        Raises:
            StoreRefused: in use, damaged, of another kind or version, or not a replica's. Nothing in it was touched.
            StoreUnwritable: its disk does not take anything.
        """
        engine = LmdbEngine(folder, layout)
        try:
            return cls.started(engine)
        except BaseException:
            engine.close()
            raise

    @classmethod
    def started(cls, engine: Engine) -> Self:
        """Open the redo log of an engine; an empty store becomes that of a newcomer, which has to join.

        Raises:
            StoreRefused: the store is damaged, or not a replica's.
            StoreUnwritable: the disk does not take it.
        """
        start_replica(engine)
        return cls(engine)

    @property
    def note(self) -> Note:
        """Return how far it is."""
        return self.replica.note

    def promise(self, term: int) -> None:
        """Take nothing of lower terms from here on; that is on disk when this returns.

        Raises:
            TermRefused: a higher one is promised already.
        """
        self.replica.promise(term)

    def opened(self, data: Bytes) -> Record:
        """Check the bytes of a record.

        Raises:
            EnvelopeDamaged: they are not what was sent, or none for this store.
        """
        return opened_record(self.engine, data)

    def apply(self, records: Sequence[Record]) -> int:
        """Take records, in one commit; they are on disk when this returns.

        Args:
            records: in order, one or more.

        Returns:
            The index of the last one.

        Raises:
            TermRefused: one is of a lower term than was promised.
            OutOfOrder: they do not follow the last one.
            ReplicaFull: the disk has no room for them. In these three cases nothing was written.
            StoreUnwritable: they may not be on disk. The process must end.
        """
        size = deletions = 0
        note = self.replica.note
        term, index, promised = note.term, note.index, note.promised
        for record in records:
            if record.term < promised:
                raise TermRefused(self.engine.file, record.term, promised)
            if record.index != index + 1 or record.after != term:
                raise OutOfOrder(
                    f"{self.engine.file} is at record {index} of term {term}, and cannot take {record!r}, which "
                    f"follows one of term {record.after}"
                )
            term, index, promised = record.term, record.index, record.term
            size += len(record.data)
            deletions += [value for _, _, value in record.edits].count(None)
        if self.engine.space.left < _ROOM * size:
            self._take_from_reserve(records, size)
        else:
            self._full_bytes = 0
        self.replica.commit(records, (), size, deletions * _PAGE_BYTES)
        return index

    def release(self, index: int) -> None:
        """Note that all records up to an index are on all in-sync replicas; it is written with the next commit."""
        self.replica.release(index)

    def rejoin(self, data: Bytes) -> None:
        """Take a tail, in one commit.

        Raises:
            EnvelopeDamaged: its bytes are not what was sent.
            TermRefused, OutOfOrder, ReplicaFull, StoreUnwritable: see `tail.rejoin`.
        """
        rejoin(self.replica, opened_tail(self.engine, data))

    def begin_join(self, origin: Note, touched: Sequence[Touched]) -> None:
        """Mark the store as not complete; see `joining.begin_join`."""
        begin_join(self.replica, origin, touched)

    def put_range(self, data: Bytes) -> None:
        """Take a range of rows.

        Raises:
            EnvelopeDamaged: its bytes are not what was sent.
            OutOfOrder, ReplicaFull, StoreUnwritable: see `joining.put_range`.
        """
        put_range(self.replica, opened_range(self.engine, data))

    def rest(self, now: float, is_busy: bool = False) -> None:
        """Do what may wait; see `Engine.rest`."""
        self.engine.rest(now, is_busy)

    def close(self) -> None:
        """Bring everything into the databases and let go of the files."""
        self.engine.close()

    def _take_from_reserve(self, records: Sequence[Record], size: int) -> None:
        """Take what is small where the disk is full."""
        self.engine.space.look()
        if self.engine.space.left >= _ROOM * size:
            return
        adds = sum([len(value) for record in records for _, _, value in record.edits if value is not None])
        if adds > FULL_RECORD_BYTES_MAX or self._full_bytes + adds > FULL_BYTES_MAX:
            raise ReplicaFull(self.engine.file, size)
        self._full_bytes += adds
