"""Steps of a command that need a shard: assigning, preparing deletion, dropping.

Gateways hear of a new queue when its shard has it. They forget a deleted queue before its shard drops it. So no
message is routed to a queue that its shard does not have.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from shardmq.bus.messages.coordinator import CommandResult
from shardmq.coordinator.handlers.replicas import TopologyReplicas
from shardmq.coordinator.links.shard import ShardLink
from shardmq.coordinator.state.pending_command import PendingCommand, Stage
from shardmq.errors import NotFound, RequestError, Unavailable
from shardmq.topology.changes import Change, QueueAdded, QueueRemoved
from shardmq.topology.commands import DeclareQueue, DeleteQueue
from shardmq.topology.entities import Queue
from shardmq.topology.topology import Topology


class CommandProgress(Protocol):
    """How a command goes on after a step."""

    def resume(self, pending: PendingCommand) -> None:
        """Ask the rules again, now that a command's shard has answered."""

    def await_gateways(self, pending: PendingCommand) -> None:
        """Have a command wait until every gateway has applied the topology as it is now."""

    def answer(self, pending: PendingCommand, result: CommandResult) -> None:
        """End a command that was carried out."""

    def refuse(self, pending: PendingCommand, error: RequestError) -> None:
        """End a command that was not carried out, or that takes too long."""


class QueueSteps:
    """Carries out the part of a command that needs its queue's shard.

    Args:
        topology: the authority on what exists; only read.
        shards: the links to all shards, by number.
        replicas: told of a new queue once its shard has it.
        progress: called when a step is done.
    """

    def __init__(
        self, topology: Topology, shards: Sequence[ShardLink], replicas: TopologyReplicas, progress: CommandProgress
    ) -> None:
        self._topology = topology
        self._shards = shards
        self._replicas = replicas
        self._progress = progress
        self._coming: Counter[str] = Counter()

    @property
    def coming(self) -> Mapping[str, int]:
        """How many queues are being declared and not in the topology yet, by virtual host."""
        return self._coming

    def check_in_service(self, changes: Sequence[Change]) -> None:
        """Refuse to delete a queue that is out of service.

        Raises:
            Unavailable: a queue's stored messages are damaged.
        """
        for queue in self._removed(changes):
            text = self._shards[queue.shard].out_of_service(queue.id)
            if text:
                raise Unavailable(text)

    def assign(self, pending: PendingCommand, command: DeclareQueue, changes: Sequence[Change]) -> None:
        """Have a declared queue's shard confirm that it has the queue."""
        for change in changes:
            if isinstance(change, QueueAdded):
                pending.queue, pending.is_new = change.queue, True
                self._coming[command.vhost] += 1
        queue = pending.queue = pending.queue or self._topology.queue(command.vhost, command.name)
        pending.stage, pending.result = Stage.SHARD, queue.id
        self._shards[queue.shard].assign(queue, partial(self._on_assigned, pending))

    def prepare_delete(self, pending: PendingCommand, command: DeleteQueue) -> None:
        """Ask a queue's shard whether the queue is unused or empty.

        From the answer on the queue takes no messages, so that this still holds when the rules are asked again.
        """
        queue = pending.queue = self._topology.queue(command.vhost, command.name)
        pending.stage = Stage.PREPARE_DELETE
        on_prepared = partial(self._on_delete_prepared, pending)
        self._shards[queue.shard].prepare_delete(queue.id, command.if_unused, command.if_empty, on_prepared)

    def remove(self, pending: PendingCommand, changes: Sequence[Change]) -> None:
        """Note which queues a command removes. Called before the changes are applied."""
        pending.removed = tuple(self._removed(changes))
        for queue in pending.removed:
            self._shards[queue.shard].remove(queue.id)

    def drop(self, pending: PendingCommand) -> None:
        """Have the shards drop the removed queues, which no gateway routes to any more; answer who asked."""
        for queue in pending.removed:
            self._shards[queue.shard].drop(queue.id)
        if pending.stage is not Stage.DONE:
            self._progress.answer(pending, pending.result)

    def cancel(self, pending: PendingCommand, vhost: str) -> None:
        """Refuse a command that waits for a shard, as its virtual host is being deleted.

        A queue that is being declared is added to the topology first, to be deleted with the others.
        """
        queue = pending.queue
        if queue is None or queue.vhost != vhost:
            return
        if pending.stage is Stage.SHARD and isinstance(pending.command, DeclareQueue):
            self._publish(pending)
            self._shards[queue.shard].ignore_assign(queue.id)
        elif pending.stage is Stage.PREPARE_DELETE:
            self._shards[queue.shard].cancel_delete(queue.id)
        else:
            return
        self._progress.refuse(pending, NotFound(f"no vhost '{vhost}': it was deleted meanwhile"))

    def give_up(self, pending: PendingCommand) -> None:
        """End a command whose shard has not answered in time."""
        queue = pending.queue
        assert queue is not None, "a command that waits for a shard has a queue"
        shard = self._shards[queue.shard]
        away = f"{shard.name} is not reachable, and it has queue '{queue.name}'"
        if pending.stage is Stage.PREPARE_DELETE:
            shard.cancel_delete(queue.id)
            self._progress.refuse(pending, Unavailable(f"{away}; delete the queue again when the shard is back"))
        else:
            shard.ignore_assign(queue.id)
            self._publish(pending)
            self._progress.refuse(pending, Unavailable(f"{away}; declare the queue again when the shard is back"))

    def _removed(self, changes: Sequence[Change]) -> list[Queue]:
        return [self._topology.queue(each.vhost, each.name) for each in changes if isinstance(each, QueueRemoved)]

    def _publish(self, pending: PendingCommand) -> None:
        if pending.is_new and pending.queue is not None:
            pending.is_new = False
            self._coming[pending.queue.vhost] -= 1
            self._replicas.tell([QueueAdded(pending.queue)])

    def _on_assigned(self, pending: PendingCommand, error: RequestError | None) -> None:
        self._publish(pending)
        if error is None:
            self._progress.await_gateways(pending)
        else:
            self._progress.refuse(pending, error)

    def _on_delete_prepared(self, pending: PendingCommand, error: RequestError | None) -> None:
        if error is None:
            pending.is_delete_prepared = True
            self._progress.resume(pending)
        else:
            self._progress.refuse(pending, error)
