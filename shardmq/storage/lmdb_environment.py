"""LMDB environments of ours: locked, checked before they are touched, refused when they are not what they should be.

<folder>/lock       held (flock) for as long as the process lives
<folder>/data.mdb   LMDB's; database `meta` says whose it is: `format`, `version`
<folder>/lock.mdb   LMDB's
"""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import lmdb

from shardmq.errors import StoreDamaged, StoreRefused
from shardmq.storage.engine import Bytes
from shardmq.storage.files import sync_file, sync_folder
from shardmq.storage.folder_lock import lock_folder
from shardmq.storage.pages.page_check import Head, Keys, check_pages
from shardmq.storage.redo.log import REDO, REDO_ASIDE
from shardmq.storage.versions import VERSION

MAP_BYTES: Final = 1 << 42
"""Address space, not disk, and the most that a store's file may have (disk_space.py). A process has 128 TiB of it."""

_PORTION: Final = 10_000
"""Rows in memory at once while all are written anew."""

_META: Final = b"meta"
_REMAINS: Final = (REDO, REDO_ASIDE, "lock.mdb")
"""Files that are made when data.mdb is there."""
_FORMAT_KEY: Final = b"format"
_VERSION_KEY: Final = b"version"
_VERSIONS: Final = {b"1": 1, b"2": 2, b"4": 4, b"7": 7, b"8": 8, b"10": 10, b"13": 13, b"15": 15}


@dataclass(frozen=True, slots=True)
class LmdbEnvironment:
    """An open store.

    Attributes:
        folder: where it is.
        env: the `lmdb.Environment`.
        dbs: its databases by name.
        version: of its format, when it was opened; its owner brings up to date what is older.
        bytes_max: what its file may have.
    """

    folder: Path
    env: lmdb.Environment
    dbs: dict[bytes, lmdb._Database]
    version: int
    bytes_max: int
    _lock: int

    @property
    def file(self) -> Path:
        """The data file."""
        return self.folder / "data.mdb"

    def raise_version(self, write: lmdb.Transaction, version: int) -> None:
        """Its rows are as a version has them."""
        write.put(_VERSION_KEY, b"%d" % version, db=self.env.open_db(_META, txn=write))

    def close(self) -> None:
        """Close the file, then let go of the lock."""
        self.env.close()
        os.close(self._lock)


def open_environment(
    folder: Path,
    format: bytes,
    databases: tuple[bytes, ...],
    heads: Mapping[str, Head] | None = None,
    keys: Mapping[str, Keys] | None = None,
    new_version: int = VERSION,
) -> LmdbEnvironment:
    """Open a store, or make one where there is none.

    A store that is there is looked through before LMDB touches it (storage/page_check.py).

    Args:
        folder: of this store alone.
        format: what must be, or is written, in the store as its format, as `shardmq-shard`.
        databases: names of its databases.
        heads: by database, who wants to see its rows as they are found.
        keys: by database, who wants to see its keys.
        new_version: of the format of a store that is made.

    Returns:
        The environment: every commit is synced to disk in full.

    Raises:
        StoreRefused: in use, not LMDB, cut short, damaged, of another format or version. Nothing in it was touched.
    """
    lock = lock_folder(folder)
    try:
        if (folder / "data.mdb").exists():
            _sync(folder)
            version = check_file(folder / "data.mdb", format, databases, heads, keys)
        else:
            _check_remains(folder)
            _create(folder, format, new_version)
            version = new_version
        env = _open(folder, len(databases))
        dbs = {name: env.open_db(name) for name in databases}
    except BaseException:
        os.close(lock)
        raise
    return LmdbEnvironment(folder, env, dbs, version, MAP_BYTES, lock)


def reopened(environment: LmdbEnvironment) -> LmdbEnvironment:
    """A store whose `env` was closed to put another file in its place, open again."""
    env = _open(environment.folder, len(environment.dbs))
    return replace(environment, env=env, dbs={name: env.open_db(name) for name in environment.dbs})


def _open(folder: Path, databases: int) -> lmdb.Environment:
    return lmdb.open(
        str(folder),
        map_size=MAP_BYTES,
        max_dbs=databases + 1,
        subdir=True,
        lock=True,
        metasync=True,
        sync=True,
        readahead=False,
    )


def _check_remains(folder: Path) -> None:
    """Make no new store where there was one."""
    remains = [name for name in _REMAINS if (folder / name).exists()]
    if remains:
        raise StoreRefused(
            f"{folder / 'data.mdb'} is missing, but {' and '.join(remains)} of the same store "
            f"{'is' if len(remains) == 1 else 'are'} there; put data.mdb back from the copy that belongs to them, or "
            "move the whole folder away to begin a new store"
        )


def _create(folder: Path, format: bytes, version: int) -> None:
    """Make the file aside and move it into place, so that a data.mdb that exists was once whole."""
    aside = folder / "new"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    env = _open(aside, 0)
    meta = env.open_db(_META)
    with env.begin(write=True, db=meta) as transaction:
        transaction.put(_FORMAT_KEY, format)
        transaction.put(_VERSION_KEY, b"%d" % version)
    env.close()
    os.rename(aside / "data.mdb", folder / "data.mdb")
    shutil.rmtree(aside)
    sync_folder(folder)


def _sync(folder: Path) -> None:
    """Bring to disk what is believed from here on.

    The process before may have been killed while it waited for the disk. What it wrote is read back all the same, from
    memory; but what is done on the strength of it must not be on disk before it is.
    """
    try:
        sync_file(folder / "data.mdb")
        sync_folder(folder)
    except OSError as fault:
        raise StoreRefused(
            f"{folder / 'data.mdb'} cannot be brought to disk: {fault.strerror}; look at the disk"
        ) from fault


def check_file(
    file: Path,
    format: bytes,
    databases: tuple[bytes, ...],
    heads: Mapping[str, Head] | None = None,
    keys: Mapping[str, Keys] | None = None,
) -> int:
    """Look at a store without changing it; returns the version of its format.

    Args, Raises: as `open_environment`.
    """
    notes: dict[bytes, bytes] = {}
    structure = check_pages(file, {**(heads or {}), _META.decode(): notes.__setitem__}, keys)
    found, version = notes.get(_FORMAT_KEY), notes.get(_VERSION_KEY)
    if found != format:
        what = "another program's" if found is None else f"a '{found.decode(errors='replace')}'"
        raise StoreRefused(f"{file} is {what} store, not a '{format.decode()}'; choose another data directory")
    if version not in _VERSIONS:
        number = (version or b"none").decode(errors="replace")
        raise StoreRefused(
            f"{file} has format version {number}; this shardmq reads {VERSION} and older; use the one that wrote it"
        )
    strange = structure.entries.keys() - {name.decode() for name in (_META, *databases)}
    if strange:
        raise StoreDamaged(file, f"it has a database {min(strange)!r}, of which this shardmq knows nothing")
    return _VERSIONS[version]


def rewrite(write: lmdb.Transaction, db: lmdb._Database, value_of: Callable[[bytes, bytes], Bytes]) -> None:
    """Give every row of a database another value.

    Args:
        write: the transaction.
        db: the database.
        value_of: called with key and value.
    """
    cursor = write.cursor(db)
    more = cursor.first()
    while more:
        portion: list[tuple[bytes, bytes]] = []
        while more and len(portion) < _PORTION:
            portion.append((bytes(cursor.key()), bytes(cursor.value())))
            more = cursor.next()
        for key, value in portion:
            write.put(key, value_of(key, value), db=db)
        more = cursor.set_range(portion[-1][0] + b"\0")
