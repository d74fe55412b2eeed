"""LMDB environments of ours: locked, checked before they are touched, refused when they are not what they should be.

<folder>/lock       held (flock) for as long as the process lives
<folder>/data.mdb   LMDB's; database `meta` says whose it is: `format`, `version`
<folder>/lock.mdb   LMDB's
"""

import fcntl
import os
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import lmdb

from shardmq.errors import StoreRefused
from shardmq.storage.files import make_folder, sync_file, sync_folder

VERSION: Final = b"1"
MAP_BYTES: Final = 1 << 40
"""Address space, not disk: a map that cannot fill before the disk does."""

_META: Final = b"meta"
_HEADER: Final = struct.Struct("=QHHI")
"""The start of LMDB's first page: page number, padding, page flags, bounds; then the magic number."""
_MAGIC: Final = struct.Struct("=I")
_LMDB_MAGIC: Final = 0xBEEFC0DE

_READ_THROUGH: Final = """
import sys, lmdb
env = lmdb.open(sys.argv[1], readonly=True, lock=False, create=False, max_dbs=64, map_size=int(sys.argv[2]))
with env.begin() as transaction:
    names = [bytes(name) for name in transaction.cursor().iternext(values=False)]
for name in names:
    db = env.open_db(name, create=False)
    with env.begin(db=db) as transaction:
        for _, value in transaction.cursor():
            len(value)
"""


@dataclass(frozen=True, slots=True)
class Environment:
    """An open store.

    Attributes:
        folder: where it is.
        env: the `lmdb.Environment`.
        dbs: its databases by name.
    """

    folder: Path
    env: lmdb.Environment
    dbs: dict[bytes, lmdb._Database]
    _lock: int

    @property
    def file(self) -> Path:
        """The data file."""
        return self.folder / "data.mdb"

    def close(self) -> None:
        """Close the file, then let go of the lock."""
        self.env.close()
        os.close(self._lock)


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


def open_environment(folder: Path, format: bytes, databases: tuple[bytes, ...]) -> Environment:
    """Open a store, or make one where there is none.

    Args:
        folder: of this store alone.
        format: what must be, or is written, in the store as its format, as `shardmq-shard`.
        databases: names of its databases.

    Returns:
        The environment: every commit is synced to disk in full.

    Raises:
        StoreRefused: in use, not LMDB, cut short, of another format or version. Nothing in it was touched.
    """
    lock = lock_folder(folder)
    try:
        if (folder / "data.mdb").exists():
            _sync(folder)
            _check(folder / "data.mdb", format)
        else:
            _create(folder, format)
        env = _open(folder, len(databases))
        dbs = {name: env.open_db(name) for name in databases}
    except BaseException:
        os.close(lock)
        raise
    return Environment(folder, env, dbs, lock)


def reopened(environment: Environment) -> Environment:
    """A store whose `env` was closed to put another file in its place, open again."""
    env = _open(environment.folder, len(environment.dbs))
    return replace(environment, env=env, dbs={name: env.open_db(name) for name in environment.dbs})


def _open(folder: Path, databases: int) -> lmdb.Environment:
    return lmdb.open(str(folder), map_size=MAP_BYTES, max_dbs=databases + 1, subdir=True, lock=True,
                     metasync=True, sync=True, readahead=False)  # fmt: skip


def _create(folder: Path, format: bytes) -> None:
    """Make the file aside and move it into place, so that a data.mdb that exists was once whole."""
    aside = folder / "new"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    env = _open(aside, 0)
    meta = env.open_db(_META)
    with env.begin(write=True, db=meta) as transaction:
        transaction.put(b"format", format)
        transaction.put(b"version", VERSION)
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


def _is_whole(file: Path) -> bool:
    """Whether every page in use can be read.

    A healthy file may be a little shorter than its page count says: pages that one transaction took at the end and gave
    back are never written (seen once in 40,000 commits). So a short file is read through, by a process that may die.
    """
    reader = [sys.executable, "-I", "-c", _READ_THROUGH, str(file.parent), str(MAP_BYTES)]
    return subprocess.run(reader, stderr=subprocess.DEVNULL, check=False).returncode == 0


def _check(file: Path, format: bytes) -> None:
    """Look at a store without changing it.

    The size comes before everything else: reading a page that the file does not have would end this process (SIGBUS).
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        head = stream.read(_HEADER.size + _MAGIC.size)
    if len(head) < _HEADER.size + _MAGIC.size:
        raise StoreRefused(f"{file} is cut short: {size} bytes; restore it from a copy")
    if _MAGIC.unpack_from(head, _HEADER.size)[0] != _LMDB_MAGIC:
        raise StoreRefused(f"{file} is no LMDB file; move it away, or choose another data directory")
    try:
        env = lmdb.open(str(file.parent), readonly=True, lock=False, create=False, max_dbs=1, map_size=MAP_BYTES)
    except lmdb.Error as fault:
        raise StoreRefused(f"{file} cannot be opened: {fault}; restore it from a copy") from fault
    try:
        page = env.stat()["psize"]
        needed = (env.info()["last_pgno"] + 1) * page
        if size < needed and (size % page or not _is_whole(file)):
            raise StoreRefused(f"{file} is cut short: {size} of {needed} bytes; restore it from a copy")
        _check_meta(file, env, format)
    finally:
        env.close()


def _check_meta(file: Path, env: lmdb.Environment, format: bytes) -> None:
    try:
        meta = env.open_db(_META, create=False)
        with env.begin(db=meta) as transaction:
            found, version = transaction.get(b"format"), transaction.get(b"version")
    except lmdb.NotFoundError:
        found = version = None
    except lmdb.Error as fault:
        raise StoreRefused(f"{file} cannot be read: {fault}; restore it from a copy") from fault
    if found != format:
        what = "another program's" if found is None else f"a '{found.decode(errors='replace')}'"
        raise StoreRefused(f"{file} is {what} store, not a '{format.decode()}'; choose another data directory")
    if version != VERSION:
        number = (version or b"none").decode(errors="replace")
        raise StoreRefused(
            f"{file} has format version {number}; this shardmq reads {VERSION.decode()}; use the one that wrote it"
        )
