"""The pages of a store that are mapped into this process: they are given back now and then."""

import ctypes
from collections.abc import Iterable
from pathlib import Path
from typing import Final

READ_BYTES_MAX: Final = 16 << 20
"""Bytes read through the map before its pages are given back: mapped pages count as this process's memory."""

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

    def read(self, count: int) -> None:
        """Count bytes that were read, and copied; give pages back when they are many."""
        self.bytes += count
        if self.bytes >= READ_BYTES_MAX:
            self.release()

    def release(self) -> None:
        """Give back all. The kernel maps the neighbours of a page that is read: these are more than were asked for."""
        self.bytes = 0
        for start, end in self._mapped():
            if self._libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED):
                raise OSError(ctypes.get_errno(), "madvise on the store's map")

    def _mapped(self) -> Iterable[tuple[int, int]]:
        with open("/proc/self/maps") as maps:
            for line in maps:
                if line.rstrip().endswith(self._file):
                    start, end = line.split(" ", 1)[0].split("-")
                    yield int(start, 16), int(end, 16)
