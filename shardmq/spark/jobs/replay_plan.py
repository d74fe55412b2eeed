"""The plan of a replay: which rows of which files are one chunk, when a chunk is due, and the replay's name.

Files are sorted by path and their rows numbered through. Chunk n is the rows [n * size, (n + 1) * size), the same in
every run over the same files.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

CHUNK_SECONDS: Final = 5.0
"""A chunk has the rows of so many seconds at the rate: each chunk costs a Spark job of some tenths of a second."""

CHUNK_ROWS_MAX: Final = 200_000
"""Rows of a chunk at most, and where there is no rate."""

BLOCK_ROWS: Final = 1_000_000
"""Rows that are read together and cached while their chunks are published, so that files are not read for each
chunk."""


class File(NamedTuple):
    """A file of a replay.

    Attributes:
        path: as Spark names it.
        size: bytes.
        rows: how many.
    """

    path: str
    size: int
    rows: int


class ReplayPart(NamedTuple):
    """Rows of one file.

    Attributes:
        path: the file's.
        first: row in it.
        end: the row behind the last.
        before: rows of the files before this one.
    """

    path: str
    first: int
    end: int
    before: int


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """A replay.

    Attributes:
        files: what is replayed, by path.
        chunk_rows: rows of a chunk.
        kind: what the files are, as texts say it.
    """

    files: tuple[File, ...]
    chunk_rows: int
    kind: str = "files"

    @property
    def rows(self) -> int:
        """In all."""
        return sum(file.rows for file in self.files)

    @property
    def chunks(self) -> int:
        """How many there are."""
        return -(-self.rows // self.chunk_rows)

    def rows_of(self, chunk: int) -> int:
        """How many a chunk has: the last one what is left."""
        return min(self.chunk_rows, self.rows - chunk * self.chunk_rows)

    def blocks(self, start: int = 0) -> Iterator[range]:
        """The chunks from one on, so many at a time as are read together."""
        step = max(1, BLOCK_ROWS // self.chunk_rows)
        for first in range(start, self.chunks, step):
            yield range(first, min(first + step, self.chunks))

    def parts(self, chunks: range) -> list[ReplayPart]:
        """Where the rows of consecutive chunks lie."""
        first, end = chunks.start * self.chunk_rows, min(chunks.stop * self.chunk_rows, self.rows)
        found, before = [], 0
        for file in self.files:
            low, high = max(first - before, 0), min(end - before, file.rows)
            if low < high:
                found.append(ReplayPart(file.path, low, high, before))
            before += file.rows
        return found

    def digest(self, target: str) -> str:
        """What makes two replays the same: files, how they are cut, and where they go."""
        return _digest(*self.files, ("rows", self.chunk_rows), ("to", target))


def chunk_rows(rate: float | None) -> int:
    """The rows of a chunk at a rate, rows a second; as many as make sense where there is none."""
    return CHUNK_ROWS_MAX if rate is None else max(1, min(int(rate * CHUNK_SECONDS), CHUNK_ROWS_MAX))


def usual_id(files: Sequence[File], target: str) -> str:
    """The name of a replay that was given none: of the names and sizes of its files, and where they go."""
    return f"replay-{_digest(*((file.path, file.size) for file in files), ('to', target))}"


def _digest(*parts: tuple[object, ...]) -> str:
    return hashlib.sha256("\n".join(map(repr, map(tuple, parts))).encode()).hexdigest()[:20]


class Pace:
    """Says when the next chunk may begin.

    Args:
        rate: rows a second at most; None for no limit.
        clock: seconds, rising.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        rate: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._due = clock()

    def wait(self, rows: int) -> None:
        """Return when a chunk of so many rows may begin. Time that was lost is not made up for: never a burst."""
        if self._rate is None:
            return
        now = self._clock()
        if now < self._due:
            self._sleep(self._due - now)
            now = self._due
        self._due = now + rows / self._rate
