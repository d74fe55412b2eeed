"""What administrators want done with hosts and groups, written to etcd, from where it is carried out."""

from collections.abc import Callable
from typing import Any, Final

from shardmq.errors import RequestError, Unavailable
from shardmq.replication.directory import PrimaryDirectory
from shardmq.replication.etcd.errors import EtcdError
from shardmq.replication.etcd.values import HOSTS, WISHES, Kind
from shardmq.replication.planning.wishes import draining, moving, transferring

ANSWER_SECONDS: Final = 5.0
"""For etcd to take a wish."""

Done = Callable[[RequestError | None], object]
"""Called once it is known whether etcd has it."""


class HostOperations:
    """Drains, transfers and moves, as `shardmq host` and `shardmq shard` have them.

    Args:
        directory: that knows what etcd has, and writes to it.
    """

    def __init__(self, directory: PrimaryDirectory) -> None:
        self._directory = directory

    def drain(self, host: str, is_draining: bool, done: Done) -> None:
        """Have everything that a host has move to others, or let it have replicas again.

        Raises:
            NotFound: there is no such host.
        """
        self._change(HOSTS, host, draining(self._directory.primaries.cluster(), host, is_draining), done)

    def transfer(self, group: str, host: str, done: Done) -> None:
        """Have a group led by another host.

        Raises:
            NotFound: there is no such group or host.
            PreconditionFailed: the host is not in sync.
        """
        self._change(WISHES, group, transferring(self._directory.primaries.cluster(), group, host), done)

    def move(self, group: str, source: str, target: str, done: Done) -> None:
        """Have a replica of a group on another host.

        Raises:
            NotFound: there is no such group or host.
            PreconditionFailed: the one host has no replica, or the other has one or drains.
        """
        self._change(WISHES, group, moving(self._directory.primaries.cluster(), group, source, target), done)

    def _change(self, kind: Kind[Any], name: str, edit: Callable[[Any], Any], done: Done) -> None:
        def changed(fault: EtcdError | None) -> None:
            done(None if fault is None else Unavailable(f"etcd does not take it: {fault}; ask again"))

        self._directory.change(kind, name, edit, ANSWER_SECONDS, changed)
