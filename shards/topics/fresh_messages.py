"""What of a partition a group has not been delivered, from an offset on."""

from collections import deque

from shardmq.ranges import RangeSet
from shardmq.shards.topics.cursor import look_for
from shardmq.shards.topics.partition import Partition
from shardmq.shards.topics.tag_filter import TagFilter


class FreshMessages:
    """The fresh messages of a group.

    Args:
        partition: whose.
        offset: of the first one.
        passed: those at or above the offset that are not fresh; None for none.

    Attributes:
        offset: of the message that comes next.
        passed: at or above it, what is acknowledged, or was delayed when the shard was started.
        tags: which messages the group wants; None for all.
    """

    __slots__ = ("_partition", "_runs", "_seen", "offset", "passed", "tags")

    def __init__(self, partition: Partition, offset: int, passed: RangeSet | None) -> None:
        self._partition = partition
        self._runs: deque[tuple[int, int]] = deque()
        self._seen = offset  # below it, what is wanted is in _runs
        self.offset = offset
        self.passed = passed
        self.tags: TagFilter | None = None

    @property
    def is_behind(self) -> bool:
        """Return whether there may be fresh messages, though none is known: more has to be looked through first."""
        return self.tags is not None and not self._runs and self._seen < self._partition.next

    def run(self) -> tuple[int, int]:
        """Return messages in a row, from the next one on; where tags count, it looks through some for them."""
        self._pass()
        end = self._partition.next if self.tags is None else self._wanted(self.tags)
        if self.passed:
            end = min(end, self.passed.first()[0])
        return self._partition.run(self.offset, end)

    def go_to(self, offset: int) -> None:
        """Go on elsewhere: everything from there on is fresh, but what is to be passed."""
        self.offset = self._seen = offset
        self._runs.clear()

    def leave(self, oldest: int) -> None:
        """Go on at an offset at least."""
        if self.passed:
            self.passed.remove(0, oldest)
        self.offset = max(self.offset, oldest)
        self._seen = max(self._seen, oldest)

    def _pass(self) -> None:
        """Pass over what is not fresh, and what is missing."""
        passed, partition = self.passed, self._partition
        while True:
            while passed and passed.first()[0] <= self.offset:
                self.offset = max(self.offset, passed.first()[1])
                passed.remove(0, self.offset)
            if partition.missing is None or self.offset not in partition.missing:
                return
            self.offset, _ = partition.run(self.offset, partition.next)

    def _wanted(self, tags: TagFilter) -> int:
        """Go to the first message that is wanted; return where those end that are."""
        runs = self._runs
        while True:
            while runs and runs[0][1] <= self.offset:
                runs.popleft()
            if not runs:
                found, self._seen = look_for(self._partition, tags, max(self._seen, self.offset))
                runs.extend(found)
            if not runs:
                self.offset = max(self.offset, self._seen)
                return self.offset
            self.offset = max(self.offset, runs[0][0])
            self._pass()
            if self.offset < runs[0][1]:
                return runs[0][1]
