"""The disk under a store: how much can still be written, and a reserve that nobody else can have.

    data.mdb   | used | free | used | free | used | reserve
               '------------- length -------------'

free      pages that LMDB writes again before the file grows: they count as room. While the store is copied, those do
          that were free before, as long as the file has not grown
reserve   set aside behind the end of the file. The file grows into it, and it is made again as long as the disk has
          room. Where it cannot be, nothing new is taken in: what is left is for acknowledgements, which write before
          they make room.
"""

import contextlib
import ctypes
import errno
import logging
import os
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import lmdb

from shardmq.errors import StoreUnwritable
from shardmq.storage.engine import Room
from shardmq.storage.lmdb_environment import LmdbEnvironment
from shardmq.storage.store_copy import StoreCopy

RESERVE_BYTES: Final = 16 << 20
"""Kept for acknowledgements. A commit that only deletes writes 2 MB at most, and the next but one has its pages."""

MARGIN_BYTES: Final = 8 << 20
"""What must be left besides: the redo log's changes are not in the file yet, and it is as large."""

PLENTY_BYTES: Final = 1 << 30
"""With so much free on the disk, nobody looks for room in the file."""

LOOK_SECONDS: Final = 0.05
"""With so much free, nothing is measured again before this time, unless much was taken in. Measuring takes 2 µs in a
loop, but 27 behind a flush of the disk, when caches are cold: a tenth of a commit of bulk."""

_log = logging.getLogger(__name__)

FAILED: Final = "full"
"""An empty file in the folder of a store of which a transaction failed."""

_KEEP_SIZE: Final = 1
_NOT_SUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class DiskSpace:
    """The disk under one store.

    Args:
        environment: of the store.
        reserve_bytes: the reserve; it is made again when a quarter of it is gone, and measured when as much was taken
            in. So half of it is there at least.
        margin_bytes: what must be left besides, for what is not in the file yet.

    Attributes:
        left: bytes that may still be taken in, as of the last look; whoever takes some in subtracts them.
    """

    def __init__(
        self, environment: LmdbEnvironment, reserve_bytes: int = RESERVE_BYTES, margin_bytes: int = MARGIN_BYTES
    ) -> None:
        self._environment = environment
        self._reserve_bytes, self._quarter = reserve_bytes, reserve_bytes // 4
        self._margin_bytes = margin_bytes
        self._fallocate: Callable[..., int] | None = ctypes.CDLL(None, use_errno=True).fallocate
        self._reserved_to = 0
        self._look_at = 0.0
        self._left_then = 0  # after the last look
        self._has_failed = (environment.folder / FAILED).exists()
        self._copy: StoreCopy | None = None
        self._free_before = 0, 0  # when that began: the end of the file, and bytes of its free pages
        self.left = 0
        self.look()

    def use(self, environment: LmdbEnvironment) -> None:
        """The store has another file from here on."""
        self._environment = environment
        self._reserved_to = 0
        self.look()

    def hold(self, copy: StoreCopy) -> None:
        """A copy has begun: pages that are freed from here on are not written again before it is over."""
        self._copy, self._free_before = copy, (_end(self._environment), self.room().inside)

    def room(self) -> Room:
        """Measure what can still be written."""
        room = room_of(self._environment, self._reserved_to)
        self._let_go()
        if self._copy is None:
            return room
        return replace(room, inside=0 if self._is_held_up else min(room.inside, self._free_before[1]))

    def _let_go(self) -> None:
        if self._copy is not None and self._copy.is_over:
            self._copy = None

    @property
    def _is_held_up(self) -> bool:
        """Whether the pages are used up that were free before the copy: the file has grown since."""
        return self._copy is not None and _end(self._environment) > self._free_before[0]

    def look(self) -> Room:
        """Look how much may be taken in, and make the reserve again; returns what can be written.

        Of what is free in the file, half counts here: much of it may be in pieces that are too small. Once a
        transaction failed nevertheless, nothing of it counts until the disk has room. A copy that goes on at the cost
        of the reserve is given up: acknowledgements would make no room before it is over.
        """
        is_whole = self._reserve()
        self._let_go()
        if self._copy is not None and not is_whole and self._is_held_up:
            self._copy.give_up(
                f"the disk of {self._environment.folder} has no room for what is written meanwhile: pages that are "
                "freed are not used again before the copy is over; make room, or copy at a higher rate"
            )
        room = self.room()
        self.left = room.free - self._margin_bytes - (0 if is_whole else self._reserve_bytes)
        if self._has_failed and self.left > 0:
            (self._environment.folder / FAILED).unlink()
            self._has_failed = False
        if not self._has_failed:
            self.left += room.inside // 2
        self._left_then = self.left
        return room

    def committed(self) -> None:
        """Measure again after a commit, where that is due."""
        now = time.monotonic()
        if now < self._look_at and self._left_then - self.left < self._quarter:
            return
        end = _end(self._environment)
        is_reserved = self._reserved_to - end >= 3 * self._quarter
        free, _ = free_for(self._environment, max(end, self._reserved_to))
        if is_reserved and free >= PLENTY_BYTES:
            self.left = self._left_then = free - self._margin_bytes
            self._look_at = now + LOOK_SECONDS
        else:
            self._look_at = 0.0
            self.look()

    def _reserve(self) -> bool:
        """Have three quarters of the reserve, where the disk has room; returns whether half of it is there."""
        end, half = _end(self._environment), 2 * self._quarter
        left = self._reserved_to - end
        if self._fallocate is not None and left < 3 * self._quarter:
            if self._set_aside(end, self._reserve_bytes):
                self._reserved_to = end + self._reserve_bytes
            elif left < half and self._fallocate is not None and self._set_aside(end, half):
                self._reserved_to = end + half  # it may have been there already
        limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        if limit != resource.RLIM_INFINITY and limit - end < half:
            return False
        if self._fallocate is None:
            return free_for(self._environment, end)[0] >= self._reserve_bytes
        return self._reserved_to - end >= half

    def _set_aside(self, start: int, size: int) -> bool:
        """Have the disk keep room behind the end of the file, whose length stays; returns whether it has."""
        assert self._fallocate is not None
        if start + size > self._environment.bytes_max:
            return False
        descriptor = os.open(self._environment.file, os.O_RDWR | os.O_CLOEXEC)
        try:
            if not self._fallocate(descriptor, _KEEP_SIZE, ctypes.c_int64(start), ctypes.c_int64(size)):
                return True
        finally:
            number = ctypes.get_errno()
            os.close(descriptor)
        if number in _NOT_SUPPORTED:
            self._fallocate = None
        elif number not in _NO_ROOM:
            raise OSError(number, os.strerror(number), str(self._environment.file))
        return False


