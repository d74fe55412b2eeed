"""The store of a shard, in LMDB.

    queues      queue id u64              msgpack Queue
    dropped     queue id u64              empty; its segments are being deleted
    marks       queue id u64              u64, see Queue.mark
    index       queue u64 | first u64     end u64 | count u32 | bytes u32 | msgpack [[start, end], ...], what is gone
    segments    queue u64 | first u64     xxh3_64 u64 | msgpack [[first, Run], ...]
    spilled     as segments; of transient messages, emptied at start

All numbers are big-endian, so keys lie in order. A start reads the index and never a body: bodies are apart from it
because LMDB's Python binding touches every page of a value it passes, wanted or not. The store writes what it is told
and decides nothing.
"""

import ctypes
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Final

import lmdb
import msgspec
from xxhash import xxh3_64_intdigest

from shardmq.environment import open_environment
from shardmq.errors import StoreRefused
from shardmq.model import Queue as Declared
from shardmq.ranges import RangeSet
from shardmq.shards.segments import NumberedRun, Segment

FORMAT: Final = b"shardmq-shard"
READ_BYTES_MAX: Final = 16 << 20
"""Bytes read through the map before its pages are given back: mapped pages count as this process's memory."""

_DATABASES: Final = (b"queues", b"dropped", b"marks", b"index", b"segments", b"spilled")
_EXTENT: Final = Struct(">QII")
_NUMBER: Final = Struct(">Q")
_PLACE: Final = Struct(">QQ")
_NOTHING: Final = b"\x90"
_CHECKSUM_BYTES: Final = 8
_MADV_DONTNEED: Final = 4

_encoder: Final = msgspec.msgpack.Encoder()
_decode_runs: Final = msgspec.msgpack.Decoder(list[NumberedRun]).decode
_decode_queue: Final = msgspec.msgpack.Decoder(Declared).decode
_decode_ranges: Final = msgspec.msgpack.Decoder(list[tuple[int, int]]).decode


@dataclass(slots=True)
class Contents:
    """What a start finds.

    Attributes:
        queues: durable queues.
        marks: of queues, by id.
        segments: of all queues, in order of queue and number.
        dropped: ids of queues that are being deleted.
    """

    queues: list[Declared] = field(default_factory=list)
    marks: dict[int, int] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Writes:
    """What goes into one transaction. Deletions come first.

    Attributes:
        delete: segments that are stored.
        put: segments with their bodies.
        gone: segments of which ranges are gone.
        marks: of queues, by id.
        queues: that are new.
        dropped: ids of queues to be deleted.
        cleared: ids of queues of which nothing is left.
    """

    delete: list[Segment] = field(default_factory=list)
    put: list[Segment] = field(default_factory=list)
    gone: list[Segment] = field(default_factory=list)
    marks: dict[int, int] = field(default_factory=dict)
    queues: list[Declared] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    cleared: list[int] = field(default_factory=list)


