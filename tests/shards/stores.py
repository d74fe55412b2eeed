"""Stores that are closed and opened again, on disk and in memory."""

import shutil
import tempfile
from pathlib import Path

from shardmq.shards.storage.entries import CursorRow
from shardmq.shards.storage.schema import DATABASES, LAYOUT
from shardmq.shards.storage.store import Store
from shardmq.storage.memory_engine import MemoryEngine, MemoryRows

RAM = "/dev/shm" if Path("/dev/shm").is_dir() else None


class StoreRoom:
    """One store, which outlives being closed.

    Args:
        in_memory: whether it lies in memory, and not in files.
    """

    def __init__(self, in_memory: bool) -> None:
        self.rows = MemoryRows(len(DATABASES)) if in_memory else None
        self.folder = Path(tempfile.mkdtemp(dir=RAM))

    def open(self) -> Store:
        if self.rows is None:
            return Store.open(self.folder / "store")
        return Store(MemoryEngine(LAYOUT, self.rows))

    def remove(self) -> None:
        shutil.rmtree(self.folder)


class Cursor:
    """A group's cursor, as a shard writes it."""

    row_size = 1

    def row(self) -> CursorRow:
        return CursorRow(5, 6, 7, acked=[(2, 3)])
