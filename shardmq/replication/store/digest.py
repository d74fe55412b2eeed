"""The digest of a store: equal on replicas that hold the same rows.

It is the sum of the rows' hashes, so that it depends neither on the order of writes nor on where a read was cut, and
ranges' digests add up. What replicas do not share is not in it. A row that is damaged makes it another one.
"""

from contextlib import closing
from dataclasses import dataclass
from typing import Final

from xxhash import xxh3_64_intdigest, xxh3_128_intdigest

from shardmq.replication.core.note import BEGINNING, Key
from shardmq.replication.store.key_range import shared_rows
from shardmq.storage.engine import Engine

DIGEST_BYTES: Final = 8 << 20
"""About how much is read at a time: a few milliseconds of the owner's."""

_MODULUS: Final = 1 << 128


@dataclass(frozen=True, slots=True)
class Digest:
    """The digest of rows.

    Attributes:
        rows: how many.
        bytes: of their keys and values.
        value: the sum of their hashes, of 128 bits.
    """

    rows: int = 0
    bytes: int = 0
    value: int = 0

    def __add__(self, other: "Digest") -> "Digest":
        """Return the digest of the rows of both."""
        return Digest(self.rows + other.rows, self.bytes + other.bytes, (self.value + other.value) % _MODULUS)

    def __str__(self) -> str:
        return f"{self.value:032x}"


def digest_from(engine: Engine, start: Key, end: Key | None, bytes_max: int) -> tuple[Digest, Key | None]:
    """Read rows from a place on, and return their digest, and where to go on; None at the end.

    Args:
        engine: whose.
        start: the first place.
        end: behind the last one; None for all.
        bytes_max: about how many bytes to read.
    """
    rows = size = value = 0
    with closing(shared_rows(engine, start, end)) as found:
        for number, key, stored in found:
            if size >= bytes_max:
                return Digest(rows, size, value % _MODULUS), (number, key)
            value += xxh3_128_intdigest(stored, xxh3_64_intdigest(key, number))
            rows += 1
            size += len(key) + len(stored)
    return Digest(rows, size, value % _MODULUS), None


def digest_of(engine: Engine, start: Key = BEGINNING, end: Key | None = None) -> Digest:
    """Return the digest of all rows between two places that replicas share."""
    total, place = Digest(), start
    while True:
        part, then = digest_from(engine, place, end, DIGEST_BYTES)
        total += part
        if then is None:
            return total
        place = then
