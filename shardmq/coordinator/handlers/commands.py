"""Commands under way: whose turn it is, what each waits for, until when.

    perform ─► TURN ─► rules ─► store ─┬─ declared queue ─► SHARD ─► gateways ─► answer
         (while a queue is declared,   ├─ deleted queue ─► gateways ─► SHARD ─► answer
          others that name it wait)    ├─ committed transaction ─► all shards FOLLOW ─► answer
                                       └─ everything else ─► gateways ─► answer

A new queue is told to the gateways when its shard has it, a deleted one is taken from them before its shard drops it:
no message is routed to a queue that its shard does not hold. Everything else is told at once, in the order it was
decided. A queue to be deleted if it is unused or empty is first condemned by its shard, which alone knows: from then on
it takes in nothing, so that it still is what it was when the rules are asked. A transaction to be committed is first
prepared by all shards. Once it is decided, nobody waits for the shards but the one who asked, and that not for ever.

What is said during a pass is only posted, the changes of all its commands as one version; the owner flushes after
`settle`, which has put it on disk.
"""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from shardmq.bus.listener import Peer
from shardmq.bus.messages.base import Answer, BusMessage, Refusal
from shardmq.bus.messages.coordinator import Changes, Snapshot
from shardmq.coordinator.handlers.transactions import TwoPhaseCommit
from shardmq.coordinator.links.shard import ShardLink
from shardmq.coordinator.rules.changes import changes_for
from shardmq.coordinator.rules.queues import QueuePlacement
from shardmq.coordinator.rules.shard_identity import Founding
from shardmq.coordinator.rules.transactions import TransactionCommand, end_all, outcome_of
from shardmq.coordinator.state.pending_command import Name, PendingCommand, Stage, name_in
from shardmq.coordinator.state.transactions import TransactionState
from shardmq.coordinator.storage.store import Store
from shardmq.errors import NotFound, RequestError, Unavailable
from shardmq.limits import DECLARE_SECONDS
from shardmq.topology.changes import Change, QueueAdded, QueueRemoved, TransactionEnded
from shardmq.topology.commands import (
    AbortTransaction,
    BeginTransaction,
    Command,
    CommitTransaction,
    DeclareQueue,
    DeleteQueue,
    DeleteVhost,
)
from shardmq.topology.topology import Topology

SHARD_SECONDS: Final = DECLARE_SECONDS - 3
"""A command waits this long for a shard; early enough that the gateway hears why, and does not just give up."""

ANSWER_SECONDS: Final = DECLARE_SECONDS - 1
"""A command waits this long for everything; longer than a link's silence, so that dead gateways are dropped before."""

RETURN_SECONDS: Final = 2.0
"""A coordinator that was restarted answers nothing for so long: gateways that live on call again within 0.6 s, and
until they do, they route by what they knew."""

COMMANDS_MAX: Final = 20_000
"""Commands under way at once; they wait in memory, and past some thousands they would not be done in time anyhow."""


