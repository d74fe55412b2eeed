"""Replicas' stores for tests, on disk and in memory, with edits as their owners make them."""

import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shardmq.replication.core.note import BEGINNING, Key
from shardmq.replication.store.follower import FollowerStore
from shardmq.replication.store.key_range import read_range
from shardmq.replication.store.record import Record
from shardmq.replication.store.record_ring import RecordRing
from shardmq.replication.store.replicated_engine import ReplicatedEngine
from shardmq.shards.storage.schema import INDEX, LAYOUT, MARKS, NUMBER, PLACE, QUEUES, SEGMENTS, SPILLED
from shardmq.storage.checksums import sealed_row
from shardmq.storage.engine import Edit, Engine
from shardmq.storage.lmdb_engine import LmdbEngine
from shardmq.storage.memory_engine import MemoryEngine, MemoryRows

RAM = "/dev/shm" if Path("/dev/shm").is_dir() else None


@contextmanager
def room() -> Iterator[Path]:
    """A folder in memory."""
    with tempfile.TemporaryDirectory(dir=RAM) as name:
        yield Path(name)


class Traffic:
    """Edits as a shard's commits have them: bodies and their entries come and go, marks and queues change.

    Args:
        seed: of the choices.
        bytes_max: of a body.
    """

    def __init__(self, seed: int, bytes_max: int = 300) -> None:
        self.dice = random.Random(seed)
        self.bytes_max = bytes_max
        self.next = 0
        self.there: list[bytes] = []

    def go_on(self, engine: Engine) -> None:
        """Go on with what a new primary has: it gives numbers again that the one before gave."""
        self.there = list(engine.keys(SEGMENTS))
        self.next = max([PLACE.unpack(key)[1] for key in self.there], default=0)

    def commit(self) -> list[Edit]:
        """The edits of one commit."""
        dice = self.dice
        edits: list[Edit] = []
        for _ in range(dice.choice((0, 0, 1, 2)) if self.there else 0):
            if self.there:
                key = self.there.pop(dice.randrange(len(self.there)))
                edits += [(SEGMENTS, key, None), (INDEX, key, None)]
        for _ in range(dice.choice((0, 1, 1, 3))):
            self.next += 1
            key = PLACE.pack(dice.randrange(3), self.next)
            body = dice.randbytes(dice.randrange(1, self.bytes_max))
            edits += [(SEGMENTS, key, bytearray(sealed_row(SEGMENTS, key, body))), (INDEX, key, dice.randbytes(12))]
            self.there.append(key)
        edits.append((MARKS, NUMBER.pack(dice.randrange(5)), dice.choice((None, NUMBER.pack(dice.randrange(1 << 40))))))
        if dice.random() < 0.2:
            edits.append((QUEUES, NUMBER.pack(dice.randrange(20)), dice.randbytes(40)))
        if dice.random() < 0.2:
            key = PLACE.pack(9, dice.randrange(9))
            edits.append((SPILLED, key, sealed_row(SPILLED, key, b"of this process")))
        return edits


def size_of(edits: list[Edit]) -> int:
    return sum([20 + len(key) + len(value or b"") for _, key, value in edits])


class Host:
    """One replica, on disk or in memory, as primary or follower."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.rows = MemoryRows(len(LAYOUT.databases))
        self.ring = RecordRing()
        self.sent: list[Record] = []
        self.engine: Engine
        self.follower: FollowerStore | None = None
        self.primary: ReplicatedEngine | None = None

    def _engine(self) -> Engine:
        if self.folder is None:
            return MemoryEngine(LAYOUT, self.rows)
        return LmdbEngine(self.folder, LAYOUT, reserve_bytes=1 << 16, margin_bytes=0)

    def lead(self, term: int, adopt_as: str | None = None) -> ReplicatedEngine:
        """Be the primary of a term."""
        self.close()
        self.engine = self._engine()
        self.primary = ReplicatedEngine(self.engine, term, self._send, adopt_as, lambda: 1.5)
        try:
            self.primary.start(_applied(self.engine), lambda: None)
        except BaseException:
            self.engine.close()
            self.primary = None
            raise
        return self.primary

    def follow(self) -> FollowerStore:
        """Be a follower, or a newcomer."""
        self.close()
        self.engine = self._engine()
        try:
            self.follower = FollowerStore.started(self.engine)
        except BaseException:
            self.engine.close()
            raise
        return self.follower

    def crash(self) -> None:
        """What is on disk at this moment is left."""
        if self.folder is None:
            self.primary = self.follower = None
            return
        aside = self.folder.with_name(f"{self.folder.name}.aside")
        aside.mkdir()
        for file in ("data.mdb", "redo"):
            shutil.copy(self.folder / file, aside / file)
        self.close()
        shutil.rmtree(self.folder)
        aside.rename(self.folder)

    def close(self) -> None:
        if self.primary is not None or self.follower is not None:
            self.engine.close()
        self.primary = self.follower = None

    def _send(self, record: Record) -> None:
        self.ring.add(record)
        self.sent.append(record)


def _applied(engine: Engine) -> int | None:
    assert LAYOUT.log_note is not None
    found = engine.get(*LAYOUT.log_note)
    return None if found is None else int.from_bytes(found[8:], "big")


def joined(primary: ReplicatedEngine, newcomer: FollowerStore, bytes_max: int = 2000) -> int:
    """Copy all rows; returns how many ranges it took."""
    replica = primary.replica
    newcomer.begin_join(replica.note, replica.touched.above(replica.note.released))
    place: Key | None = BEGINNING
    count = 0
    while place is not None:
        data, place = read_range(primary, replica.note, place, bytes_max)
        newcomer.put_range(data)
        count += 1
    return count
