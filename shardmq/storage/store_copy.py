"""A store copied while it is in use: a snapshot of it is written elsewhere on threads, at a bounded rate.

    LMDB ── copyfd, of one read transaction ──► pipe ── so many bytes a second ──► folder/data.mdb ─ sync

The store's owner goes on meanwhile: LMDB reads without the interpreter's lock, and what is written after the snapshot
is not in it. Pages that are freed meanwhile are not used again before the copy ends, so a file that is busy grows.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import lmdb
from xxhash import xxh3_128

from shardmq.storage.files import make_folder, sync_folder

_CHUNK_BYTES: Final = 256 << 10
_F_SETPIPE_SZ: Final = 1031


@dataclass(frozen=True, slots=True)
class Copied:
    """A file that was copied: its name in the folder, its size, and xxh3_128 of its content."""

    name: str
    bytes: int
    checksum: str


class StoreCopy:
    """A copy on its way; what it says of itself may be read at any time.

    Args:
        env: the store's. The snapshot is of this moment.
        folder: where to; it must not be there yet.
        bytes_per_second: at most.
        total: about how many bytes it will be.
        read: told how many bytes were read through the map.

    Attributes:
        done: bytes that were written.
        total: about how many it will be.
        copied: the file, once it is whole and on disk.
        fault: why it never will be; "" otherwise.

    Raises:
        OSError: the folder cannot be made.
    """

    def __init__(
        self, env: lmdb.Environment, folder: Path, bytes_per_second: int, total: int, read: Callable[[int], None]
    ) -> None:
        if folder.exists():
            raise FileExistsError(17, "it is there already", str(folder))
        make_folder(folder)
        self.done = 0
        self.total = total
        self.copied: Copied | None = None
        self.fault = ""
        self._env = env
        self._folder = folder
        self._rate = bytes_per_second
        self._read = read
        self._ending = threading.Event()
        self._snapshot = env.begin()
        self._source, self._sink = os.pipe()
        fcntl.fcntl(self._sink, _F_SETPIPE_SZ, 1 << 20)
        self._threads = [threading.Thread(target=self._pour), threading.Thread(target=self._write)]
        for thread in self._threads:
            thread.start()

    @property
    def is_over(self) -> bool:
        """Whether it is done or failed, and the snapshot is let go of."""
        return not any(thread.is_alive() for thread in self._threads)

    def give_up(self, fault: str) -> None:
        """Have it end soon, if it is not done. `fault` is why."""
        self.fault = self.fault or fault
        self._ending.set()

    def close(self) -> None:
        """Give it up, if it is not done, and wait for its threads."""
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _pour(self) -> None:
        try:
            self._env.copyfd(self._sink, compact=True, txn=self._snapshot)
        except lmdb.Error as fault:
            self.fault = self.fault or f"the store cannot be read: {fault}"
        finally:
            self._snapshot.abort()
            os.close(self._sink)

    def _write(self) -> None:
        try:
            copied = self._write_file()
            self._threads[0].join()  # it may have failed after its last page
            if not self.fault:
                self.copied = copied
        except OSError as fault:
            self.fault = self.fault or f"{self._folder} cannot be written: {fault.strerror}"
        finally:
            os.close(self._source)

    def _write_file(self) -> Copied:
        checksum = xxh3_128()
        began = time.monotonic()
        with (self._folder / "data.mdb").open("xb") as stream:
            while chunk := os.read(self._source, _CHUNK_BYTES):
                stream.write(chunk)
                checksum.update(chunk)
                self.done += len(chunk)
                self._read(len(chunk))
                ahead = began + self.done / self._rate - time.monotonic()
                if ahead > 0:
                    self._ending.wait(ahead)
                if self._ending.is_set():
                    raise OSError(4, "it was given up")
            stream.flush()
            os.fsync(stream.fileno())
        sync_folder(self._folder)
        return Copied("data.mdb", self.done, checksum.hexdigest())
