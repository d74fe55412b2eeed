"""Long lists in any order, in little memory: rows are sorted by the piece and packed, then merged as they are sent.

    rows, some hundred ─► sorted ─► JSON, packed: a run ─┐
    the next ones      ─► …                         run ─┼─► the row of the run whose turn it is ─► client
                                    keys, all in order ──┘

A key with its run's number is all that is kept of a row unpacked. Rows shrink to less than a tenth.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from shardmq.management.web.encoding import encoded
from shardmq.management.web.listing import inside, sortable, with_columns

FASTEST: Final = 1

READ_BYTES: Final = 8 << 10
"""Of a run that are unpacked at once."""

Row = dict[str, Any]


class SortedRuns:
    """Rows in the order that a query asks for; rows that are equal there stay in the order in which they came.

    Args:
        query: with `sort`, `sort_reverse` and `columns`.
    """

    def __init__(self, query: Mapping[str, str]) -> None:
        self._query = query
        self._path = query.get("sort", "").split(".")
        self._is_reversed = query.get("sort_reverse", "").lower() == "true"
        self._keys: list[tuple[tuple[int, float, str], int]] = []
        self._runs: list[bytes] = []

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, rows: Iterable[Row]) -> None:
        """Add some rows: as many as may be in memory together."""
        number = len(self._runs)
        keyed = [((sortable(inside(row, self._path)), number), row) for row in rows]
        keyed.sort(key=lambda pair: pair[0], reverse=self._is_reversed)
        self._keys += [key for key, _ in keyed]
        lines = b"".join([encoded(with_columns(row, self._query)) + b"\n" for _, row in keyed])
        self._runs.append(zlib.compress(lines, FASTEST))

    def merged(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Rows in order, each in JSON, from one place to another."""
        self._keys.sort(key=lambda key: key[0], reverse=self._is_reversed)
        runs = [_lines(run) for run in self._runs]
        return islice((next(runs[number]) for _, number in self._keys), start, end)


def _lines(run: bytes) -> Iterator[bytes]:
    """The rows of a run, unpacked as they are asked for."""
    unpacking, rest, packed = zlib.decompressobj(), b"", run
    while packed or not unpacking.eof:
        *lines, rest = (rest + unpacking.decompress(packed, READ_BYTES)).split(b"\n")
        packed = unpacking.unconsumed_tail
        yield from lines
