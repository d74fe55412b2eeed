"""The redo log of a shard's store: small commits go here first, with one flush instead of LMDB's two.

The file has a fixed size and is filled with zeros when it is made, so that appending changes no metadata of the file
system: an append is one synchronous write. Entries are numbered without gaps. When their changes are in LMDB, which
notes the last number, the log begins anew at its start; what is left of older entries behind the new ones is told by
its numbers.

    0          "shardmq-redo" 0 | version u32 | bytes of the file u64 | salt u64 | xxh3_64 of all that u64
    4096       length u32 | number u64 | xxh3_64 of number and payload u64 | payload (length bytes)
               the next entry, and so on; big-endian

The salt is where the entries' checksums begin: bytes of a message that look like an entry are none. Logs of version 1
have none, and are replaced by new ones when what is in them is in LMDB.

An entry that was being written when everything stopped is not whole; nobody was told that it was there, and it is the
end of the log. One that was damaged later is not: a wrong bit is mended, and where that is not all but others lie
behind it, the log is refused (recovery.py).
"""

import logging
import mmap
import os
import secrets
import time
from pathlib import Path
from struct import Struct
from typing import Final

from xxhash import xxh3_64_intdigest

from shardmq.errors import StoreDamaged, StoreRefused
from shardmq.runtime.statistics.histograms import TimeHistogram
from shardmq.storage.files import sync_folder
from shardmq.storage.redo.recovery import ENTRY, ENTRY_BYTES_MAX, NUMBER, Content

REDO: Final = "redo"
"""The log's file, in the store's folder."""

REDO_ASIDE: Final = "redo.new"
"""A log that is being made."""

REDO_BYTES: Final = 8 << 20
"""Size of the log. Larger makes LMDB's commits rarer and longer; a start reads it once."""

_MAGIC: Final = b"shardmq-redo\0"
_VERSION: Final = 2
_WITHOUT_SALT: Final = 1
_FILE_HEADER: Final = Struct(f">{len(_MAGIC)}sIQ")
_SALT: Final = Struct(">QQ")
_START: Final = 4096
_BLANK: Final = 256 << 10
"""What is written at once of a new log: in portions of a page, each start of a new store would take 10 ms longer."""

_log: Final = logging.getLogger(__name__)


class StoredLog:
    """A log as it is on disk, read without changing it.

    Args:
        file: where it is.
        applied: number of the last entry whose changes are in the store.
        is_new: whether it was just made, and has no entries.

    Attributes:
        pending: payloads of the entries behind `applied`, in order; what a crash left.
        last: number of the last entry.

    Raises:
        StoreRefused: the file is missing, cut short, damaged, or none of ours.
    """

    def __init__(self, file: Path, applied: int, *, is_new: bool = False) -> None:
        self.file = file
        self.last = applied
        self.pending: list[bytes] = []
        self._position = _START
        with _checked(file) as content:
            self._is_salted, self._salt = _salt(file, content)
            if not is_new:
                self._read(Content(content, self._salt))

    def _read(self, content: Content) -> None:
        """Take in the entries behind the last, to the end of the log."""
        while True:
            entry = content.entry(self._position)
            if entry is not None and entry.number <= self.last:
                return  # left from before the log began anew
            if entry is None or entry.number != self.last + 1:
                entry = content.mended(self._position, self.last + 1)
                if entry is None:
                    self._check_end(content)
                    return
                _log.warning(
                    "%s: mended one wrong bit in commit %d, at byte %d; look at the disk and the memory",
                    self.file,
                    entry.number,
                    self._position,
                )
            self.pending.append(entry.payload)
            self.last += 1
            self._position += ENTRY.size + len(entry.payload)

    def _check_end(self, content: Content) -> None:
        """An entry that cannot be read is torn; unless later ones lie behind it."""
        later = content.later(self._position, self.last)
        if later is None:
            return
        if later.number == self.last + 1 or self._position > _START or later.position > _START:
            what = f"commit {self.last + 1}, at byte {self._position}, cannot be read"
        else:
            what = f"commits {self.last + 1} to {later.number - 1} are not in it, nor in the store it belongs to"
        commits = "1 commit lies" if later.commits == 1 else f"{later.commits} commits lie"
        raise StoreDamaged(
            self.file,
            f"{what}, and {commits} behind, from commit {later.number} at byte {later.position} on, "
            "without which data.mdb beside it is not complete",
        )


