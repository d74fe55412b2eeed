"""Repairs of closed stores: the original is copied aside, then all edits are written in one transaction."""

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import lmdb

from shardmq.errors import StoreRefused
from shardmq.storage.engine import Bytes, Edit
from shardmq.storage.files import BLOCK_BYTES, make_folder, pieces_of, sync_file, sync_folder
from shardmq.storage.lmdb_environment import MAP_BYTES

ROOM_BYTES: Final = 64 << 20
"""What must be free besides the copy: the repair itself writes, too."""


def folder_bytes(folder: Path) -> int:
    """Bytes of the files in a folder of a store."""
    return sum([file.stat().st_size for file in folder.iterdir() if file.is_file()])


def check_room(disk: Path, needed: int) -> None:
    """Make sure that copies have room.

    Raises:
        StoreRefused: they have not.
    """
    stats = os.statvfs(disk)
    free = stats.f_bavail * stats.f_frsize
    if free < needed + ROOM_BYTES:
        raise StoreRefused(
            f"{disk} has {free >> 20} MB free, and keeping the original aside takes {needed >> 20} MB "
            f"and {ROOM_BYTES >> 20} MB more; make room, or work on a copy on another disk"
        )


def keep_aside(folder: Path, aside: Path) -> Path:
    """Copy a store's folder, with all of its files; it is on disk when this returns.

    What the disk cannot read of them is zeros in the copy.

    Args:
        folder: the store's.
        aside: where to; a folder of the same name is made in there.

    Returns:
        The copy.
    """
    copy = aside / folder.name
    make_folder(copy)
    for file in sorted(folder.iterdir()):
        if file.is_file():
            with (copy / file.name).open("xb") as stream:
                for position, content in pieces_of(file):
                    stream.seek(position)
                    stream.write(content if content is not None else bytes(BLOCK_BYTES))
                stream.truncate(file.stat().st_size)
            shutil.copystat(file, copy / file.name)
            sync_file(copy / file.name)
    sync_folder(copy)
    sync_folder(aside)
    return copy


def write_edits(
    folder: Path,
    databases: Sequence[bytes],
    edits: Iterable[Edit],
    sealed: Callable[[int, bytes, Bytes], Bytes],
) -> None:
    """Write to a closed store, all or nothing.

    Args:
        folder: the store's.
        databases: names of its databases, by the numbers in the edits.
        edits: what to write.
        sealed: called with database, key and value; returns what goes into LMDB.

    Raises:
        lmdb.Error: nothing was written.
    """
    env = lmdb.open(str(folder), map_size=MAP_BYTES, max_dbs=len(databases) + 1, create=False, readahead=False)
    try:
        dbs = [env.open_db(name) for name in databases]
        with env.begin(write=True) as transaction:
            for number, key, value in edits:
                if value is None:
                    transaction.delete(key, db=dbs[number])
                else:
                    transaction.put(key, sealed(number, key, value), db=dbs[number])
    finally:
        env.close()
