"""Holding a store's folder without changing it: nobody opens the store meanwhile."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shardmq.errors import StoreRefused


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Keep others from opening a store.

    Args:
        folder: the store's.

    Raises:
        StoreRefused: a process has it open, or it cannot be looked into.
    """
    try:
        lock = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield  # a copy, without the file that processes lock
        return
    except OSError as fault:
        raise StoreRefused(f"{folder} cannot be read: {fault.strerror} ({fault.filename})") from fault
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreRefused(f"{folder} is in use; stop the broker first, or look at a copy") from None
        yield
    finally:
        os.close(lock)