def room_of(environment: LmdbEnvironment, reserved_to: int = 0) -> Room:
    """Measure what a store can still write, where its reserve goes up to there."""
    end = _end(environment)
    with environment.env.begin() as transaction:
        stats = [environment.env.stat(), *[transaction.stat(db) for db in environment.dbs.values()]]
    pages = sum([stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] for stat in stats])
    used = int(pages * stats[0]["psize"])
    taken = environment.file.stat().st_blocks * 512 - max(0, reserved_to - end)
    free, is_capped = free_for(environment, max(end, reserved_to))
    return Room(free, max(0, min(end, taken) - used), used, is_capped)


def _end(environment: LmdbEnvironment) -> int:
    """Return the end of the pages that a store has ever used."""
    return int((environment.env.info()["last_pgno"] + 1) * environment.env.stat()["psize"])


def free_for(environment: LmdbEnvironment, end: int) -> tuple[int, bool]:
    """Return what is left for a file that has its end, or that of its reserve, there; and whether a limit makes it so.

    The limit is the process's for files, or the store's own. A store that is as large as it may be is on a full disk.
    """
    stats = os.statvfs(environment.folder)
    free = stats.f_bavail * stats.f_frsize
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    most = environment.bytes_max if limit == resource.RLIM_INFINITY else min(limit, environment.bytes_max)
    return (free, False) if free <= most - end else (max(0, most - end), True)


@contextlib.contextmanager
def writing(environment: LmdbEnvironment) -> Iterator[lmdb.Transaction]:
    """A transaction that writes.

    Raises:
        StoreUnwritable: it could not be committed, as where the disk is full. The process must end.
    """
    try:
        with environment.env.begin(write=True) as transaction:
            yield transaction
    except lmdb.Error as fault:
        try:
            (environment.folder / FAILED).touch()
        except OSError as second:
            _log.warning("%s was not made, which would make the next start more careful: %s", FAILED, second)
        raise unwritable(environment.folder, fault) from fault


def unwritable(folder: Path, fault: Exception) -> StoreUnwritable:
    """Return the error of a failed commit: a full disk shows as any of several errors."""
    stats = os.statvfs(folder)
    free = stats.f_bavail * stats.f_frsize
    text = f"{folder} could not be written: {fault}; its disk has {free >> 10} KB free"
    if isinstance(fault, lmdb.MapFullError):
        text += ", but its file is as large as a store may be"
        return StoreUnwritable(f"{text}; stop the broker and give its free pages back (shardmq store compact)")
    return StoreUnwritable(f"{text}; make room on it, or look after the disk")
