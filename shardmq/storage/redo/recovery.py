"""What is behind the last entry of a redo log that can be read: the end of the log, or damage.

An entry that was being written when everything stopped is torn; nobody was told that it was there. It differs from one
that was whole and has been damaged since: of that all but a bit or a sector is as it was, or others lie behind it.
"""

import re
from collections.abc import Iterator
from mmap import mmap
from struct import Struct
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest

ENTRY: Final = Struct(">IQQ")
NUMBER: Final = Struct(">Q")

ENTRY_BYTES_MAX: Final = 80 << 10
"""The largest entry. A wrong bit in it is found by trying all of them, which takes some 2 seconds."""

_ZEROS: Final = bytes(64 << 10)


class Entry(NamedTuple):
    """An entry that is whole."""

    number: int
    payload: bytes


class Later(NamedTuple):
    """Entries behind one that cannot be read.

    Attributes:
        position: of the first of them.
        number: of the first of them.
        commits: how many follow one another there.
    """

    position: int
    number: int
    commits: int


class Content:
    """The entries of a log.

    Args:
        content: of the file.
        salt: what their checksums begin with.
    """

    def __init__(self, content: mmap, salt: int) -> None:
        self._content = content
        self._salt = salt

    def entry(self, position: int, bytes_max: int = 1 << 32) -> Entry | None:
        """The entry there, if it is whole and not larger than that."""
        if position + ENTRY.size > len(self._content):
            return None
        length, number, checksum = ENTRY.unpack_from(self._content, position)
        payload = self._payload(position, length) if length <= bytes_max else None
        if payload is None or self._checksum(number, payload) != checksum:
            return None
        return Entry(number, payload)

    def mended(self, position: int, expected: int) -> Entry | None:
        """The entry of that number there, if it is whole but for one bit.

        That is certain: 64 bits of checksum agree with what is returned.
        """
        if position + ENTRY.size > len(self._content):
            return None
        length, number, checksum = ENTRY.unpack_from(self._content, position)
        payload = self._payload(position, length)
        if (number ^ expected).bit_count() == 1:
            return Entry(expected, payload) if payload is not None and self._is(expected, payload, checksum) else None
        if number != expected:
            return None
        if payload is not None and (self._checksum(expected, payload) ^ checksum).bit_count() == 1:
            return Entry(expected, payload)
        for bit in range(32):
            other = self._payload(position, length ^ 1 << bit)
            if other is not None and self._is(expected, other, checksum):
                return Entry(expected, other)
        return self._mended_payload(expected, payload, checksum)

    def later(self, position: int, last: int) -> Later | None:
        """The first entries at a place or behind it that are whole and have a later number than the last."""
        there = self.entry(position)
        if there is not None and there.number > last:
            return self._run(position)
        first, end = last + 1, last + len(self._content) // ENTRY.size
        for place in self._candidates(position, first, end):
            entry = self.entry(place, ENTRY_BYTES_MAX)  # a client's message may look like many large ones
            if entry is not None and entry.number > last:
                return self._run(place)
        return None

    def _run(self, position: int) -> Later:
        start = position
        first = entry = self.entry(position)
        assert first is not None
        count = 0
        while entry is not None and entry.number == first.number + count:
            count += 1
            position += ENTRY.size + len(entry.payload)
            entry = self.entry(position)
        return Later(start, first.number, count)

    def _candidates(self, position: int, first: int, end: int) -> Iterator[int]:
        """Yield places where bytes could be an entry of a number in [first, end]."""
        low, high = NUMBER.pack(first), NUMBER.pack(end)
        same = next(place for place in range(8) if low[place] != high[place])
        span = b"[" + re.escape(low[same : same + 1]) + b"-" + re.escape(high[same : same + 1]) + b"]"
        number = re.compile(b"(?=" + re.escape(low[:same]) + span + b")(?!\0{8})", re.DOTALL)
        for found in number.finditer(self._content, position + 4, self._end()):
            yield found.start() - 4

    def _end(self) -> int:
        """Return where the zeros begin that nothing was written over yet."""
        end = len(self._content)
        while end >= len(_ZEROS) and self._content[end - len(_ZEROS) : end] == _ZEROS:
            end -= len(_ZEROS)
        return end

    def _mended_payload(self, number: int, payload: bytes | None, checksum: int) -> Entry | None:
        if payload is None or len(payload) > ENTRY_BYTES_MAX:
            return None
        tried = bytearray(NUMBER.pack(number) + payload)
        salt, digest = self._salt, xxh3_64_intdigest
        for place in range(NUMBER.size, len(tried)):
            byte = tried[place]
            for bit in (1, 2, 4, 8, 16, 32, 64, 128):
                tried[place] = byte ^ bit
                if digest(tried, salt) == checksum:
                    return Entry(number, bytes(tried[NUMBER.size :]))
            tried[place] = byte
        return None

    def _payload(self, position: int, length: int) -> bytes | None:
        start = position + ENTRY.size
        return self._content[start : start + length] if start + length <= len(self._content) else None

    def _is(self, number: int, payload: bytes, checksum: int) -> bool:
        return self._checksum(number, payload) == checksum

    def _checksum(self, number: int, payload: bytes) -> int:
        return xxh3_64_intdigest(NUMBER.pack(number) + payload, self._salt)
