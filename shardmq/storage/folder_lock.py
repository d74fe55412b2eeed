"""A store's folder is one process's: locked by the one that opens the store, or by one that only looks at it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shardmq.errors import StoreRefused
from shardmq.storage.files import make_folder


def lock_folder(folder: Path) -> int:
    """Make a folder this process's own, for as long as the returned descriptor is open.

    Raises:
        StoreRefused: another process holds it, or it is no folder we can write in.
    """
    try:
        make_folder(folder)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as fault:
        raise StoreRefused(f"{folder} cannot hold a store: {fault.strerror} ({fault.filename})") from fault
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise StoreRefused(f"{folder} is in use by another process; stop it, or use another data directory") from None
    return lock


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Keep others from opening a store, without changing anything in it.

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
