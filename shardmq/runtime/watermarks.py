"""Memory and disk watermarks, and the levels at which their alarms are cleared.

An alarm is cleared with some distance to the level at which it was raised, so that publishers are not blocked and
unblocked in quick turns.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shardmq.runtime.memory import rss_bytes
from shardmq.storage.engine import Room

WATCH_SECONDS: Final = 0.5
"""Time between two measurements. At 500 MB/s, a quarter of a gigabyte is written in it."""

MEMORY_CLEAR_SHARE: Final = 0.9
DISK_CLEAR_SHARE: Final = 1.1
"""Shares of the watermarks at which the alarms are cleared."""

PRESSED_SHARE: Final = 1.5
PRESSED_BYTES: Final = 64 << 20
"""Free pages of the store are given back to the disk below these levels, before its alarm is raised."""

DISK_FREE_BYTES: Final = 512 << 20
"""What must be free on a disk, so that queues can still be emptied: deleting writes, too."""

SMALL_DISK_BYTES: Final = 5 << 30
SMALL_DISK_FREE_BYTES: Final = 50 << 20
"""What must be free on a small disk; RabbitMQ's default for all disks."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """A resource that crossed its watermark, upwards or downwards.

    Attributes:
        resource: "memory" or "disk".
        is_on: whether publishers are to wait.
        text: what happened and what to do.
    """

    resource: str
    is_on: bool
    text: str


class WatermarkMonitor:
    """Measures the memory of a process, and the disk under its store where it has one.

    Args:
        process: its name, for texts.
        rss_bytes_max: resident memory above which publishers wait.
        advice: what lowers the memory.
        measure: returns the resident memory, in bytes.

    Attributes:
        on: the alarms that are on, by resource.
        is_pressed: whether the disk is so short of room that the store is to give back its free pages.
    """

    def __init__(self, process: str, rss_bytes_max: int, advice: str, measure: Callable[[], int] = rss_bytes) -> None:
        self._process = process
        self._rss_bytes_max = rss_bytes_max
        self._advice = advice
        self._measure = measure
        self._folder: Path | None = None
        self._disk_free_bytes_min = 0
        self._looked_at = float("-inf")
        self.is_pressed = False
        self.on: dict[str, Watermark] = {}

    def watch_disk(self, folder: Path, free_bytes_min: int | None) -> None:
        """Measure a disk from now on; `look` needs its room.

        Args:
            folder: on the disk.
            free_bytes_min: what must be free on it; None for the default.
        """
        self._folder = folder
        self._disk_free_bytes_min = disk_default(folder) if free_bytes_min is None else free_bytes_min

    def change(self, rss_bytes_max: int | None, disk_free_bytes_min: int | None) -> None:
        """Set other watermarks, from the next look on; None leaves one as it is."""
        if rss_bytes_max is not None:
            self._rss_bytes_max = rss_bytes_max
        if disk_free_bytes_min is not None and self._folder is not None:
            self._disk_free_bytes_min = disk_free_bytes_min
        self._looked_at = float("-inf")

    @property
    def limits(self) -> dict[str, int]:
        """The watermarks, in bytes; that of the disk is 0 where none is watched."""
        return {"rss_bytes_max": self._rss_bytes_max, "disk_free_bytes_min": self._disk_free_bytes_min}

    def look(self, now: float, room: Room | None = None, is_full: bool = False) -> list[Watermark]:
        """Measure, if it is time to, and return what has changed.

        Args:
            now: monotonic seconds.
            room: what the store can still write, where a disk is watched.
            is_full: whether the store takes in nothing more, whatever is free.
        """
        if now - self._looked_at < WATCH_SECONDS and is_full <= ("disk" in self.on):
            return []
        self._looked_at = now
        changed = [self._memory()]
        if room is not None:
            self.is_pressed = room.free < max(self._disk_free_bytes_min * PRESSED_SHARE, PRESSED_BYTES)
            changed.append(self._disk(room, is_full))
        return [mark for mark in changed if mark is not None]

    def _memory(self) -> Watermark | None:
        limit = self._rss_bytes_max
        taken = self._measure()
        is_on = taken > (limit * MEMORY_CLEAR_SHARE if "memory" in self.on else limit)
        return self._turned("memory", is_on, f"{taken >> 20} MB of {limit >> 20} MB taken; {self._advice}")

    def _disk(self, room: Room, is_full: bool) -> Watermark | None:
        least = self._disk_free_bytes_min
        is_on = is_full or room.bytes < (least * DISK_CLEAR_SHARE if "disk" in self.on else least)
        must_be = "and what is left is kept for acknowledgements" if is_full else f"{least >> 20} MB must be"
        what_to_do = "consume what is queued, or make room"
        if room.is_capped:
            what_to_do = "the file of the store may not grow by more, whatever the disk has; consume what is queued"
        text = (
            f"{room.free >> 20} MB free at {self._folder} and {room.inside >> 20} MB in free pages of the store, "
            f"{must_be}; {what_to_do}"
        )
        return self._turned("disk", is_on, text)

    def _turned(self, resource: str, is_on: bool, text: str) -> Watermark | None:
        if is_on is (resource in self.on):
            return None
        state = "set" if is_on else "cleared"
        mark = Watermark(resource, is_on, f"{resource} alarm on {self._process} {state}: {text}")
        if is_on:
            self.on[resource] = mark
        else:
            del self.on[resource]
        return mark


def disk_default(folder: Path) -> int:
    """What must be free on the disk of a folder, in bytes."""
    stats = os.statvfs(folder)
    return SMALL_DISK_FREE_BYTES if stats.f_blocks * stats.f_frsize < SMALL_DISK_BYTES else DISK_FREE_BYTES
