"""New queues that the coordinator may not have on its disk yet.

The coordinator tells a shard of a new queue while it writes it itself. If it dies in between, nobody ever hears of the
queue; and a shard that had it on disk would seem to be newer than the coordinator, which then refuses to start. So the
shard keeps a new queue in memory alone until the coordinator says that it is recorded, or something comes for it:
gateways hear of a queue behind the coordinator's disk.
"""

from collections.abc import Iterable

from shardmq.topology.entities import Queue


class UnrecordedQueues:
    """The new queues of a shard, of which nothing may be written yet.

    Attributes:
        queues: they, by id.
    """

    __slots__ = ("_untold", "queues")

    def __init__(self) -> None:
        self.queues: dict[int, Queue] = {}
        self._untold: set[int] = set()  # of those, what the coordinator has not told in its session

    def __contains__(self, number: object) -> bool:
        return number in self.queues

    def add(self, queue: Queue) -> None:
        """Take in a new queue, or what one is to be now."""
        self.queues[queue.id] = queue

    def begin_session(self) -> None:
        """Note that a coordinator has enrolled the shard: it is about to tell which queues there are."""
        self._untold = set(self.queues)

    def told(self, number: int) -> None:
        """Note that the coordinator that has called knows a queue."""
        self._untold.discard(number)

    def remove(self, number: int) -> None:
        """Forget a queue that is deleted."""
        self.queues.pop(number, None)
        self._untold.discard(number)

    def take_lost(self) -> list[int]:
        """Take out the queues that were lost with an earlier coordinator. Called when the new one has told of all."""
        lost = list(self._untold)
        for number in lost:
            self.remove(number)
        return lost

    def take_recorded(self, last: int) -> list[Queue]:
        """Take out the queues up to an id, which the coordinator has on disk."""
        return self.take(number for number in list(self.queues) if number <= last)

    def take(self, numbers: Iterable[int]) -> list[Queue]:
        """Take out those of some queues that are among these."""
        taken = [self.queues[number] for number in numbers if number in self.queues]
        for queue in taken:
            self.remove(queue.id)
        return taken
