"""Files and folders that are on disk for certain.

A folder's entries are data of the folder: a file that was made or renamed may be gone after a power loss, however often
the file itself was synced, until its folder is.
"""

import os
from pathlib import Path


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
