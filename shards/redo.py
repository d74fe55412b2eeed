"""The redo log of a shard's store: small commits go here first, with one flush instead of LMDB's two.

The file has a fixed size and is filled with zeros when it is made, so that appending changes no metadata of the file
system: an append is one synchronous write. Entries are numbered without gaps. When their changes are in LMDB, which
notes the last number, the log begins anew at its start; what is left of older entries behind the new ones is told by
its numbers.

    0          "shardmq-redo" 0 | version u32 | bytes of the file u64
    4096       length u32 | number u64 | xxh3_64 of number and payload u64 | payload (length bytes)
               the next entry, and so on; big-endian
"""

import mmap
import os
from pathlib import Path
from struct import Struct
from typing import Final

from xxhash import xxh3_64_intdigest

from shardmq.errors import StoreRefused
from shardmq.storage.files import sync_folder

REDO_BYTES: Final = 8 << 20
"""Size of the log. Larger makes LMDB's commits rarer and longer; a start reads it once."""

_MAGIC: Final = b"shardmq-redo\0"
_VERSION: Final = 1
_FILE_HEADER: Final = Struct(f">{len(_MAGIC)}sIQ")
_START: Final = 4096
_ENTRY: Final = Struct(">IQQ")
_NUMBER: Final = Struct(">Q")


class RedoLog:
    """An open log.

    Args:
        file: where it is.
        applied: number of the last entry whose changes are in the store; None for a store that never had a log.

    Attributes:
        pending: payloads of the entries behind `applied`, in order; what a crash left.
        last: number of the last entry.

    Raises:
        StoreRefused: the file is missing, cut short, or none of ours. It was not touched.
    """

    def __init__(self, file: Path, applied: int | None) -> None:
        self.file = file
        if applied is None and not file.exists():
            _create(file)
        self.last = applied or 0
        self.pending: list[bytes] = []
        self._position = _START
        with _checked(file) as content:
            while (payload := self._entry(content, self._position)) is not None:
                self.pending.append(payload)
                self.last += 1
                self._position += _ENTRY.size + len(payload)
        self._descriptor = os.open(file, os.O_WRONLY | os.O_DSYNC | os.O_CLOEXEC)

    def has_room(self, payload_bytes: int) -> bool:
        """Whether an entry of that size can be appended."""
        return self._position + _ENTRY.size + payload_bytes <= REDO_BYTES

    def append(self, payload: bytes) -> None:
        """Write an entry; it is on disk when this returns.

        Raises:
            OSError: it may not be; the process must end.
        """
        number = _NUMBER.pack(self.last + 1)
        entry = _ENTRY.pack(len(payload), self.last + 1, xxh3_64_intdigest(number + payload)) + payload
        written = os.pwrite(self._descriptor, entry, self._position)
        if written != len(entry):
            raise OSError(f"{self.file}: {written} of {len(entry)} bytes written")
        self.last += 1
        self._position += len(entry)

    def rewind(self) -> None:
        """The changes of all entries are in the store, and the number of the last."""
        self._position = _START

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _entry(self, content: mmap.mmap, position: int) -> bytes | None:
        """The payload of the entry there, if it is whole and the next."""
        if position + _ENTRY.size > len(content):
            return None
        length, number, checksum = _ENTRY.unpack_from(content, position)
        payload = content[position + _ENTRY.size : position + _ENTRY.size + length]
        if number != self.last + 1 or len(payload) != length:
            return None
        # An entry that was being written when everything stopped is not whole; nobody was told it was there.
        return payload if xxh3_64_intdigest(_NUMBER.pack(number) + payload) == checksum else None


def _create(file: Path) -> None:
    """Make it aside and move it into place, so that a log that exists was once whole."""
    aside = file.with_name("redo.new")
    with aside.open("wb") as stream:
        header = _FILE_HEADER.pack(_MAGIC, _VERSION, REDO_BYTES)
        stream.write(header + bytes(_START - len(header)))
        for _ in range(_START, REDO_BYTES, _START):
            stream.write(bytes(_START))
        stream.flush()
        os.fsync(stream.fileno())
    aside.rename(file)
    sync_folder(file.parent)


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
        if version != _VERSION:
            raise StoreRefused(
                f"{file} has format version {version}; this shardmq reads {_VERSION}; use the one that wrote it"
            )
        found = os.fstat(stream.fileno()).st_size
        if found != size:
            raise StoreRefused(f"{file} is cut short: {found} of {size} bytes; restore it from a copy")
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
