"""The storage engine in memory: for tests, and for what need not survive the process."""

from bisect import bisect_left, insort
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Final

from shardmq.errors import StoreRefused, StoreUnwritable
from shardmq.storage.engine import KEY_BYTES_MAX, Edit, Engine, Layout, Room, Row
from shardmq.storage.store_copy import StoreCopy
from shardmq.storage.versions import VERSION

ROOM_BYTES: Final = 1 << 40
"""What may be taken in: the broker's watermark of memory is the limit, not this."""


class MemoryRows:
    """The rows of an engine. They outlive it, as a file does: another engine may be opened on them.

    Args:
        databases: how many.
    """

    def __init__(self, databases: int) -> None:
        self.values: list[dict[bytes, bytes]] = [{} for _ in range(databases)]
        self.keys: list[list[bytes]] = [[] for _ in range(databases)]

    def put(self, database: int, key: bytes, value: bytes) -> None:
        """Write a row."""
        if key not in self.values[database]:
            insort(self.keys[database], key)
        self.values[database][key] = value

    def delete(self, database: int, key: bytes) -> None:
        """Delete a row, if it is there."""
        if self.values[database].pop(key, None) is not None:
            keys = self.keys[database]
            del keys[bisect_left(keys, key)]

    def between(self, database: int, start: bytes, end: bytes | None) -> list[bytes]:
        """Return the keys with start <= key < end."""
        keys = self.keys[database]
        return keys[bisect_left(keys, start) : len(keys) if end is None else bisect_left(keys, end)]


class MemorySpace:
    """Room without a disk.

    Attributes:
        left: bytes that may still be taken in, as of the last look.
    """

    def __init__(self, rows: MemoryRows) -> None:
        self._rows = rows
        self.left = ROOM_BYTES

    def look(self) -> Room:
        """Measure the room, and set `left`."""
        self.left = ROOM_BYTES
        return self.room()

    def room(self) -> Room:
        """Measure the room."""
        used = sum([len(key) + len(value) for values in self._rows.values for key, value in values.items()])
        return Room(ROOM_BYTES, 0, used)


class MemoryEngine(Engine):
    """An engine in memory. It has no redo log: what is applied is in its databases at once.

    Args:
        layout: what is in it.
        rows: of an engine before; None to begin with none.

    Attributes:
        rows: to open another engine on.
    """

    def __init__(self, layout: Layout, rows: MemoryRows | None = None) -> None:
        self.layout = layout
        self.rows = rows if rows is not None else MemoryRows(len(layout.databases))
        self.file = Path("(memory)")
        self.version = VERSION
        self.space = MemorySpace(self.rows)

    def start(self, applied: int | None, check: Callable[[], object]) -> None:
        pass

    def raise_version(self, version: int) -> None:
        self.version = version

    def get(self, database: int, key: bytes, size: int = 0) -> memoryview | None:
        value = self.rows.values[database].get(key)
        return None if value is None else memoryview(value)

    def scan(self, database: int, start: bytes = b"", end: bytes | None = None) -> Generator[Row]:
        values = self.rows.values[database]
        rows = [(key, values[key]) for key in self.rows.between(database, start, end)]
        for key, value in rows:
            yield key, memoryview(value)

    def keys(self, database: int, start: bytes = b"", end: bytes | None = None) -> Generator[bytes]:
        yield from self.rows.between(database, start, end)

    def key_before(self, database: int, key: bytes) -> bytes | None:
        keys = self.rows.keys[database]
        place = bisect_left(keys, key)
        return keys[place - 1] if place else None

    def apply(self, edits: Iterable[Edit], size: int | None = None, touched: int = 0) -> None:
        stored_value = self.layout.stored_value
        ready = [
            (database, key, None if value is None else bytes(stored_value(database, key, value)))
            for database, key, value in edits
        ]
        for database, key, _ in ready:
            if not 0 < len(key) <= KEY_BYTES_MAX:
                name = self.layout.databases[database].decode()
                raise StoreUnwritable(f"{self.file} could not be written: a key of {len(key)} bytes in {name}")
        for database, key, stored in ready:
            if stored is None:
                self.rows.delete(database, key)
            else:
                self.rows.put(database, key, stored)

    def sync(self) -> None:
        pass

    def rest(self, now: float, is_busy: bool = False) -> None:
        pass

    @property
    def is_pending(self) -> bool:
        return False

    def clear(self, *databases: int) -> None:
        for database in databases:
            self.rows.values[database].clear()
            self.rows.keys[database].clear()

    def compact_at_start(self) -> None:
        pass

    def give_back(self, now: float, room: Room, is_pressed: bool) -> None:
        pass

    def sizes(self) -> dict[str, int]:
        used = self.space.room().used
        return {"file_bytes": 0, "used_bytes": used, "free_bytes": 0, "map_bytes": 0}

    def copy(self, folder: Path, bytes_per_second: int) -> StoreCopy:
        raise StoreRefused("a store in memory cannot be copied; only one on disk can be backed up")

    def close(self) -> None:
        pass
