"""Watermarks: whether this process takes too much memory, or its disk has too little left.

An alarm goes off a good way behind where it went on, so that publishers are not stopped and started by turns.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shardmq.runtime.memory import memory_default, rss_bytes
from shardmq.storage.engine import Room

WATCH_SECONDS: Final = 0.5
"""How often is looked. At 500 MB/s, that is a quarter of a gigabyte more on the disk."""

MEMORY_CLEAR_SHARE: Final = 0.9
DISK_CLEAR_SHARE: Final = 1.1

PRESSED_SHARE: Final = 1.5
PRESSED_BYTES: Final = 64 << 20
"""What is free in the store is given back before the disk has too little left: for this store, or for others there."""

DISK_FREE_BYTES: Final = 512 << 20
"""What must be left of a disk, so that queues can still be emptied: deleting writes, too."""

SMALL_DISK_BYTES: Final = 5 << 30
SMALL_DISK_FREE_BYTES: Final = 50 << 20
"""On a small one; RabbitMQ's default for all of them."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """A resource that went over its limit, or came back.

    Attributes:
        resource: "memory" or "disk".
        is_on: whether publishers are to wait.
        text: what it is and what to do.
    """

    resource: str
    is_on: bool
    text: str


class Watch:
    """Looks at both, now and then.

    Args:
        name: of the process.
        folder: on the disk in question.
        rss_bytes_max: of resident memory; None for the default.
        disk_free_bytes_min: of the disk; None for the default.

    Attributes:
        on: the alarms that are on, by resource.
        is_pressed: whether the disk is so short that others may need what is free in the store.
    """

    def __init__(self, name: str, folder: Path, rss_bytes_max: int | None, disk_free_bytes_min: int | None) -> None:
        self._name = name
        self._folder = folder
        self._rss_bytes_max = memory_default() if rss_bytes_max is None else rss_bytes_max
        self._disk_free_bytes_min = disk_default(folder) if disk_free_bytes_min is None else disk_free_bytes_min
        self._looked_at = float("-inf")
        self.is_pressed = False
        self.on: dict[str, Watermark] = {}

    def look(self, now: float, room: Room, is_full: bool) -> list[Watermark]:
        """What has changed.

        Args:
            now: monotonic seconds.
            room: what can still be written.
            is_full: whether nothing more may be taken in, however much of the disk there must be.
        """
        if now - self._looked_at < WATCH_SECONDS and is_full <= ("disk" in self.on):
            return []
        self._looked_at = now
        self.is_pressed = room.free < max(self._disk_free_bytes_min * PRESSED_SHARE, PRESSED_BYTES)
        return [changed for changed in (self._memory(), self._disk(room, is_full)) if changed is not None]

    def _memory(self) -> Watermark | None:
        limit = self._rss_bytes_max
        taken = rss_bytes()
        is_on = taken > (limit * MEMORY_CLEAR_SHARE if "memory" in self.on else limit)
        return self._turned("memory", is_on, f"{taken >> 20} MB of {limit >> 20} MB taken; consume what is queued")

    def _disk(self, room: Room, is_full: bool) -> Watermark | None:
        least = self._disk_free_bytes_min
        is_on = is_full or room.bytes < (least * DISK_CLEAR_SHARE if "disk" in self.on else least)
        must_be = "and what is left is kept for acknowledgements" if is_full else f"{least >> 20} MB must be"
        text = (
            f"{room.free >> 20} MB free at {self._folder} and {room.inside >> 20} MB in free pages of the store, "
            f"{must_be}; consume what is queued, or make room"
        )
        return self._turned("disk", is_on, text)

    def _turned(self, resource: str, is_on: bool, text: str) -> Watermark | None:
        if is_on is (resource in self.on):
            return None
        mark = Watermark(resource, is_on, f"{resource} alarm on {self._name} {'set' if is_on else 'cleared'}: {text}")
        if is_on:
            self.on[resource] = mark
        else:
            del self.on[resource]
        return mark


def disk_default(folder: Path) -> int:
    """What must be left on the disk of this folder."""
    stats = os.statvfs(folder)
    return SMALL_DISK_FREE_BYTES if stats.f_blocks * stats.f_frsize < SMALL_DISK_BYTES else DISK_FREE_BYTES