class RedoLog(StoredLog):
    """An open log.

    Args:
        file: where it is.
        applied: number of the last entry whose changes are in the store; None for a store that never had a log.

    Attributes:
        flush_seconds: how long it took to have entries on disk.

    Raises:
        StoreRefused: the file is missing, cut short, damaged, or none of ours. It was not touched.
    """

    def __init__(self, file: Path, applied: int | None) -> None:
        is_new = applied is None and not file.exists()
        if is_new:
            _create(file)
        super().__init__(file, applied or 0, is_new=is_new)
        self._descriptor = _for_appending(file)
        self.flush_seconds = TimeHistogram()

    def has_room(self, payload_bytes: int) -> bool:
        """Whether an entry of that size can be appended."""
        return payload_bytes <= ENTRY_BYTES_MAX and self._position + ENTRY.size + payload_bytes <= REDO_BYTES

    def append(self, payload: bytes) -> None:
        """Write an entry; it is on disk when this returns.

        Raises:
            OSError: it may not be; the process must end.
        """
        checksum = xxh3_64_intdigest(NUMBER.pack(self.last + 1) + payload, self._salt)
        entry = ENTRY.pack(len(payload), self.last + 1, checksum) + payload
        began = time.monotonic()
        written = os.pwrite(self._descriptor, entry, self._position)
        self.flush_seconds.add(time.monotonic() - began)
        if written != len(entry):
            raise OSError(f"{self.file}: {written} of {len(entry)} bytes written")
        self.last += 1
        self._position += len(entry)

    def rewind(self) -> None:
        """The changes of all entries are in the store, and the number of the last."""
        self._position = _START

    def renew(self) -> None:
        """Begin a log of this version in the place of one of an earlier one, whose changes are all in the store."""
        if not self._is_salted:
            self._salt, self._is_salted = _create(self.file), True
            old, self._descriptor = self._descriptor, _for_appending(self.file)
            os.close(old)
            self.rewind()

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def first_number(file: Path) -> int | None:
    """Return the number of the entry that a log begins with; None where there is none that can be read.

    Raises:
        StoreRefused: the file is missing, cut short, damaged, or none of ours.
    """
    with _checked(file) as content:
        entry = Content(content, _salt(file, content)[1]).entry(_START)
    return None if entry is None else entry.number


def _for_appending(file: Path) -> int:
    return os.open(file, os.O_WRONLY | os.O_DSYNC | os.O_CLOEXEC)


def _create(file: Path) -> int:
    """Make it aside and move it into place, so that a log that exists was once whole; returns its salt."""
    salt = secrets.randbits(64)
    aside = file.with_name(REDO_ASIDE)
    with aside.open("wb") as stream:
        header = _FILE_HEADER.pack(_MAGIC, _VERSION, REDO_BYTES)
        header += _SALT.pack(salt, xxh3_64_intdigest(header + NUMBER.pack(salt)))
        stream.write(header + bytes(_BLANK - len(header)))
        for _ in range(_BLANK, REDO_BYTES, _BLANK):
            stream.write(bytes(_BLANK))
        stream.flush()
        os.fsync(stream.fileno())
    aside.rename(file)
    sync_folder(file.parent)
    return salt


def _salt(file: Path, content: mmap.mmap) -> tuple[bool, int]:
    """Whether a log has a salt, and which."""
    header = content[: _FILE_HEADER.size]
    if _FILE_HEADER.unpack(header)[1] == _WITHOUT_SALT:
        return False, 0
    salt, checksum = _SALT.unpack_from(content, _FILE_HEADER.size)
    if checksum != xxh3_64_intdigest(header + NUMBER.pack(salt)):
        raise StoreDamaged(file, "its header is not what was written")
    return True, salt


def _checked(file: Path) -> mmap.mmap:
    """The content of a log that is whole and ours, as a map: read at once it would be the largest thing in memory."""
    try:
        stream = file.open("rb")
    except FileNotFoundError:
        raise StoreRefused(f"{file} is missing; restore it from the copy that data.mdb is from") from None
    with stream:
        head = stream.read(_FILE_HEADER.size)
        if len(head) < _FILE_HEADER.size or not head.startswith(_MAGIC):
            raise StoreRefused(f"{file} is no redo log of shardmq; restore it from the copy that data.mdb is from")
        _, version, size = _FILE_HEADER.unpack(head)
        if version not in (_VERSION, _WITHOUT_SALT):
            raise StoreRefused(
                f"{file} has format version {version}; this shardmq reads {_VERSION}; use the one that wrote it"
            )
        found = os.fstat(stream.fileno()).st_size
        if found != size:
            raise StoreRefused(f"{file} is cut short: {found} of {size} bytes; restore it from a copy")
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
