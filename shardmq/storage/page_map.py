"""The pages of a store that are mapped into this process: they are given back now and then."""

import contextlib
import ctypes
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

READ_BYTES_MAX: Final = 16 << 20
"""Bytes read through the map before its pages are given back: mapped pages count as this process's memory."""

REST_SECONDS: Final = 1.0
"""So seldom fewer are given back, which takes 0.1 ms: a start that looks at a million keys leaves 100 MB mapped, more
than what it counts."""

AHEAD_BYTES_MIN: Final = 64 << 10
"""Values as large as this are read ahead. Page by page, 1 MB took 30 to 120 ms from a cold disk."""

_MADV_RANDOM: Final = 1
_MADV_SEQUENTIAL: Final = 2
_MADV_DONTNEED: Final = 4


class PageMap:
    """Gives back pages that were read through LMDB's map.

    They are the kernel's page cache, but count as memory of this process for as long as they are mapped.

    Args:
        file: LMDB's.

    Attributes:
        bytes: read since they were last given back.
    """

    def __init__(self, file: Path) -> None:
        self._file = str(file.resolve())
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.bytes = 0
        self._ranges: list[tuple[int, int]] = []
        self._rested_at = 0.0

    @contextlib.contextmanager
    def ahead(self) -> Iterator[None]:
        """Have the kernel read ahead what is looked at meanwhile: a large value, whose pages lie in a row."""
        if not self._ranges:
            self._ranges = list(self._mapped())
        self._advise(_MADV_SEQUENTIAL)
        try:
            yield
        finally:
            self._advise(_MADV_RANDOM)

    def _advise(self, advice: int) -> None:
        """Say how the map is read; where the kernel does not take that, pages come one by one."""
        for start, end in self._ranges:
            self._libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), advice)

    def read(self, count: int) -> None:
        """Count bytes that were read, and copied; give pages back when they are many."""
        self.bytes += count
        if self.bytes >= READ_BYTES_MAX:
            self.release()

    def rest(self, now: float) -> None:
        """Give back what was read, now and then; called with the monotonic time when there is nothing to do."""
        if self.bytes and now - self._rested_at >= REST_SECONDS:
            self._rested_at = now
            self.release()

    def release(self) -> None:
        """Give back all. The kernel maps the neighbours of a page that is read: these are more than were asked for."""
        self.bytes = 0
        self._ranges = list(self._mapped())
        for start, end in self._ranges:
            if self._libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED):
                raise OSError(ctypes.get_errno(), "madvise on the store's map")

    def _mapped(self) -> Iterable[tuple[int, int]]:
        with open("/proc/self/maps") as maps:
            for line in maps:
                if line.rstrip().endswith(self._file):
                    start, end = line.split(" ", 1)[0].split("-")
                    yield int(start, 16), int(end, 16)
