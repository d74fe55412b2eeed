"""Coordinator's stores that are closed and opened again, on disk and in memory."""

from pathlib import Path

from shardmq.coordinator.storage.schema import DATABASES, LAYOUT
from shardmq.coordinator.storage.store import Store
from shardmq.storage.memory_engine import MemoryEngine, MemoryRows


class StoreRoom:
    """One store, which outlives being closed.

    Args:
        folder: of the store; None for one in memory.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.rows = MemoryRows(len(DATABASES))

    def open(self, boot_id: str = "first") -> Store:
        if self.folder is not None:
            return Store.open(self.folder, boot_id)
        return Store(MemoryEngine(LAYOUT, self.rows), boot_id)
