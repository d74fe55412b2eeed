"""What the core writes and reads, on an engine: rows, the note, and the keys that records touched.

All of a commit is one of the engine's. Commits of one turn that are records alone are one, too: one flush has them all.
"""

from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import chain, islice
from pathlib import Path
from typing import Final, Self

from shardmq.replication.core.effects import Commit
from shardmq.replication.core.note import Edits, Key, Note
from shardmq.replication.core.state import Stored
from shardmq.replication.store.envelope import SealedEdits
from shardmq.replication.store.faults import ReplicaFull
from shardmq.replication.store.key_range import checked_value, shared_databases, shared_rows, within
from shardmq.replication.store.note import note_edit
from shardmq.replication.store.replica import KEY_BYTES, NOTE_BYTES, Replica, start_replica
from shardmq.storage.engine import Bytes, Edit, Engine, Layout
from shardmq.storage.lmdb_engine import LmdbEngine
from shardmq.storage.versions import REPLICAS_SINCE

BATCH_BYTES_MAX: Final = 8 << 20
"""Records that are written together: what a disk takes well within the time between two beats."""

ANSWER_BYTES_MAX: Final = 32 << 20
"""Rows of one answer to a rejoin, beside the largest of them, which may be of any size: half of what a link may have
waiting. More make it a join."""

DELETED_MAX: Final = 10_000
"""Rows deleted in one commit, of those that a join replaces."""

FULL_BYTES_MAX: Final = 4 << 20
"""Bytes of values that are taken on a full disk: acknowledgements must be, as they make room. They go into the reserve,
which is larger."""

FULL_RECORD_BYTES_MAX: Final = 64 << 10
"""The same of one commit. With more, it has messages."""

_ROOM: Final = 2
"""A commit needs this many times its bytes: LMDB copies the pages above what it writes."""

_PAGE_BYTES: Final = 4096


class TooMuch(Exception):
    """Rows are more than one message may have."""


