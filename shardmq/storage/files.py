"""Files and folders that are on disk for certain, and files that the disk cannot read everywhere.

A folder's entries are data of the folder: a file that was made or renamed may be gone after a power loss, however often
the file itself was synced, until its folder is.
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PIECE_BYTES: Final = 1 << 20

BLOCK_BYTES: Final = 4096
"""What is taken for unreadable at a time."""


def pieces_of(file: Path) -> Iterator[tuple[int, bytes | None]]:
    """Read a file in pieces, from its beginning: (position, content).

    The content is None for each BLOCK_BYTES, which may reach beyond the end, that the disk cannot read.

    Raises:
        OSError: it cannot be read for another reason.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        position, end, size = 0, os.fstat(descriptor).st_size, _PIECE_BYTES
        while position < end:
            try:
                content = os.pread(descriptor, size, position)
            except OSError as fault:
                if fault.errno != errno.EIO:
                    raise
                if size == BLOCK_BYTES:
                    yield position, None
                    position += size
                size = BLOCK_BYTES
                continue
            if not content:
                return  # it became shorter
            yield position, content
            position += len(content)
            size = BLOCK_BYTES if position % _PIECE_BYTES else _PIECE_BYTES
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder where there is none, and those above it; all of their entries are on disk when this returns.

    That holds for a folder that was there, too: who made it may have been killed before the disk had it.

    Raises:
        OSError: it cannot be made.
    """
    missing = [folder]
    while not missing[-1].exists() and missing[-1].parent != missing[-1]:
        missing.append(missing[-1].parent)
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        sync_entry(made)


def sync_entry(path: Path) -> None:
    """Bring the entry of a file or folder, in the folder it is in, to disk."""
    try:
        sync_folder(path.absolute().parent)
    except PermissionError:
        # A folder above ours may be closed to us: whoever made ours there has answered for it.
        if os.access(path.absolute().parent, os.W_OK):
            raise


def sync_folder(folder: Path) -> None:
    """Bring the entries of a folder to disk.

    Raises:
        OSError: they may not be there.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(file: Path) -> None:
    """Bring a file's content to disk, whoever wrote it.

    Raises:
        OSError: it may not be there.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
