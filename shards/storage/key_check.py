"""A start looks at keys, and at bodies only when they are asked for: are the bodies there, and all at their keys?"""

from collections.abc import Iterator
from functools import partial
from typing import Final

from xxhash import xxh3_64

from shardmq.errors import RowDamaged
from shardmq.shards.storage.schema import (
    BODIES_APART,
    DATABASES,
    INDEX,
    NUMBER,
    ROWS,
    SEGMENTS,
    SPILLED_TIMERS,
    STAGED,
    STAGES,
    TIMERS,
    queue_of,
    stored_value,
)
from shardmq.storage.checksums import row_seed
from shardmq.storage.disk_space import writing
from shardmq.storage.lmdb_engine import VERSION, LmdbEnvironment
from shardmq.storage.pages.page_check import Head, Keys
from shardmq.storage.table import rewrite

_PAIRS: Final = ((INDEX, SEGMENTS), (STAGES, STAGED))


class KeyCheck:
    """Sees the keys of a store while its pages are looked through.

    Attributes:
        heads: who sees rows, by database.
        keys: who sees keys, by database.
    """

    def __init__(self) -> None:
        self._digests = {number: xxh3_64() for pair in _PAIRS for number in pair}
        self._misplaced: list[bytes] = []
        self.heads: dict[str, Head] = {_name(TIMERS): self._see_timer}
        self.keys: dict[str, Keys] = {_name(number): self._summing(number) for number in self._digests}

    def check(self, environment: LmdbEnvironment) -> list[RowDamaged]:
        """Which keys are not what was written, once the store is open: each is of one queue, or of one transaction."""
        found: list[RowDamaged] = []
        if environment.version == VERSION:
            found += [_damaged(environment, TIMERS, key, "is not what was written") for key in self._misplaced]
        for entries, bodies in _PAIRS:
            if self._digests[entries].digest() != self._digests[bodies].digest():
                found += _differences(environment, entries, bodies)
        return found

    def _see_timer(self, key: bytes, head: bytes) -> None:
        if head[: NUMBER.size] != NUMBER.pack(row_seed(TIMERS, key)):
            self._misplaced.append(key)

    def _summing(self, number: int) -> Keys:
        update = self._digests[number].update
        return lambda keys: update(b"".join(keys))


def upgrade(environment: LmdbEnvironment) -> None:
    """Give the rows of a store of the first version their checksums, in one transaction; bodies stay as they are."""
    with writing(environment) as transaction:
        for number, name in enumerate(DATABASES):
            if number not in BODIES_APART and number != SPILLED_TIMERS:  # what was spilled is forgotten
                rewrite(transaction, environment.dbs[name], partial(_upgraded, number))
        environment.raise_version(transaction)


def _upgraded(number: int, key: bytes, value: bytes) -> bytes:
    return bytes(stored_value(number, key, value))


def _differences(environment: LmdbEnvironment, entries: int, bodies: int) -> Iterator[RowDamaged]:
    """The keys that one of two databases has and the other has not."""
    with environment.env.begin() as transaction:
        first, second = (
            transaction.cursor(environment.dbs[DATABASES[number]]).iternext(keys=True, values=False)
            for number in (entries, bodies)
        )
        entry, body = next(first, None), next(second, None)
        while entry is not None or body is not None:
            if body is None or (entry is not None and entry < body):
                assert entry is not None
                yield _damaged(environment, entries, bytes(entry), f"has no row in {_name(bodies)!r}")
                entry = next(first, None)
            elif entry is None or body < entry:
                yield _damaged(environment, bodies, bytes(body), f"has no row in {_name(entries)!r}")
                body = next(second, None)
            else:
                entry, body = next(first, None), next(second, None)


def _damaged(environment: LmdbEnvironment, number: int, key: bytes, what: str) -> RowDamaged:
    return RowDamaged(environment.file, _name(number), key, f"{ROWS[number]} {what}", queue_of(number, key))


def _name(number: int) -> str:
    return DATABASES[number].decode()
