"""Declarations of exclusive queues that another connection has, whose gateway is away.

A client whose gateway has died declares its queues anew at another gateway, while those of before are still there: the
coordinator cannot know at once that their owner is gone. Refused, clients give up: a locked queue is no fault of the
connection to them. So the declaration waits, until the owner's gateway has called again or the queue is gone.
"""

from collections.abc import Callable

from shardmq.coordinator.state.pending_command import PendingCommand, Stage, names_in
from shardmq.topology.commands import DeclareQueue
from shardmq.topology.topology import Topology


class QueueClaims:
    """The declarations that wait for owners.

    Args:
        topology: has the queues.

    Attributes:
        claim: returns whether a queue's owner is away; its queues are deleted then, unless it comes back. The
            coordinator's loop sets it.
    """

    def __init__(self, topology: Topology) -> None:
        self.claim: Callable[[str], bool] = lambda _owner: False
        self._topology = topology
        self._waiting: list[PendingCommand] = []

    def hold(self, pending: PendingCommand) -> bool:
        """Have a command wait that was refused as a queue is locked; returns whether it does.

        It leaves its turn to the deletion.
        """
        command = pending.command
        there = self._topology.queues.get((command.vhost, command.name)) if isinstance(command, DeclareQueue) else None
        if there is None or not there.owner or not self.claim(there.owner):
            return False
        pending.stage = Stage.OWNER
        self._waiting.append(pending)
        return True

    def take(self) -> list[PendingCommand]:
        """The commands that wait, to be begun anew: the rules tell whether they may go on."""
        waiting, self._waiting = self._waiting, []
        for pending in waiting:
            pending.stage, pending.names = Stage.TURN, names_in(pending.command)
        return waiting