class ReplicaStore:
    """The store of one replica, whatever its role.

    Args:
        engine: whose redo log is open, and which has a note.

    Attributes:
        engine: what the store lies in.

    Raises:
        StoreRefused: it has no note, or a damaged one.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._replica = Replica(engine)
        self._full_bytes = 0  # of values, taken since the disk was found full

    @classmethod
    def open(cls, folder: Path, layout: Layout) -> Self:
        """Open a replica's store on disk, or make one where there is none; a new one is empty.

        Args:
            folder: of the store.
            layout: what is in it.

        Raises:
            StoreRefused: in use, damaged, of another kind or version, or not a replica's. Nothing in it was touched.
            StoreUnwritable: its disk does not take anything.
        """
        engine = LmdbEngine(folder, layout, new_version=REPLICAS_SINCE)
        try:
            return cls.started(engine)
        except BaseException:
            engine.close()
            raise

    @classmethod
    def started(cls, engine: Engine) -> Self:
        """Open the redo log of an engine; an empty store becomes that of a newcomer.

        Raises:
            StoreRefused: the store is damaged, or not a replica's.
            StoreUnwritable: the disk does not take it.
        """
        start_replica(engine)
        return cls(engine)

    @property
    def note(self) -> Note:
        """How far it is, on disk."""
        return self._replica.note

    @property
    def clock(self) -> float:
        """Seconds of the group's clock, as of the last commit."""
        return self._replica.clock

    def stored(self) -> Stored:
        """Return what the store says about itself, for the core's start.

        Raises:
            StoreRefused: a row of touched keys is not what was written.
        """
        replica = self._replica
        passed = None if replica.clock_at is None else replica.clock_at.seconds_ago()
        touched = tuple(replica.touched.above(replica.note.released))
        return Stored(replica.note, touched, replica.clock + (passed or 0.0), is_clock_old=passed is None)

    def write(self, commits: Sequence[Commit]) -> None:
        """Carry out commits, in order; they are on disk when this returns.

        Args:
            commits: one or more: such as `batch` returns.

        Raises:
            ReplicaFull: the disk has no room for them. Nothing was written.
            StoreUnwritable: they may not be on disk. The process must end.
        """
        size = sum([size_of(commit.edits) for commit in commits])
        deleted = 0
        if size:
            values = [value for commit in commits for _, _, value in commit.edits]
            self._look_for_room(size, values)
            deleted = values.count(None) * _PAGE_BYTES
        is_special = _is_special(commits[0])
        if is_special:
            self._clear(commits[0])
        may_be_there = is_special or commits[-1].note.copied is not None
        self._apply(commits, (), None if may_be_there else size, deleted)

    def write_own(self, commit: Commit, local: Sequence[Edit], is_small: bool, deleted: int) -> None:
        """Write the primary's own record; it is on disk when this returns.

        Args:
            commit: with the record.
            local: edits that are this replica's alone.
            is_small: whether it may go to the redo log.
            deleted: about how many bytes of stored values the edits reach.

        Raises:
            StoreUnwritable: it may not be on disk. The process must end.
        """
        size = None
        if is_small:
            size = size_of(commit.edits) + sum([len(key) + len(value or b"") for _, key, value in local])
        self._apply((commit,), local, size, deleted)

    def _apply(self, commits: Sequence[Commit], local: Sequence[Edit], size: int | None, deleted: int) -> None:
        replica, last = self._replica, commits[-1]
        touched = replica.touched
        touched.release(last.note.released)  # the note that says so is in the same commit
        behind: list[Edit] = []
        for commit in commits:
            if commit.cut is not None:
                behind += touched.drop_above(commit.cut)
            for index, keys in commit.touched:
                behind += touched.edits(index, keys)
                if size is not None:
                    size += KEY_BYTES * len(keys)
        if size is not None:
            size += NOTE_BYTES
        behind.append(note_edit(self.engine, last.note, last.clock))
        edits = chain(chain.from_iterable([commit.edits for commit in commits]), local, behind)
        self.engine.apply(edits, size, deleted)
        replica.note, replica.clock = last.note, last.clock

    def read_keys(self, keys: Iterable[Key]) -> SealedEdits:
        """Read rows, as edits that make them what they are now.

        Raises:
            RowDamaged: a row is not what was written, and is not sent.
            TooMuch: they are more than one message may have.
        """
        return SealedEdits.sealed(self._bounded(map(self._row, keys)))

    def read_range(self, start: Key, bytes_max: int) -> tuple[SealedEdits, Key | None, int]:
        """Read the rows from a key on, about so many bytes.

        Returns:
            The rows, the first key behind them, and how many bytes they have.

        Raises:
            RowDamaged: a row is not what was written: it is not sent, and the join cannot go on.
        """
        end: Key | None = None

        def rows() -> Iterable[Edit]:
            nonlocal end
            size = 0
            with closing(shared_rows(self.engine, start)) as found:
                for number, key, stored in found:
                    if size and size + len(stored) > bytes_max:
                        end = number, key
                        return
                    size += len(key) + len(stored)
                    yield number, key, checked_value(self.engine, number, key, stored)

        edits = SealedEdits.sealed(rows())
        return edits, end, len(edits.data)

    def _row(self, place: Key) -> Edit:
        number, key = place
        stored = self.engine.get(number, key)
        return number, key, None if stored is None else checked_value(self.engine, number, key, stored)

    @staticmethod
    def _bounded(edits: Iterable[Edit]) -> Iterable[Edit]:
        size = largest = 0
        for edit in edits:
            row = len(edit[1]) + len(edit[2] or b"")
            size += row
            largest = max(largest, row)
            if size - largest > ANSWER_BYTES_MAX:
                raise TooMuch
            yield edit

    def _clear(self, commit: Commit) -> None:
        """Delete the rows of a range that a join does not put. The store says that it is incomplete already."""
        if commit.clear is None:
            return
        present = {(number, key) for number, key, _ in commit.edits}
        for number in shared_databases(self.engine):
            keys = within(number, *commit.clear)
            if keys is not None:
                self._delete_others(number, *keys, present)

    def _delete_others(self, number: int, start: bytes, end: bytes | None, present: set[Key]) -> None:
        engine = self.engine
        while True:
            with closing(engine.keys(number, start, end)) as stored:
                others = (key for key in stored if (number, key) not in present)
                keys = [key for key in islice(others, DELETED_MAX) if (number, key) != engine.layout.log_note]
            gone: list[Edit] = [(number, key, None) for key in keys]
            if not gone:
                return
            engine.apply(gone)
            start = gone[-1][1]

    def _look_for_room(self, size: int, values: list[Bytes | None]) -> None:
        """Make sure that edits fit; what is small may go into the reserve where the disk is full.

        Raises:
            ReplicaFull: they do not.
        """
        space = self.engine.space
        if space.left < _ROOM * size:
            space.look()
        if space.left >= _ROOM * size:
            space.left -= size
            self._full_bytes = 0
            return
        adds = sum([len(value) for value in values if value is not None])
        if adds > FULL_RECORD_BYTES_MAX or self._full_bytes + adds > FULL_BYTES_MAX:
            raise ReplicaFull(self.engine.file, size)
        self._full_bytes += adds

    def close(self) -> None:
        """Bring everything into the databases and let go of the files."""
        self.engine.close()


def batch(commits: Sequence[Commit]) -> int:
    """How many of the first commits are written together."""
    size = 0
    for count, commit in enumerate(commits):
        size += size_of(commit.edits)
        if count and (_is_special(commit) or size > BATCH_BYTES_MAX):
            return count
        if _is_special(commit):
            return 1
    return len(commits)


def size_of(edits: Edits) -> int:
    """About how many bytes edits are."""
    if isinstance(edits, SealedEdits):
        return len(edits.data)
    return sum([len(key) + len(value or b"") for _, key, value in edits])


def _is_special(commit: Commit) -> bool:
    return commit.cut is not None or commit.clear is not None
