"""Steps of commands on transactions.

    commit ─► all shards PREPARE ─┬─ all have answered ─► rules again ─► decided ─► all shards FOLLOW ─► answer
                                  └─ one is away, or still reads ─► refused; nothing is decided

A commit is decided when all shards have read what is staged. One for which they still read is refused in time for the
gateway to hear it, with how far they are: who asks again waits on, and the shards go on where they are. Meanwhile its
timeout begins anew. Once decided, only the one who asked waits for the shards, and not for ever.
"""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import msgspec

from shardmq.coordinator.handlers.queues import CommandProgress, QueueSteps
from shardmq.coordinator.handlers.replicas import TopologyReplicas
from shardmq.coordinator.handlers.transactions import TwoPhaseCommit
from shardmq.coordinator.rules.transactions import TransactionCommand, outcome_of
from shardmq.coordinator.state.coordinator import CoordinatorState
from shardmq.coordinator.state.pending_command import PendingCommand, Stage
from shardmq.errors import NotFound, RequestError, StillPreparing
from shardmq.topology.changes import Change, TransactionBegun
from shardmq.topology.commands import CommitTransaction


class TransactionProgress(CommandProgress, Protocol):
    """How a command on a transaction goes on after a step."""

    def decide(self, pending: PendingCommand, changes: Sequence[Change]) -> None:
        """Have changes written at the end of the pass, before anything that was posted leaves."""

    def leave_turn(self, pending: PendingCommand) -> None:
        """Let the next command on the same name begin: the topology has the effect of this one."""


class TransactionSteps:
    """Carries out commands on transactions.

    Args:
        state: of the coordinator.
        replicas: told what was decided.
        two_phase_commit: has shards prepare transactions and follow decisions.
        queues: knows the topics that are getting partitions.
        progress: called when a step is done.
    """

    def __init__(
        self,
        state: CoordinatorState,
        replicas: TopologyReplicas,
        two_phase_commit: TwoPhaseCommit,
        queues: QueueSteps,
        progress: TransactionProgress,
    ) -> None:
        self._topology = state.topology
        self._store = state.store
        self._transactions = state.transactions
        self._promises = state.promises
        self._replicas = replicas
        self._two_phase_commit = two_phase_commit
        self._queues = queues
        self._progress = progress
        self._following: dict[int, list[PendingCommand]] = {}  # by transaction

    def begin(self, pending: PendingCommand, command: TransactionCommand) -> None:
        """Carry out a command whose turn it is; a commit is prepared first."""
        try:
            self._promises.check(command)
            facts = self._transactions.facts(command, self._two_phase_commit.following, self._queues.growing)
            outcome = outcome_of(self._topology, command, facts)
            self._check(command, outcome.changes)
        except RequestError as error:
            self._progress.refuse(pending, error)
            return
        if isinstance(command, CommitTransaction) and outcome.changes and not pending.is_prepared:
            pending.stage = Stage.PREPARE
            self._two_phase_commit.prepare(command, partial(self._on_prepared, pending))
            return
        pending.result = outcome.result
        self._decide(pending, outcome.changes)
        if isinstance(command, CommitTransaction):
            self._await_shards(pending, command.number)
        else:
            self._progress.await_gateways(pending)

    def followed(self, transaction: int) -> None:
        """Answer a commit once its messages are visible on every shard."""
        if self._two_phase_commit.is_followed(transaction):
            for pending in self._following.pop(transaction, ()):
                self._progress.answer(pending, True)

    def give_up(self, pending: PendingCommand) -> None:
        """End a commit that has waited for shards as long as a gateway does."""
        command = pending.command
        assert isinstance(command, CommitTransaction), "only a commit waits for all shards"
        if pending.stage is Stage.PREPARE:
            error: RequestError = self._two_phase_commit.give_up(command)
            try:
                if isinstance(error, StillPreparing):
                    self._renew(pending, command)
            except RequestError as refusal:
                error = refusal
            self._progress.refuse(pending, error)
            return
        waiting = self._following[command.number]
        waiting.remove(pending)
        if not waiting:
            del self._following[command.number]
        self._progress.answer(pending, False)  # it is decided; the shards follow when they can

    def cancel(self, pending: PendingCommand, vhost: str) -> None:
        """End a commit that is being prepared in a virtual host that is being deleted."""
        command = pending.command
        if pending.stage is Stage.PREPARE and isinstance(command, CommitTransaction) and command.vhost == vhost:
            self._two_phase_commit.ignore(command.number)
            self._progress.refuse(pending, NotFound(f"no vhost '{vhost}': it was deleted meanwhile"))

    def _renew(self, pending: PendingCommand, command: CommitTransaction) -> None:
        """Begin a transaction's timeout anew, as its commit gets on.

        Raises:
            RequestError: too few replicas are in sync, or there is no room for it.
        """
        there = self._topology.transaction(command.vhost, command.name)
        assert there is not None, "the commit that is being prepared has its turn"
        changes = [TransactionBegun(msgspec.structs.replace(there, touched_ms=self._transactions.now_ms))]
        self._check(command, changes)
        self._decide(pending, changes)

    def _check(self, command: TransactionCommand, changes: Sequence[Change]) -> None:
        self._promises.check(command, changes)
        self._store.check_room(changes)

    def _decide(self, pending: PendingCommand, changes: Sequence[Change]) -> None:
        self._progress.decide(pending, changes)
        self._replicas.tell(changes, pending.user)

    def _on_prepared(self, pending: PendingCommand, error: RequestError | None) -> None:
        if error is None:
            pending.is_prepared = True
            self._progress.resume(pending)
        else:
            self._progress.refuse(pending, error)

    def _await_shards(self, pending: PendingCommand, transaction: int) -> None:
        self._progress.leave_turn(pending)
        pending.stage = Stage.FOLLOW
        self._following.setdefault(transaction, []).append(pending)
        self.followed(transaction)
