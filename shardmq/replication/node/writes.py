"""Commits that the core asked for, until they are on disk: one flush for what came in one turn.

A disk that is full is tried again; meanwhile the core takes no records, and tells the primary.
"""

import logging
from collections.abc import Callable
from typing import Final

from shardmq.replication.core.effects import Commit
from shardmq.replication.core.events import StoreFreed, StoreFull
from shardmq.replication.node.store import ReplicaStore, batch
from shardmq.replication.store.faults import ReplicaFull

ROOM_SECONDS: Final = 1.0
"""Between two looks at a follower's free space, and before a full disk is tried again."""

_log = logging.getLogger(__name__)


class Writes:
    """Commits in order.

    Args:
        group: name of the group, for the log.
        store: of the replica.
        clock: seconds.

    Attributes:
        commits: that are not on disk.
        written: serial number of the last one that is.
    """

    def __init__(self, group: str, store: ReplicaStore, clock: Callable[[], float]) -> None:
        self.commits: list[Commit] = []
        self.written = 0
        self._group = group
        self._store = store
        self._clock = clock
        self._full_at: float | None = None

    @property
    def is_full(self) -> bool:
        """Whether commits wait for room on the disk."""
        return self._full_at is not None

    def write(self) -> list[StoreFull | StoreFreed]:
        """Write all of them; returns what is to be told of the disk.

        Raises:
            StoreUnwritable: a commit may not be on disk. The process must end.
        """
        if self._full_at is not None and self._clock() - self._full_at < ROOM_SECONDS:
            return []
        commits = self.commits
        while commits:
            count = batch(commits)
            try:
                self._store.write(commits[:count])
            except ReplicaFull as fault:
                return self._filled(fault)
            self.written = commits[count - 1].serial
            del commits[:count]
        if self._full_at is None:
            return []
        self._full_at = None
        _log.info("%s: the disk has room again", self._group)
        return [StoreFreed()]

    def _filled(self, fault: ReplicaFull) -> list[StoreFull | StoreFreed]:
        was_full, self._full_at = self.is_full, self._clock()
        if was_full:
            return []
        _log.error("%s: %s", self._group, fault)
        return [StoreFull()]
