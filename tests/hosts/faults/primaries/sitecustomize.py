"""Notes in each process of a replica when it answered as the primary of a term, and what that rested on.

Python loads it at the start of whatever has this folder on PYTHONPATH. It calls what it wraps, and changes nothing. All
that a primary says leaves by `GroupMember.release`, so that is where it listens.

A note is of one second of one term, and is written into a mapped file: it outlives kill -9, and no full disk and no
limit of file sizes keeps it away. Times are the machine's: libc is asked by its own name, past the preloaded clocks.
"""

import ctypes
import mmap
import os
import struct
import sys
import time
from pathlib import Path
from typing import Any, Final

FOLDER: Final = "ANSWERS_FOLDER"
"""Variable with the folder of the notes."""

ROW: Final = struct.Struct("=qqqqdd")
"""Process id | term | index of its first record | index up to which all was released | when the first answer of the
second had been sent | when the lease was about to be looked at for the last one."""

ROWS_MAX: Final = 1 << 16
"""Seconds in which processes of one replica answer: 18 hours."""


UNKNOWN: Final = (1 << 63) - 1
"""Index of the first record of a term, where the store does not say it: behind all others."""


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_libc: Final = ctypes.CDLL("libc.so.6")


def machine_time() -> float:
    """Seconds since the machine's boot, whatever the clocks of this host show."""
    now = _Time()
    _libc.clock_gettime(time.CLOCK_BOOTTIME, ctypes.byref(now))
    return float(now.seconds) + now.nanoseconds / 1e9


class Notes:
    """What one process answers, behind what processes of the same replica have answered before it.

    Args:
        file: of the replica; made, if there is none.
    """

    def __init__(self, file: Path) -> None:
        with file.open("ab+") as rows:
            rows.truncate(ROWS_MAX * ROW.size)
            self._rows = mmap.mmap(rows.fileno(), 0)
        self._place = sum(1 for row in ROW.iter_unpack(self._rows) if row[0]) - 1
        self._known = (0, 0)
        self._sent_at = 0.0
        self._begins: dict[int, int] = {}

    def note(self, term: int, history: dict[int, int], released: int, asked_at: float, sent_at: float) -> None:
        """Note that something was answered.

        Args:
            term: in which.
            history: indexes of the first records of terms.
            released: index up to which all was on the disks of the in-sync set.
            asked_at: machine time before the lease was looked at.
            sent_at: machine time after the answer was sent.
        """
        if self._known != (term, int(asked_at)):
            self._known = (term, int(asked_at))
            self._place += 1
            self._sent_at = sent_at
        begins = self._begins.setdefault(term, history.get(term, UNKNOWN))
        row = os.getpid(), term, begins, released, self._sent_at, asked_at
        ROW.pack_into(self._rows, self._place * ROW.size, *row)


def listen(folder: Path) -> None:
    """Note from now on what this process answers."""
    from shardmq.replication.member import GroupMember

    release = GroupMember.release
    notes: list[Notes] = []

    def noted(member: Any) -> bool:
        asked_at = machine_time()
        has_sent = release(member)
        if has_sent:
            sent_at = machine_time()
            node = member.node
            if not notes:
                notes.append(Notes(folder / f"{node.host}.{node.name}"))
            term = member._term or member._ended  # that of the owner, who answers, whatever the replica believes
            notes[0].note(term, dict(node.store.note.history), node.released, asked_at, sent_at)
        return has_sent

    GroupMember.release = noted  # type: ignore[method-assign]


if FOLDER in os.environ and {"shard", "coordinator"} & {*sys.orig_argv}:
    listen(Path(os.environ[FOLDER]))