class Store:
    """An open store.

    Args:
        folder: of this shard alone.

    Raises:
        StoreRefused: as `open_environment`.
    """

    def __init__(self, folder: Path) -> None:
        self._environment = open_environment(folder, FORMAT, _DATABASES)
        self.file = self._environment.file
        self._env = self._environment.env
        dbs = self._environment.dbs
        self._queues, self._dropped, self._marks, self._index, self._segments, self._spilled = (
            dbs[name] for name in _DATABASES
        )
        self._value = bytearray()
        self._map = _Map(self.file)

    def load(self) -> Contents:
        """Read the index; what was spilled before is forgotten.

        Raises:
            StoreRefused: records that no shard wrote. Nothing was touched.
        """
        with self._env.begin(buffers=False) as transaction:
            contents = Contents(
                queues=[_decode_queue(value) for _, value in self._items(transaction, self._queues)],
                marks={_number(key): _number(value) for key, value in self._items(transaction, self._marks)},
                dropped=[_number(key) for key, _ in self._items(transaction, self._dropped)],
            )
            contents.segments = [self._segment(key, value) for key, value in self._items(transaction, self._index)]
        self._check(contents)
        with self._env.begin(write=True) as transaction:
            if transaction.stat(self._spilled)["entries"]:
                transaction.drop(self._spilled, delete=False)
        return contents

    def write(self, writes: Writes) -> None:
        """Commit, synced to disk."""
        with self._env.begin(write=True) as transaction:
            for segment in writes.delete:
                key = _key(segment)
                if segment.durable:
                    transaction.delete(key, db=self._segments)
                    transaction.delete(key, db=self._index)
                else:
                    transaction.delete(key, db=self._spilled)
            for segment in writes.put:
                value = self._encode(segment)
                transaction.put(_key(segment), value, db=self._segments if segment.durable else self._spilled)
                if segment.durable:
                    transaction.put(_key(segment), _extent(segment), db=self._index)
            for segment in writes.gone:
                transaction.put(_key(segment), _extent(segment), db=self._index)
            for queue, mark in writes.marks.items():
                transaction.put(_NUMBER.pack(queue), _NUMBER.pack(mark), db=self._marks)
            for declared in writes.queues:
                transaction.put(_NUMBER.pack(declared.id), _encoder.encode(declared), db=self._queues)
            for queue in writes.dropped:
                transaction.delete(_NUMBER.pack(queue), db=self._queues)
                transaction.delete(_NUMBER.pack(queue), db=self._marks)
                transaction.put(_NUMBER.pack(queue), b"", db=self._dropped)
            for queue in writes.cleared:
                transaction.delete(_NUMBER.pack(queue), db=self._dropped)

    def read(self, segment: Segment) -> list[NumberedRun]:
        """The bodies of a stored segment.

        Raises:
            StoreRefused: they are not what was written.
        """
        key = _key(segment)
        with self._env.begin(db=self._segments if segment.durable else self._spilled, buffers=True) as transaction:
            value = transaction.get(key)
            if value is None:
                raise self._damaged(f"{segment!r} is not there")
            body = value[_CHECKSUM_BYTES:]
            if xxh3_64_intdigest(body) != _number(value[:_CHECKSUM_BYTES]):
                raise self._damaged(f"{segment!r} is not what was written")
            runs = _decode_runs(body)
            self._map.read(len(value))
            body.release()
        return runs

    def sizes(self) -> dict[str, int]:
        """Bytes of the file, of what is used in it, and of the map."""
        info = self._env.info()
        page = self._env.stat()["psize"]
        return {
            "file_bytes": self.file.stat().st_size,
            "used_bytes": (info["last_pgno"] + 1) * page,
            "map_bytes": info["map_size"],
        }

    def close(self) -> None:
        """Close the file."""
        self._environment.close()

    def _encode(self, segment: Segment) -> bytearray:
        value = self._value
        _encoder.encode_into(segment.runs, value, _CHECKSUM_BYTES)
        with memoryview(value) as view:
            _NUMBER.pack_into(value, 0, xxh3_64_intdigest(view[_CHECKSUM_BYTES:]))
        return value

    def _items(self, transaction: "lmdb.Transaction[bytes]", db: "lmdb._Database") -> Iterator[tuple[bytes, bytes]]:
        return transaction.cursor(db).iternext(keys=True, values=True)

    def _segment(self, key: bytes, value: bytes) -> Segment:
        if len(key) != _PLACE.size or len(value) <= _EXTENT.size:
            raise self._damaged(f"index entry {key.hex()} has {len(value)} bytes")
        queue, first = _PLACE.unpack(key)
        segment = Segment(queue, first, durable=True, born=0.0)
        segment.end, segment.count, segment.bytes = _EXTENT.unpack_from(value)
        gone = RangeSet(_decode_ranges(value[_EXTENT.size :]))
        segment.gone = gone or None
        segment.live = segment.end - segment.first - gone.count
        segment.stored, segment.runs = True, None
        return segment

    def _check(self, contents: Contents) -> None:
        known = {queue.id for queue in contents.queues}.union(contents.dropped)
        strange = {segment.queue for segment in contents.segments} - known
        if strange:
            raise self._damaged(f"messages of queue {min(strange)}, which is not in it")

    def _damaged(self, what: str) -> StoreRefused:
        return StoreRefused(f"{self.file} is damaged: {what}; restore it from a copy")


class _Map:
    """Gives back pages that were read through LMDB's map.

    They are the kernel's page cache, but count as memory of this process for as long as they are mapped.
    """

    def __init__(self, file: Path) -> None:
        self._file = str(file.resolve())
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._bytes = 0

    def read(self, count: int) -> None:
        """So many bytes were read, and copied."""
        self._bytes += count
        if self._bytes >= READ_BYTES_MAX:
            self._bytes = 0
            for start, end in self._mapped():
                if self._libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED):
                    raise OSError(ctypes.get_errno(), "madvise on the store's map")

    def _mapped(self) -> Iterable[tuple[int, int]]:
        with open("/proc/self/maps") as maps:
            for line in maps:
                if line.rstrip().endswith(self._file):
                    start, end = line.split(" ", 1)[0].split("-")
                    yield int(start, 16), int(end, 16)


def _key(segment: Segment) -> bytes:
    return _PLACE.pack(segment.queue, segment.first)


def _extent(segment: Segment) -> bytes:
    ranges = _encoder.encode(list(segment.gone)) if segment.gone is not None else _NOTHING
    return _EXTENT.pack(segment.end, segment.count, segment.bytes) + ranges


def _number(value: bytes | memoryview) -> int:
    return int.from_bytes(value, "big")
