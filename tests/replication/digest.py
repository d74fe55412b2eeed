"""The digest of a store: equal on replicas that hold the same rows."""

from contextlib import closing
from dataclasses import dataclass

from xxhash import xxh3_64_intdigest, xxh3_128_intdigest

from shardmq.replication.store.key_range import shared_rows
from shardmq.storage.engine import Engine


@dataclass(frozen=True, slots=True)
class Digest:
    """How many rows a store shares with its replicas, and the sum of their hashes: the order of writes is not in it."""

    rows: int
    value: int

    def __str__(self) -> str:
        return f"{self.rows} rows, {self.value:032x}"


def digest_of(engine: Engine) -> Digest:
    """The digest of all rows that replicas share."""
    count = total = 0
    with closing(shared_rows(engine)) as rows:
        for number, key, stored in rows:
            total += xxh3_128_intdigest(stored, xxh3_64_intdigest(key, number))
            count += 1
    return Digest(count, total % (1 << 128))
