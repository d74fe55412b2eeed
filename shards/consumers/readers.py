"""Readers of a partition, each served from its cursor."""

from collections.abc import Iterator

from shardmq.shards.consumers.consumer import Consumer
from shardmq.shards.consumers.serving import serve
from shardmq.shards.topics.cursor import Cursor
from shardmq.shards.topics.partition import Partition


class Readers:
    """The readers of a partition (in the place of `RoundRobin`).

    A reader without credit, or with a message that does not fit, is out of turn until `wake`.

    Args:
        partition: what they read.
        behind: gets the id where a reader has more to look through than one pass does.

    Attributes:
        exclusive: nobody; who reads takes nothing from others.
    """

    __slots__ = ("_behind", "_cursors", "_partition", "_turns")

    exclusive: Consumer | None = None

    def __init__(self, partition: Partition, behind: dict[int, None]) -> None:
        self._partition = partition
        self._behind = behind
        self._cursors: dict[Consumer, Cursor] = {}
        self._turns: dict[Consumer, Cursor] = {}

    def __len__(self) -> int:
        return len(self._cursors)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(list(self._cursors))

    def join(self, consumer: Consumer) -> None:
        """Add a reader that has a cursor."""
        assert consumer.cursor is not None
        self._cursors[consumer] = self._turns[consumer] = consumer.cursor
        consumer.is_active = True
        self._partition.is_shared = len(self._cursors) > 1

    def leave(self, consumer: Consumer) -> None:
        """Remove a reader, if it is there."""
        self._cursors.pop(consumer, None)
        self._turns.pop(consumer, None)
        self._partition.is_shared = len(self._cursors) > 1
        consumer.is_active = consumer.is_waiting = False

    def wake(self, consumer: Consumer) -> None:
        """Put a reader back in turn: it may have credit again."""
        if consumer.is_waiting:
            consumer.is_waiting = False
            self._turns[consumer] = self._cursors[consumer]

    def credit(self) -> int:
        """Return 0: nothing is taken from a partition, which has room for everything."""
        return 0

    def deliver(self) -> None:
        """Give each reader with credit what is before its cursor."""
        for consumer, cursor in list(self._turns.items()):
            while (credit := consumer.credit()) > 0 and (ready := cursor.ready):
                if not serve(cursor, consumer, min(ready, credit)):
                    break
            else:
                if credit > 0:
                    if cursor.is_behind:
                        self._behind[self._partition.id] = None
                    continue
            consumer.is_waiting = True
            del self._turns[consumer]
