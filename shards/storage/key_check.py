"""Checks the keys of a store at a start, which reads no bodies: is every body there, and at its own key?"""

from collections.abc import Iterator
from typing import Final

from xxhash import xxh3_64

from shardmq.errors import RowDamaged
from shardmq.shards.storage.schema import (
    DATABASES,
    INDEX,
    NUMBER,
    ROWS,
    SEGMENTS,
    STAGED,
    STAGES,
    TIMERS,
    queue_of,
)
from shardmq.storage.checksums import row_seed
from shardmq.storage.engine import Engine
from shardmq.storage.pages.page_check import Head, Keys
from shardmq.storage.versions import CHECKSUMS_SINCE

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

    def check(self, engine: Engine) -> list[RowDamaged]:
        """Return the damaged keys, once the store is open. Each is of one queue, or of one transaction."""
        found: list[RowDamaged] = []
        if engine.version >= CHECKSUMS_SINCE:
            found += [_damaged(engine, TIMERS, key, "is not what was written") for key in self._misplaced]
        for entries, bodies in _PAIRS:
            if self._digests[entries].digest() != self._digests[bodies].digest():
                found += _differences(engine, entries, bodies)
        return found

    def _see_timer(self, key: bytes, head: bytes) -> None:
        if head[: NUMBER.size] != NUMBER.pack(row_seed(TIMERS, key)):
            self._misplaced.append(key)

    def _summing(self, number: int) -> Keys:
        update = self._digests[number].update
        return lambda keys: update(b"".join(keys))


def _differences(engine: Engine, entries: int, bodies: int) -> Iterator[RowDamaged]:
    """The keys that one of two databases has and the other has not."""
    first, second = engine.keys(entries), engine.keys(bodies)
    entry, body = next(first, None), next(second, None)
    while entry is not None or body is not None:
        if body is None or (entry is not None and entry < body):
            assert entry is not None
            yield _damaged(engine, entries, entry, f"has no row in {_name(bodies)!r}")
            entry = next(first, None)
        elif entry is None or body < entry:
            yield _damaged(engine, bodies, body, f"has no row in {_name(entries)!r}")
            body = next(second, None)
        else:
            entry, body = next(first, None), next(second, None)


def _damaged(engine: Engine, number: int, key: bytes, what: str) -> RowDamaged:
    return RowDamaged(engine.file, _name(number), key, f"{ROWS[number]} {what}", queue_of(number, key))


def _name(number: int) -> str:
    return DATABASES[number].decode()
