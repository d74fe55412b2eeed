"""A room for replicas' stores, and edits as their owners make them."""

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shardmq.shards.storage.schema import INDEX, MARKS, NUMBER, PLACE, QUEUES, SEGMENTS, SPILLED
from shardmq.storage.checksums import sealed_row
from shardmq.storage.engine import Edit, Engine

RAM = "/dev/shm" if Path("/dev/shm").is_dir() else None


@contextmanager
def room() -> Iterator[Path]:
    """A folder in memory."""
    with tempfile.TemporaryDirectory(dir=RAM) as name:
        yield Path(name)


class Traffic:
    """Edits as a shard's commits have them: bodies and their entries come and go, marks and queues change.

    Args:
        seed: of the choices.
        bytes_max: of a body.
    """

    def __init__(self, seed: int, bytes_max: int = 300) -> None:
        self.dice = random.Random(seed)
        self.bytes_max = bytes_max
        self.next = 0
        self.there: list[bytes] = []

    def go_on(self, engine: Engine) -> None:
        """Go on with what a new primary has: it gives numbers again that the one before gave."""
        self.there = list(engine.keys(SEGMENTS))
        self.next = max([PLACE.unpack(key)[1] for key in self.there], default=0)

    def commit(self) -> list[Edit]:
        """The edits of one commit."""
        dice = self.dice
        edits: list[Edit] = []
        for _ in range(dice.choice((0, 0, 1, 2)) if self.there else 0):
            if self.there:
                key = self.there.pop(dice.randrange(len(self.there)))
                edits += [(SEGMENTS, key, None), (INDEX, key, None)]
        for _ in range(dice.choice((0, 1, 1, 3))):
            self.next += 1
            key = PLACE.pack(dice.randrange(3), self.next)
            body = dice.randbytes(dice.randrange(1, self.bytes_max))
            edits += [(SEGMENTS, key, bytearray(sealed_row(SEGMENTS, key, body))), (INDEX, key, dice.randbytes(12))]
            self.there.append(key)
        edits.append((MARKS, NUMBER.pack(dice.randrange(5)), dice.choice((None, NUMBER.pack(dice.randrange(1 << 40))))))
        if dice.random() < 0.2:
            edits.append((QUEUES, NUMBER.pack(dice.randrange(20)), dice.randbytes(40)))
        if dice.random() < 0.2:
            key = PLACE.pack(9, dice.randrange(9))
            edits.append((SPILLED, key, sealed_row(SPILLED, key, b"of this process")))
        return edits


def size_of(edits: list[Edit]) -> int:
    return sum([20 + len(key) + len(value or b"") for _, key, value in edits])