class CommandExecutor:
    """See the module.

    Args:
        topology: the authority; only the desk changes it.
        store: where changes go before they are told.
        shards: the links to all shards, by number.
        addresses: the shards' addresses, for gateways.
        registry: knows of transactions what is not in the topology.
        endings: has shards prepare and follow.
        founding: whose the broker is, and the id of the next new queue.
        silent_until: nothing is answered before, monotonic seconds.

    Attributes:
        is_frozen: no command is begun, and nothing is dropped, for a moment (backup.py).
    """

    def __init__(
        self,
        topology: Topology,
        store: Store,
        shards: list[ShardLink],
        addresses: Iterable[str],
        registry: TransactionState,
        endings: TwoPhaseCommit,
        founding: Founding,
        silent_until: float,
    ) -> None:
        self._topology = topology
        self._store = store
        self._shards = shards
        self._addresses = list(addresses)
        self._registry = registry
        self._endings = endings
        self._founding = founding
        self._next_queue = founding.first_queue
        self._silent_until = silent_until
        self.is_frozen = False
        self._is_silent = True
        self._gateways: dict[Peer, int] = {}  # the version each has reached
        self._tasks: dict[PendingCommand, None] = {}
        self._turns: dict[Name, deque[PendingCommand]] = {}
        self._runnable: deque[PendingCommand] = deque()
        self._syncing: deque[PendingCommand] = deque()  # in order of their versions
        self._following: dict[int, list[PendingCommand]] = {}  # by transaction
        self._coming: Counter[str] = Counter()  # by virtual host, queues that are not in the topology yet
        self._dismissed: set[int] = set()  # queues whose deletion the coordinator wants itself
        self._untold: list[Change] = []  # applied in this pass
        self._unwritten: list[Change] = []

    @property
    def is_busy(self) -> bool:
        """Whether commands are under way."""
        return bool(self._tasks)

    @property
    def gateways(self) -> int:
        """How many are connected."""
        return len(self._gateways)

    # --- what happens -------------------------------------------------------------------------------------------------

    def greet(self, peer: Peer) -> None:
        """A gateway is here: it gets the whole topology, and every change from now on."""
        if peer in self._gateways:
            return
        self._post_changes()  # they are in the snapshot
        self._gateways[peer] = -1
        fields = self._topology.snapshot()
        founding = self._founding
        peer.post(
            Snapshot(*fields[:7], self._addresses, list(fields.transactions), founding.broker, founding.generation)
        )

    def lose(self, peer: Peer) -> None:
        """A gateway is gone: nobody waits for it any more, and its commands are carried out without an answer."""
        self._gateways.pop(peer, None)

    def synced(self, peer: Peer, version: int) -> None:
        """A gateway routes by that version."""
        if peer in self._gateways:
            self._gateways[peer] = version

    def perform(self, peer: Peer, request: int, command: Command, now: float) -> None:
        """A gateway asks for something; it is answered in the course of time."""
        if len(self._tasks) >= COMMANDS_MAX:
            text = f"the coordinator has {COMMANDS_MAX} commands under way; try again later"
            peer.post(Refusal(request, Unavailable.code, text))
            return
        self._accept(PendingCommand(peer, request, command, name_in(command), now))

    def dismiss(self, queue_id: int, if_unused: bool, now: float) -> None:
        """The coordinator itself wants a queue deleted, if it is there: a shard calls it unused, its owner is gone."""
        queue = self._topology.queue_by_id(queue_id)
        if queue is None or queue_id in self._dismissed:
            return
        self._dismissed.add(queue_id)
        command = DeleteQueue(queue.vhost, queue.name, if_unused, queue=queue_id)
        self._accept(PendingCommand(None, 0, command, name_in(command), now))

    def tick(self, now: float) -> None:
        """Give up what took too long, and end transactions whose time is over."""
        self._is_silent = now < self._silent_until
        self._registry.tick(now)
        for there in self._registry.take_overdue():
            command = AbortTransaction(there.vhost, there.name, there.number, "", has_expired=True)
            self._accept(PendingCommand(None, 0, command, name_in(command), now))
        for task in list(self._tasks):
            waited = now - task.since
            if task.stage in (Stage.SHARD, Stage.CONDEMN) and waited > SHARD_SECONDS:
                self._give_up_shard(task)
            elif task.stage in (Stage.PREPARE, Stage.FOLLOW) and waited > SHARD_SECONDS:
                self._give_up_shards(task)
            elif task.stage is Stage.TURN and waited > ANSWER_SECONDS:
                self._refuse(
                    task, Unavailable("an earlier command on the same name is still under way; try again later")
                )
            elif task.stage is Stage.GATEWAYS and waited > ANSWER_SECONDS:
                self._refuse(
                    task, Unavailable(f"{self._laggard(task.version)} has not taken in the change yet; try again later")
                )

    def settle(self) -> None:
        """Carry on everything as far as it goes now, and put it on disk; what was posted may be flushed then."""
        concluded = self._endings.take_concluded()
        for transaction, _ in concluded:
            self._answer_followers(transaction)
        while not self.is_frozen and (self._runnable or self._sync()):
            while self._runnable:
                self._begin(self._runnable.popleft())
        self._post_changes()
        changes, self._unwritten = self._unwritten, []
        dropped = [queue for shard in self._shards for queue in shard.take_dropped()]
        self._store.write(changes, dropped, concluded, self._registry.take_note())
        self._registry.written()

    # --- a command's way ----------------------------------------------------------------------------------------------

    def _accept(self, task: PendingCommand) -> None:
        self._tasks[task] = None
        turn = self._turns.setdefault(task.name, deque()) if task.name else deque[PendingCommand]()
        turn.append(task)
        if turn[0] is task:
            self._runnable.append(task)

    def _begin(self, task: PendingCommand) -> None:
        if task.stage is not Stage.TURN:
            return  # its time ran out in the queue
        command = task.command
        if isinstance(command, BeginTransaction | CommitTransaction | AbortTransaction):
            self._transact(task, command)
            return
        if isinstance(command, DeleteVhost):
            self._clear_way(command)
        try:
            changes = changes_for(
                self._topology, command, QueuePlacement(self._next_queue, len(self._shards), self._coming)
            )
            self._store.check_room(changes)
            self._check_in_service(changes)
        except RequestError as refusal:
            self._refuse(task, refusal)
            return
        if isinstance(command, DeleteQueue) and (command.if_unused or command.if_empty) and not task.is_condemned:
            self._condemn(task, command)
            return
        if isinstance(command, DeleteVhost):
            changes = [*end_all(self._topology, command.vhost, self._registry.now_ms), *changes]
        self._decide(changes)
        if isinstance(command, DeclareQueue):
            self._declare(task, command, changes)
            return
        task.removed = tuple(
            [self._topology.queue(change.vhost, change.name) for change in changes if isinstance(change, QueueRemoved)]
        )
        for queue in task.removed:
            self._shards[queue.shard].take_away(queue.id)
        self._tell(changes)
        self._await_gateways(task)

    def _check_in_service(self, changes: Sequence[Change]) -> None:
        """Make sure that nothing is deleted that cannot be read."""
        for change in changes:
            if isinstance(change, QueueRemoved):
                queue = self._topology.queue(change.vhost, change.name)
                text = self._shards[queue.shard].out_of_service(queue.id)
                if text:
                    raise Unavailable(text)

    def _decide(self, changes: Sequence[Change]) -> None:
        """These will be on disk before anything leaves."""
        self._unwritten += changes
        self._registry.take_in(changes)
        for change in changes:
            if isinstance(change, TransactionEnded):
                self._endings.conclude(change)

    def _condemn(self, task: PendingCommand, command: DeleteQueue) -> None:
        queue = task.queue = self._topology.queue(command.vhost, command.name)
        task.stage = Stage.CONDEMN
        on_condemned = partial(self._on_condemned, task)
        self._shards[queue.shard].condemn(queue.id, command.if_unused, command.if_empty, on_condemned)

    def _on_condemned(self, task: PendingCommand, refusal: Refusal | None) -> None:
        if refusal is not None:
            self._answer(task, Refusal(task.request, refusal.code, refusal.text))
            return
        task.stage, task.is_condemned = Stage.TURN, True
        self._runnable.append(task)

    def _clear_way(self, command: DeleteVhost) -> None:
        """A virtual host goes with the queues that are being declared there: they are told, to go with the others, and
        nobody waits for their shards any more. So do transactions that are being prepared there.
        """
        for task in list(self._tasks):
            prepared = task.command
            if isinstance(prepared, CommitTransaction) and task.stage is Stage.PREPARE:
                if prepared.vhost == command.vhost:
                    self._endings.give_up(prepared.number)
                    self._refuse(task, NotFound(f"no vhost '{command.vhost}': it was deleted meanwhile"))
                continue
            queue = task.queue
            if queue is not None and queue.vhost == command.vhost and task.stage in (Stage.SHARD, Stage.CONDEMN):
                if isinstance(task.command, DeclareQueue):
                    self._publish_queue(task)
                    self._shards[queue.shard].give_up(queue.id)
                    self._refuse(task, NotFound(f"no vhost '{command.vhost}': it was deleted meanwhile"))
                elif task.stage is Stage.CONDEMN:
                    self._shards[queue.shard].pardon(queue.id)
                    self._refuse(task, NotFound(f"no vhost '{command.vhost}': it was deleted meanwhile"))

    def _transact(self, task: PendingCommand, command: TransactionCommand) -> None:
        try:
            now = self._registry.circumstances(command, self._endings.concluding)
            outcome = outcome_of(self._topology, command, now)
            self._store.check_room(outcome.changes)
        except RequestError as refusal:
            self._refuse(task, refusal)
            return
        if isinstance(command, CommitTransaction) and outcome.changes and not task.is_prepared:
            task.stage = Stage.PREPARE
            self._endings.prepare(command, partial(self._on_prepared, task))
            return
        task.result = outcome.result
        self._decide(outcome.changes)
        self._tell(outcome.changes)
        if isinstance(command, CommitTransaction):
            self._await_shards(task, command.number)
        else:
            self._await_gateways(task)

    def _on_prepared(self, task: PendingCommand, refusal: RequestError | None) -> None:
        if refusal is not None:
            self._refuse(task, refusal)
            return
        task.stage, task.is_prepared = Stage.TURN, True
        self._runnable.append(task)

    def _await_shards(self, task: PendingCommand, transaction: int) -> None:
        self._leave_turn(task)
        task.stage = Stage.FOLLOW
        self._following.setdefault(transaction, []).append(task)
        self._answer_followers(transaction)

    def _answer_followers(self, transaction: int) -> None:
        """Who waits for a commit to be visible everywhere hears that it is, if it is."""
        if self._endings.has_followed(transaction):
            for task in self._following.pop(transaction, ()):
                self._answer(task, Answer(task.request, True))

    def _give_up_shards(self, task: PendingCommand) -> None:
        command = task.command
        assert isinstance(command, CommitTransaction)
        if task.stage is Stage.PREPARE:
            shard = self._endings.give_up(command.number)
            self._refuse(
                task,
                Unavailable(
                    f"{shard} is not reachable, and every shard has to say what it has of "
                    f"transaction '{command.name}'; nothing is decided, commit it again when "
                    "the shard is back"
                ),
            )
            return
        waiting = self._following[command.number]
        waiting.remove(task)
        if not waiting:
            del self._following[command.number]
        self._answer(task, Answer(task.request, False))  # it is decided; the shards follow when they can

    def _declare(self, task: PendingCommand, command: DeclareQueue, changes: list[Change]) -> None:
        for change in changes:
            if isinstance(change, QueueAdded):
                task.queue, task.is_new = change.queue, True
                self._next_queue = change.queue.id + 1
                self._coming[command.vhost] += 1
        queue = task.queue = task.queue or self._topology.queue(command.vhost, command.name)
        task.stage, task.result = Stage.SHARD, queue.id
        self._shards[queue.shard].give(queue, partial(self._on_given, task))

    def _on_given(self, task: PendingCommand, refusal: Refusal | None) -> None:
        self._publish_queue(task)
        if refusal is None:
            self._await_gateways(task)
        else:
            self._answer(task, Refusal(task.request, refusal.code, refusal.text))

    def _publish_queue(self, task: PendingCommand) -> None:
        if task.is_new and task.queue is not None:
            task.is_new = False
            self._coming[task.queue.vhost] -= 1
            self._tell([QueueAdded(task.queue)])

    def _tell(self, changes: list[Change]) -> None:
        if not changes:
            return
        for change in changes:
            self._topology.apply(change)
        if not self._untold:
            self._topology.version += 1
        self._untold += changes

    def _post_changes(self) -> None:
        """Tell the gateways what this pass has changed: one version, whatever the number of commands (a thousand
        declarations in one pass take a third of the time that a thousand versions would).
        """
        if not self._untold:
            return
        message = Changes(self._topology.version, self._untold)
        self._untold = []
        for peer in self._gateways:
            peer.post(message)

    def _await_gateways(self, task: PendingCommand) -> None:
        """Also where nothing changed: a gateway may still be taking in the change that made it so."""
        self._leave_turn(task)
        task.stage, task.version = Stage.GATEWAYS, self._topology.version
        self._syncing.append(task)

    def _sync(self) -> bool:
        """Carry on the commands that every gateway has followed; returns whether there were any."""
        if self._is_silent:
            return False
        reached = min(self._gateways.values(), default=self._topology.version)
        found = False
        while self._syncing and self._syncing[0].version <= reached:
            found = True
            task = self._syncing.popleft()
            self._drop(task)
        return found

    def _drop(self, task: PendingCommand) -> None:
        """No gateway routes to what was removed any more: the shards may let go of it, also where the one who asked was
        told that it takes too long.
        """
        if task.stage is Stage.DONE:
            for queue in task.removed:
                self._shards[queue.shard].drop(queue.id)
            return
        if isinstance(task.command, DeleteQueue):
            (task.queue,) = task.removed
            task.stage = Stage.SHARD
            self._shards[task.queue.shard].drop(task.queue.id, partial(self._on_dropped, task))
            return
        for queue in task.removed:
            self._shards[queue.shard].drop(queue.id)
        self._answer(task, Answer(task.request, task.result))

    def _on_dropped(self, task: PendingCommand, count: int | Refusal) -> None:
        if isinstance(count, Refusal):
            self._answer(task, Refusal(task.request, count.code, count.text))
        else:
            self._answer(task, Answer(task.request, count))

    def _give_up_shard(self, task: PendingCommand) -> None:
        assert task.queue is not None
        shard = self._shards[task.queue.shard]
        away = f"{shard.name} is not reachable, and queue '{task.queue.name}' is to be there"
        if task.stage is Stage.CONDEMN:
            shard.pardon(task.queue.id)
            self._refuse(task, Unavailable(f"{away}; delete it again when the shard is back"))
        elif isinstance(task.command, DeleteQueue):
            shard.answer_no_longer(task.queue.id)
            self._answer(task, Answer(task.request, 0))  # it is deleted; how many messages it had, nobody can say now
        else:
            shard.give_up(task.queue.id)
            self._publish_queue(task)
            self._refuse(task, Unavailable(f"{away}; declare it again when the shard is back"))

    def _refuse(self, task: PendingCommand, refusal: RequestError) -> None:
        self._answer(task, Refusal(task.request, refusal.code, refusal.text))

    def _answer(self, task: PendingCommand, message: BusMessage) -> None:
        self._leave_turn(task)
        task.stage = Stage.DONE
        if task.peer is not None and task.peer in self._gateways:
            task.peer.post(message)
        elif task.peer is None and isinstance(task.command, DeleteQueue):
            self._dismissed.discard(task.command.queue)
        elif task.peer is None and isinstance(task.command, AbortTransaction):
            self._registry.expired(task.command.number)
        del self._tasks[task]

    def _leave_turn(self, task: PendingCommand) -> None:
        """Whoever names the same thing may go on: what this command did is in the topology."""
        if task.name is None:
            return
        turn = self._turns[task.name]
        was_first = turn[0] is task
        turn.remove(task)
        if not turn:
            del self._turns[task.name]
        elif was_first:
            self._runnable.append(turn[0])
        task.name = None

    def _laggard(self, version: int) -> str:
        return next((peer.name for peer, reached in self._gateways.items() if reached < version), "a gateway")
