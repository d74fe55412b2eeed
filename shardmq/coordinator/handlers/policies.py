"""Steps of commands that all shards hear of: policies, and watermarks.

Shards hear which arguments their queues have when policies change. Gateways know the policies themselves. A shard gets
its queues' arguments as policies change them, with the queue when it is declared, and again when they change. It has
them on disk, so that a start needs no coordinator for them.
"""

from collections.abc import Sequence
from functools import partial

from shardmq.bus.messages.shard import AssignQueue
from shardmq.bus.messages.stores import ChangeWatermarks
from shardmq.coordinator.handlers.queues import CommandProgress
from shardmq.coordinator.links.shard import ShardLink
from shardmq.coordinator.state.pending_command import PendingCommand, Stage
from shardmq.errors import RequestError
from shardmq.topology.commands import SetWatermarks
from shardmq.topology.topology import Topology


class PolicySteps:
    """Carries out the part of a command on policies that needs shards.

    Args:
        topology: the authority on what exists; only read.
        shards: the links to all shards, by number.
        progress: called when a step is done.
    """

    def __init__(self, topology: Topology, shards: Sequence[ShardLink], progress: CommandProgress) -> None:
        self._topology = topology
        self._shards = shards
        self._progress = progress

    def spread(self, pending: PendingCommand) -> None:
        """Tell shards what has changed for their queues; the command is answered when those that are there know.

        The others are told with their next session, before any gateway calls them.
        """
        policies, vhost = self._topology.policies, pending.command.vhost
        pending.stage = Stage.SPREAD
        pending.shards = set()
        for shard in self._shards:
            inside = [queue for queue in shard.queues if queue.vhost == vhost]
            changed = [given for queue in inside if (given := policies.given(queue)) is not queue]
            if not changed:
                continue
            for queue in changed:
                shard.add(queue)
            if shard.is_open:
                pending.shards.add(shard.name)
                shard.ask_once(AssignQueue(changed, is_change=True), partial(self._on_changed, pending, shard.name))
        if not pending.shards:
            self._progress.answer(pending, None)

    def set_watermarks(self, pending: PendingCommand, command: SetWatermarks) -> None:
        """Tell shards their watermarks; the command is answered when those that are there know."""
        pending.stage = Stage.SPREAD
        there = [shard for shard in self._shards if shard.is_open]
        pending.shards = {shard.name for shard in there}
        for shard in there:
            message = ChangeWatermarks(command.memory_bytes, command.disk_free_bytes)
            shard.ask_once(message, partial(self._on_changed, pending, shard.name))
        if not there:
            self._progress.answer(pending, None)

    def _on_changed(self, pending: PendingCommand, shard: str, _error: RequestError | None) -> None:
        """A shard knows, or went away, and is told when it is back."""
        pending.shards.discard(shard)
        if not pending.shards and pending.stage is Stage.SPREAD:
            self._progress.answer(pending, None)
