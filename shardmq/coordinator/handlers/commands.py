"""Commands under way: whose turn it is, what each waits for, its deadline.

    perform ─► TURN ─► rules ─► store ─┬─ declared queue ─► SHARD ─► gateways ─► answer
         (while a queue is declared,   ├─ deleted queue ─► gateways ─► answer; shard   (topics: all their queues)
          others that name it wait)    ├─ committed transaction ─► all shards FOLLOW ─► answer
                                       └─ everything else ─► gateways ─► answer

The shard of a new queue is asked beside the store's write, and keeps it in memory alone until that is done. What waits
for a shard is in queues.py, policies.py and transaction_steps.py, what waits for gateways in replicas.py. Everything
else is told at once, in the order it was decided.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from shardmq.bus.listener import Responder
from shardmq.bus.messages.coordinator import CommandResult, RunCommand
from shardmq.coordinator.handlers.claims import QueueClaims
from shardmq.coordinator.handlers.policies import PolicySteps
from shardmq.coordinator.handlers.queues import QueueSteps
from shardmq.coordinator.handlers.replicas import TopologyReplicas
from shardmq.coordinator.handlers.transaction_steps import TransactionSteps
from shardmq.coordinator.handlers.transactions import TwoPhaseCommit
from shardmq.coordinator.rules.changes import changes_for
from shardmq.coordinator.rules.queues import QueuePlacement
from shardmq.coordinator.rules.transactions import end_all
from shardmq.coordinator.state.coordinator import CoordinatorState
from shardmq.coordinator.state.pending_command import PendingCommand, Stage, names_in
from shardmq.coordinator.state.turns import Turns
from shardmq.errors import RequestError, ResourceLocked, Unavailable
from shardmq.limits import DECLARE_SECONDS
from shardmq.runtime.clock import ClockNote
from shardmq.topology.changes import Change, QueueAdded, QueueRemoved, TransactionEnded
from shardmq.topology.commands import (
    AbortTransaction,
    BeginTransaction,
    Command,
    CommitTransaction,
    DeclareQueue,
    DeclareTopic,
    DeletePolicy,
    DeleteQueue,
    DeleteTopic,
    DeleteVhost,
    ExtendTopic,
    PutPolicy,
    SetWatermarks,
)

SHARD_SECONDS: Final = DECLARE_SECONDS - 3
"""A command waits this long for a shard. The gateway hears the reason before it gives up itself."""

ANSWER_SECONDS: Final = DECLARE_SECONDS - 1
"""A command waits this long for everything. Links notice a dead gateway earlier than that."""

CONVERSATION_COMMANDS: Final = 4
"""So many commands under way may be those of clients that wait for each answer before they go on."""

COMMANDS_MAX: Final = 20_000
"""Commands under way at once. They wait in memory, and past some thousands they would not be done in time."""


class CommandExecutor:
    """Carries out commands, one after the other where they name the same thing.

    Messages are only posted here. The owner flushes after `settle`, which puts all changes of the pass on disk.

    Args:
        state: of the coordinator.
        replicas: the gateways' copies of the topology.
        two_phase_commit: has shards prepare transactions and follow decisions.

    Attributes:
        is_frozen: no command is begun and no queue dropped, for the moment in which a backup is taken.
        claims: declarations that wait for exclusive queues of owners that may be gone.
    """

    def __init__(self, state: CoordinatorState, replicas: TopologyReplicas, two_phase_commit: TwoPhaseCommit) -> None:
        self._topology = state.topology
        self._store = state.store
        self._shards = state.shards
        self._transactions = state.transactions
        self._replicas = replicas
        self._two_phase_commit = two_phase_commit
        self._queues = QueueSteps(state.topology, state.shards, replicas, self)
        self._policies = PolicySteps(state.topology, state.shards, self)
        self._steps = TransactionSteps(state, replicas, two_phase_commit, self._queues, self)
        self._next_queue = state.identity.first_queue
        self._promises = state.promises
        self._returning = state.returning
        self.is_frozen = False
        self.claims = QueueClaims(state.topology)
        self._pending: dict[PendingCommand, None] = {}
        self._turns = Turns()
        self._runnable: deque[PendingCommand] = deque()
        self._deleting: set[int] = set()  # queues that the coordinator itself deletes
        self._unwritten: list[Change] = []
        self._dropped: list[int] = []  # by their shards; not written yet

    @property
    def is_conversing(self) -> bool:
        """Whether so few commands are under way that somebody may wait for each before the next."""
        return len(self._pending) <= CONVERSATION_COMMANDS

    @property
    def is_busy(self) -> bool:
        """Whether commands are under way."""
        return bool(self._pending)

    def perform(self, responder: Responder[CommandResult], request: RunCommand, now: float) -> None:
        """Carry out a gateway's command and answer it, in this pass or a later one.

        Args:
            responder: the gateway.
            request: what is to be done, and for whom.
            now: monotonic seconds.
        """
        if len(self._pending) >= COMMANDS_MAX:
            text = f"the coordinator has {COMMANDS_MAX} commands under way; try again later"
            responder.refuse(Unavailable.code, text)
            return
        command = request.command
        self._accept(PendingCommand(responder, command, names_in(command), now, request.user))

    def perform_own(self, command: Command, now: float) -> PendingCommand:
        """Carry out a command of the coordinator itself; the result tells what became of it, once its stage is DONE."""
        pending = PendingCommand(None, command, names_in(command), now)
        self._accept(pending)
        return pending

    def delete_queue(self, queue_id: int, if_unused: bool, now: float) -> None:
        """Delete a queue for the coordinator itself: its shard calls it unused, or its owner is gone.

        Args:
            queue_id: of the queue; nothing is done where there is none.
            if_unused: only if its shard still finds it unused.
            now: monotonic seconds.
        """
        queue = self._topology.queue_by_id(queue_id)
        if queue is None or queue_id in self._deleting:
            return
        self._deleting.add(queue_id)
        command = DeleteQueue(queue.vhost, queue.name, if_unused, queue=queue_id)
        self._accept(PendingCommand(None, command, names_in(command), now))

    def tick(self, now: float) -> None:
        """Give up commands that took too long, and abort transactions that have expired."""
        if self._dropped:
            self._write()
        self._transactions.tick(now)
        for there in self._transactions.take_overdue():
            command = AbortTransaction(there.vhost, there.name, there.number, "", has_expired=True)
            self._accept(PendingCommand(None, command, names_in(command), now))
        for pending in self.claims.take():
            self._accept(pending)
        for pending in list(self._pending):
            waited = now - pending.since
            if waited > SHARD_SECONDS and pending.stage in (Stage.SHARD, Stage.PREPARE_DELETE):
                self._queues.give_up(pending)
            elif waited > SHARD_SECONDS and pending.stage in (Stage.PREPARE, Stage.FOLLOW):
                self._steps.give_up(pending)
            elif waited > SHARD_SECONDS and pending.stage is Stage.SPREAD:
                self.answer(pending, None)  # it is decided; the shards that are busy hear of it when they can
            elif waited > ANSWER_SECONDS and pending.stage is Stage.TURN:
                text = "an earlier command on the same name is still under way; try again later"
                self.refuse(pending, Unavailable(text))
            elif waited > ANSWER_SECONDS and pending.stage is Stage.GATEWAYS:
                gateway = self._replicas.laggard(pending.version)
                self.refuse(pending, Unavailable(f"{gateway} has not taken in the change yet; try again later"))

    def settle(self) -> None:
        """Carry on every command as far as it goes now, and put the changes on disk."""
        followed = self._two_phase_commit.take_followed()
        for transaction, _ in followed:
            self._steps.followed(transaction)
        while not self.is_frozen and (self._runnable or self._drop_applied()):
            while self._runnable:
                self._begin(self._runnable.popleft())
        self._replicas.post_changes()
        changes, self._unwritten = self._unwritten, []
        self._dropped += [queue for shard in self._shards for queue in shard.take_dropped()]
        note = self._transactions.take_note()
        if changes or followed or note is not None:
            for shard in self._shards:
                shard.send_ahead()
            self._write(changes, followed, note)
            for shard in self._shards:
                shard.recorded()
        self._transactions.written()

    def _write(
        self, changes: Sequence[Change] = (), followed: Sequence[tuple[int, int]] = (), note: ClockNote | None = None
    ) -> None:
        """Write to disk, and with it which deleted queues are dropped: of those alone nobody waits for a flush.

        A shard that is told again to drop a queue has nothing to do.
        """
        dropped, self._dropped = self._dropped, []
        self._store.write(changes, dropped, followed, note)
        self._promises.written()

    def resume(self, pending: PendingCommand) -> None:
        """Ask the rules again, now that a command's shards have answered."""
        pending.stage = Stage.TURN
        self._runnable.append(pending)

    def await_gateways(self, pending: PendingCommand) -> None:
        """Have a command wait until every gateway has applied the topology as it is now."""
        self.leave_turn(pending)
        if pending.removed and pending.responder is not None:  # who asked drops the queue itself, to count it
            rest = PendingCommand(None, pending.command, (), pending.since, removed=pending.removed)
            pending.removed = ()
            self._replicas.wait(rest)
            rest.stage = Stage.DONE
        self._replicas.wait(pending)

    def decide(self, pending: PendingCommand, changes: Sequence[Change]) -> None:
        """Have changes written at the end of the pass, before anything that was posted leaves."""
        self._unwritten += changes
        self._promises.decided(pending, changes)
        self._transactions.take_in(changes)
        for change in changes:
            if isinstance(change, TransactionEnded):
                self._two_phase_commit.follow(change)
            elif isinstance(change, QueueAdded):
                self._next_queue = change.queue.id + 1

    def leave_turn(self, pending: PendingCommand) -> None:
        """Let the next command on the same name begin: the topology has the effect of this one."""
        if pending.names:
            self._runnable += self._turns.leave(pending)

    def answer(self, pending: PendingCommand, result: CommandResult) -> None:
        """End a command that was carried out, unless too few replicas have what it did by now."""
        if self._promises.may_lack(pending.command):
            self.refuse(pending, Unavailable(self._promises.refusal))
            return
        if pending.responder is not None and pending.responder.peer in self._replicas:
            pending.responder.answer(result)
        self._end(pending)

    def refuse(self, pending: PendingCommand, error: RequestError) -> None:
        """End a command that was not carried out, or that takes too long."""
        if pending.responder is not None and pending.responder.peer in self._replicas:
            pending.responder.refuse(error.code, error.text)
        pending.error = error
        self._end(pending)

    def _accept(self, pending: PendingCommand) -> None:
        self._pending[pending] = None
        if self._turns.enter(pending):
            self._runnable.append(pending)

    def _begin(self, pending: PendingCommand) -> None:
        if pending.stage is not Stage.TURN:
            return  # its time ran out in the queue
        command = pending.command
        if isinstance(command, BeginTransaction | CommitTransaction | AbortTransaction):
            self._steps.begin(pending, command)
            return
        try:
            changes = self._changes_for(command)
            if isinstance(command, DeleteVhost):  # nothing refuses it any more
                self._cancel_inside(command.vhost)
                changes = self._changes_for(command)  # with the queues that were being declared
        except RequestError as error:
            if isinstance(error, ResourceLocked) and self.claims.hold(pending):
                self.leave_turn(pending)
            else:
                self.refuse(pending, error)
            return
        if isinstance(command, DeleteQueue | DeleteTopic) and not pending.is_delete_prepared:
            if command.if_unused or (isinstance(command, DeleteQueue) and command.if_empty):
                self._queues.prepare_delete(pending, command)
                return
        elif isinstance(command, DeleteVhost):
            changes = [*end_all(self._topology, command.vhost, self._transactions.now_ms), *changes]
        self.decide(pending, changes)
        if isinstance(command, DeclareQueue | DeclareTopic | ExtendTopic):
            self._queues.assign(pending, command, changes)
        else:
            self._queues.remove(pending, changes)
            self._tell(pending, changes)
            self.await_gateways(pending)

    def _tell(self, pending: PendingCommand, changes: Sequence[Change]) -> None:
        """Tell what a command has changed. What goes along with a queue is the broker's own doing, as in RabbitMQ."""
        if not isinstance(pending.command, DeleteQueue):
            self._replicas.tell(changes, pending.user)
            return
        for change in changes:
            self._replicas.tell([change], pending.user if isinstance(change, QueueRemoved) else "")

    def _changes_for(self, command: Command) -> list[Change]:
        """What a command changes.

        Raises:
            RequestError: by the rules, for lack of room or of replicas in sync, or as a queue is out of service.
        """
        next_transaction = self._transactions.next_number
        placement = QueuePlacement(self._next_queue, len(self._shards), self._queues.coming, next_transaction)
        self._promises.check(command)
        changes = changes_for(self._topology, command, placement)
        self._promises.check(command, changes)
        self._store.check_room(changes)
        self._queues.check_in_service(changes)
        return changes

    def _cancel_inside(self, vhost: str) -> None:
        """End the commands that wait for shards inside a virtual host that is being deleted."""
        for pending in list(self._pending):
            if isinstance(pending.command, CommitTransaction):
                self._steps.cancel(pending, vhost)
            else:
                self._queues.cancel(pending, vhost)

    def _drop_applied(self) -> bool:
        """Carry on the commands that every gateway has applied; returns whether there were any."""
        applied = self._replicas.take_applied() if self._returning.is_over else []
        for pending in applied:
            if isinstance(pending.command, PutPolicy | DeletePolicy) and pending.stage is not Stage.DONE:
                self._policies.spread(pending)
            elif isinstance(pending.command, SetWatermarks):
                self._policies.set_watermarks(pending, pending.command)
            else:
                self._queues.drop(pending)
        return bool(applied)

    def _end(self, pending: PendingCommand) -> None:
        self.leave_turn(pending)
        pending.stage = Stage.DONE
        if pending.responder is None and isinstance(pending.command, DeleteQueue):
            self._deleting.discard(pending.command.queue)
        elif pending.responder is None and isinstance(pending.command, AbortTransaction):
            self._transactions.expired(pending.command.number)
        del self._pending[pending]
