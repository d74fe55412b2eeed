"""Commits that are being prepared: what is staged for them is read, to see that it is what was written.

    Prepare ──► a slice, in turns with others ──► … ──► all was read ──► answered
       ▲              │
       └── again ─────┘   who asked last is answered

Sealed attempts do not change, so what was read counts as read while this process lives: a commit that is given up and
asked for again goes on where it was, and what was given up is read once at most.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final

from shardmq.bus.listener import Responder
from shardmq.bus.messages.transactions import PreparationProgress, Prepare
from shardmq.errors import ReplyCode, RowDamaged
from shardmq.shards.state.attempts import StagedAttempt
from shardmq.shards.state.shard import ShardState
from shardmq.shards.state.sliced_work import PassBudget

PASS_BYTES: Final = 16 << 20
"""About what one pass reads, with CHECK_BATCH_BYTES for each batch: some 5 ms."""

SLICE_BYTES: Final = 2 << 20
"""The same of one commit before others have their turns."""

TELL_SECONDS: Final = 1.0
"""Between two times that who asked is told how far it is."""


class Preparation:
    """A commit that is being prepared.

    Attributes:
        responder: who asked last.
        message: what for.
        counts: the answer.
        attempts: of which something is to be read.
        read: bytes of records that were read.
        staged: bytes of records that are to be read, with those.
        told: how many bytes its asker was told of.
        tell_at: when it may be told again, monotonic seconds.
    """

    __slots__ = ("attempts", "counts", "message", "read", "responder", "staged", "tell_at", "told")

    def __init__(
        self, responder: Responder[list[int]], message: Prepare, counts: list[int], attempts: Iterable[StagedAttempt]
    ) -> None:
        self.responder = responder
        self.message = message
        self.counts = counts
        named = list(attempts)
        self.attempts = deque(attempt for attempt in named if attempt.unread_from is not None)
        self.read = sum([attempt.bytes_read for attempt in named])
        self.staged = sum([attempt.bytes for attempt in named])
        self.told = self.read
        self.tell_at = 0.0

    def tell(self, now: float) -> None:
        """Tell who asked how far it is, where that is wanted and due. `now` is in monotonic seconds."""
        if not self.message.is_told or now < self.tell_at or self.read == self.told:
            return
        self.tell_at, self.told = now + TELL_SECONDS, self.read
        self.responder.peer.post(PreparationProgress(self.message.transaction, self.read, self.staged))


class Preparations:
    """Reads what is staged for commits, each in its turn.

    Args:
        state: the store that has it, and what is damaged.
    """

    def __init__(self, state: ShardState) -> None:
        self._state = state
        self._budget = PassBudget(state.buffer)
        self._under_way: OrderedDict[int, Preparation] = OrderedDict()  # by transaction; whose turn it is first

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, preparation: Preparation) -> None:
        """Prepare a commit, at once where it is small. One of the same transaction that is under way ends with it."""
        transaction = preparation.message.transaction
        self.end(transaction, f"the commit of transaction {transaction} was asked for again; that is answered")
        if not preparation.attempts:
            preparation.responder.answer(preparation.counts)
            return
        if not preparation.read:  # who asks again hears at once that it gets on
            preparation.tell_at = self._state.buffer.now + TELL_SECONDS
        self._under_way[transaction] = preparation
        self._under_way.move_to_end(transaction, last=False)
        self.go_on()

    def end(self, transaction: int, why: str) -> None:
        """Refuse who waits for the commit of a transaction, if it is being prepared."""
        preparation = self._under_way.pop(transaction, None)
        if preparation is not None:
            preparation.responder.refuse(ReplyCode.RESOURCE_ERROR, why)

    def go_on(self) -> None:
        """Read as much as one pass may; a request is answered when all of it was read."""
        while self._under_way and self._budget.left(PASS_BYTES) > 0:
            transaction, preparation = next(iter(self._under_way.items()))
            self._under_way.move_to_end(transaction)
            try:
                self._read(preparation)
            except RowDamaged as damage:
                del self._under_way[transaction]
                text = self._state.quarantine.hold(transaction, damage)
                preparation.responder.refuse(ReplyCode.PRECONDITION_FAILED, text)
                continue
            if preparation.attempts:
                preparation.tell(self._state.buffer.now)
            else:
                del self._under_way[transaction]
                preparation.responder.answer(preparation.counts)

    def _read(self, preparation: Preparation) -> None:
        """Read a slice."""
        room = SLICE_BYTES
        while preparation.attempts and room > 0:
            attempt = preparation.attempts[0]
            assert attempt.unread_from is not None, "all of it was read"
            checked = self._state.store.staging.check(attempt.transaction, attempt.number, attempt.unread_from, room)
            room -= checked.cost
            self._budget.spend(checked.cost)
            attempt.unread_from = checked.goes_on_at
            attempt.bytes_read += checked.bytes
            preparation.read += checked.bytes
            if checked.goes_on_at is None:
                preparation.attempts.popleft()
