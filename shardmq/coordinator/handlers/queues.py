"""Steps of a command that need a shard: assigning, preparing deletion, dropping.

A topic's command needs the shards of all its queues, and waits for all. Gateways hear of a new queue when its shard has
it. They forget a deleted queue before its shard drops it. So no
message is routed to a queue that its shard does not have.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

from shardmq.bus.messages.coordinator import CommandResult
from shardmq.coordinator.handlers.replicas import TopologyReplicas
from shardmq.coordinator.links.shard import ShardLink
from shardmq.coordinator.state.pending_command import PendingCommand, Stage
from shardmq.errors import NotFound, RequestError, Unavailable
from shardmq.topology.changes import Change, QueueAdded, QueueRemoved
from shardmq.topology.commands import DeclareQueue, DeclareTopic, DeleteQueue, DeleteTopic, ExtendTopic
from shardmq.topology.entities import Queue, partition_names
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
        self._growing: dict[tuple[str, str], None] = {}

    @property
    def coming(self) -> Mapping[str, int]:
        """How many queues are being declared and not in the topology yet, by virtual host."""
        return self._coming

    @property
    def growing(self) -> Collection[tuple[str, str]]:
        """The topics that are getting partitions which are not in the topology yet, by virtual host and name."""
        return self._growing.keys()

    def check_in_service(self, changes: Sequence[Change]) -> None:
        """Refuse to delete a queue that is out of service.

        Raises:
            Unavailable: a queue's stored messages are damaged.
        """
        for queue in self._removed(changes):
            text = self._shards[queue.shard].out_of_service(queue.id)
            if text:
                raise Unavailable(text)

    def assign(
        self, pending: PendingCommand, command: DeclareQueue | DeclareTopic | ExtendTopic, changes: Sequence[Change]
    ) -> None:
        """Have the shards of declared queues confirm that they have them."""
        pending.coming = changes
        added = {change.queue.name: change.queue for change in changes if isinstance(change, QueueAdded)}
        self._coming[command.vhost] += len(added)
        if changes and isinstance(command, ExtendTopic):
            self._growing[command.vhost, command.name] = None
        if isinstance(command, DeclareQueue):
            names = [command.name]
        else:
            names = partition_names(command.name, command.partitions)
        queues = [added.get(name) or self._topology.queue(command.vhost, name) for name in names]
        pending.stage, pending.queues = Stage.SHARD, {queue.id: queue for queue in queues}
        pending.result = queues[0].id if isinstance(command, DeclareQueue) else None
        for queue in queues:
            given = self._topology.policies.given(queue)
            self._shards[queue.shard].assign(given, partial(self._on_assigned, pending, queue.id))

    def prepare_delete(self, pending: PendingCommand, command: DeleteQueue | DeleteTopic) -> None:
        """Ask the shards of queues whether these are unused or empty.

        From the answer on a queue takes no messages, so that this still holds when the rules are asked again. A
        partition does: some of a topic may agree, and another may not.
        """
        topology, vhost = self._topology, command.vhost
        if isinstance(command, DeleteTopic):
            names = partition_names(command.name, len(topology.topic(vhost, command.name).partitions))
        else:
            names = [command.name]
        is_empty = isinstance(command, DeleteQueue) and command.if_empty
        pending.stage, pending.asked = Stage.PREPARE_DELETE, [topology.queue(vhost, name) for name in names]
        pending.queues = {queue.id: queue for queue in pending.asked}
        for queue in pending.asked:
            on_prepared = partial(self._on_delete_prepared, pending, queue.id)
            self._shards[queue.shard].prepare_delete(queue.id, command.if_unused, is_empty, on_prepared)

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

        What is being declared is added to the topology first, to be deleted with the rest.
        """
        if pending.command.vhost != vhost:
            return
        if pending.stage is Stage.SHARD:
            self._ignore_assign(pending)
        elif pending.stage is Stage.PREPARE_DELETE:
            self._cancel_delete(pending)
        else:
            return
        self._progress.refuse(pending, NotFound(f"no vhost '{vhost}': it was deleted meanwhile"))

    def give_up(self, pending: PendingCommand) -> None:
        """End a command whose shards have not all answered in time."""
        queue = next(iter(pending.queues.values()))
        away = f"{self._shards[queue.shard].name} is not reachable, and it has queue '{queue.name}'"
        noun = "queue" if isinstance(pending.command, DeclareQueue | DeleteQueue) else "topic"
        if pending.stage is Stage.PREPARE_DELETE:
            self._cancel_delete(pending)
            self._progress.refuse(pending, Unavailable(f"{away}; delete the {noun} again when the shard is back"))
        else:
            self._ignore_assign(pending)
            self._progress.refuse(pending, Unavailable(f"{away}; declare the {noun} again when the shard is back"))

    def _removed(self, changes: Sequence[Change]) -> list[Queue]:
        return [self._topology.queue(each.vhost, each.name) for each in changes if isinstance(each, QueueRemoved)]

    def _publish(self, pending: PendingCommand) -> None:
        coming, pending.coming = pending.coming, ()
        if coming:
            if isinstance(pending.command, ExtendTopic):
                del self._growing[pending.command.vhost, pending.command.name]
            self._coming[pending.command.vhost] -= sum(isinstance(change, QueueAdded) for change in coming)
            self._replicas.tell(coming, pending.user)

    def _ignore_assign(self, pending: PendingCommand) -> None:
        for queue in pending.queues.values():
            self._shards[queue.shard].ignore_assign(queue.id)
        pending.queues.clear()
        self._publish(pending)

    def _cancel_delete(self, pending: PendingCommand) -> None:
        """Have the queues be as they were, also those whose shards have agreed."""
        for queue in pending.asked:
            self._shards[queue.shard].cancel_delete(queue.id)
        pending.queues.clear()

    def _on_assigned(self, pending: PendingCommand, queue: int, error: RequestError | None) -> None:
        if pending.queues.pop(queue, None) is None:
            return  # the command has ended: another of its shards has refused
        if error is not None:
            self._ignore_assign(pending)
            self._progress.refuse(pending, error)
        elif not pending.queues:
            self._publish(pending)
            self._progress.await_gateways(pending)

    def _on_delete_prepared(self, pending: PendingCommand, queue: int, error: RequestError | None) -> None:
        if pending.queues.pop(queue, None) is None:
            return
        if error is not None:
            self._cancel_delete(pending)
            self._progress.refuse(pending, error)
        elif not pending.queues:
            pending.is_delete_prepared = True
            self._progress.resume(pending)
