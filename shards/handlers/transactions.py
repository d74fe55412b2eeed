"""Transactions: messages that are staged until it is decided whether they appear.

    publish ──► staged ──► sealed ─┬─ committed ──► concluding ──► in their queues
              (for an attempt)     └─ aborted, or of an attempt that does not count ──► gone

A decision is on disk as soon as it is known, and carried out in portions, at the start of passes. Each portion's
messages leave the staged ones and join their queues in one commit: it goes on where it was, wherever it was stopped.
Numbers of transactions that are decided are remembered for ever, as ranges: what comes late for them is refused.

A commit is prepared by reading what was staged: where something of it is damaged, there is no commit. What is found
damaged later, and what is for a queue out of service, stays staged; the rest joins its queues.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from shardmq.bus.listener import Responder
from shardmq.bus.messages.groups import StageOffset
from shardmq.bus.messages.shard import Publish, PublishRefusal
from shardmq.bus.messages.transactions import FollowDecision, Prepare, Seal
from shardmq.errors import ReplyCode, RequestError
from shardmq.limits import OFFSETS_FROM
from shardmq.message.record_batch import OFFSETS
from shardmq.ranges import RangeSet
from shardmq.shards.handlers.decisions import Attempts, Decisions
from shardmq.shards.handlers.delays import DelayedMessages
from shardmq.shards.handlers.partitions.groups import Groups
from shardmq.shards.handlers.partitions.staged_offsets import StagedOffset
from shardmq.shards.state.attempts import StagedAttempt
from shardmq.shards.state.preparations import Preparation, Preparations
from shardmq.shards.state.shard import ShardState
from shardmq.shards.storage.entries import Sealed, Staged, StagedPlace
from shardmq.shards.storage.recovery import StoredState

ALL_BYTES: Final = 1 << 62
"""More than is staged."""

NOT_SEALED: Final = -1
"""The answer to a Prepare for an attempt that may still take something."""


class Transactions:
    """Takes in, seals and prepares staged publishes.

    Args:
        state: the queues.
        delays: for what joins them later.
        groups: whose offsets transactions commit.
    """

    def __init__(self, state: ShardState, delays: DelayedMessages, groups: Groups) -> None:
        self._state = state
        self._store, self._buffer = state.store, state.buffer
        self._attempts: Attempts = {}
        self._wide: dict[StagedAttempt, None] = {}
        self._ended = RangeSet()
        self._groups = groups
        self._decisions = Decisions(state, delays, self._attempts, groups)
        self._preparations = Preparations(state)
        self.handlers: dict[type, Callable[[Any, Any], None]] = {
            StageOffset: self._stage_offset,
            Seal: self._seal,
            Prepare: self._prepare,
            FollowDecision: self._conclude,
        }

    def load(self, contents: StoredState) -> None:
        """At start: take over what was staged, and go on with what is decided."""
        with_offsets: dict[tuple[int, int], None] = {}
        for place in self._store.staging.all():
            if place.sequence >= OFFSETS_FROM:
                with_offsets[place.transaction, place.attempt] = None
            attempt = self._attempt(place.transaction, place.attempt)
            attempt.add(place)
            if attempt.is_wide:
                attempt.narrow()
        for transaction, number in contents.sealed:
            self._attempt(transaction, number).is_sealed = True
        self._load_offsets(with_offsets)
        self._ended = RangeSet(contents.ended)
        for transaction in dict.fromkeys([*contents.concluding, *self._attempts]):
            if transaction in self._ended:
                here = self._attempts.setdefault(transaction, {})
                attempts = [number for number in contents.concluding.get(transaction, ()) if number in here]
                self._decisions.begin(transaction, attempts)

    def _load_offsets(self, attempts: Iterable[tuple[int, int]]) -> None:
        """At start: take over the offsets that these attempts, of which each is (transaction, number), have staged."""
        offsets = self._groups.staged
        for transaction, number in attempts:
            for staged in self._store.staging.batches(transaction, number, OFFSETS_FROM, ALL_BYTES):
                if isinstance(staged, Staged) and staged.batch.flags & OFFSETS:
                    offsets.add(StagedOffset.of(staged))
            if self._attempts[transaction][number].is_sealed:
                offsets.restored(transaction, [number])

    def table(self) -> list[dict[str, Any]]:
        """Return what is staged of each transaction, as `shardmq status` shows it."""
        return [
            {
                "number": number,
                "attempts": len(here),
                "messages": sum([attempt.messages for attempt in here.values()]),
                "bytes": sum([attempt.bytes for attempt in here.values()]),
            }
            for number, here in self._attempts.items()
        ]

    def stage(self, publish: int, message: Publish) -> PublishRefusal | None:
        """Keep what its attempt has not staged yet of a publish; returns the refusal where it may not be.

        Args:
            publish: its number in the session.
            message: it. All its queues are here.
        """
        transaction, number, batch = message.transaction, message.producer, message.batch
        if transaction in self._ended:
            return PublishRefusal(publish, ReplyCode.PRECONDITION_FAILED, _over(transaction))
        start, end = message.sequence, message.sequence + batch.count
        here = self._attempts.get(transaction)
        attempt = here.get(number) if here is not None else None
        if attempt is None:
            unseen = [(start, end)]
            attempt = self._attempt(transaction, number)
        else:
            unseen = attempt.unseen(self._store, start, end)
            if attempt.is_wide:  # what was looked up is in memory now
                self._wide[attempt] = None
        if not unseen:
            return None
        if attempt.is_sealed:
            text = (
                f"attempt {number} of transaction {transaction} is sealed and takes nothing more; publish what is "
                "new as another attempt"
            )
            return PublishRefusal(publish, ReplyCode.PRECONDITION_FAILED, text, unseen[0][0] - start)
        for first, stop in unseen:
            piece = self._state.slicer.cut(batch, first - start, stop - start)
            place = StagedPlace(transaction, number, first, piece.count, len(piece.records))
            attempt.add(place)
            if not message.delay_ms:  # what is delayed is stored with each queue
                piece = self._store.bodies.share_staged(piece)
            self._buffer.stage(Staged(place, message.queues, message.delay_ms, piece))
        if attempt.is_wide:
            self._wide[attempt] = None
        return None

    def _stage_offset(self, responder: Responder[None], message: StageOffset) -> None:
        """Stage the commit of a group's offset."""
        hosted = self._state.found(responder, message.queue)
        if hosted is None:
            return
        try:
            self._groups.check_commit(hosted, message)
        except RequestError as refused:
            responder.refuse(refused.code, refused.text)
            return
        staged = StagedOffset.asked(message, self._groups.epoch_of(hosted, message.group))
        batch = staged.as_batch(self._state.schedule.now_ms)
        publish = Publish((message.queue,), batch, message.attempt, message.sequence, 0, message.transaction)
        refusal = self.stage(0, publish)
        if refusal is not None:
            responder.refuse(refusal.code, refusal.text)
            return
        self._groups.staged.add(staged)
        responder.answer(None)

    def _attempt(self, transaction: int, number: int) -> StagedAttempt:
        here = self._attempts.setdefault(transaction, {})
        attempt = here.get(number)
        if attempt is None:
            attempt = here[number] = StagedAttempt(transaction, number)
        return attempt

    def _seal(self, responder: Responder[tuple[int, int]], message: Seal) -> None:
        if self._is_over(responder, message):
            return
        attempt = self._attempts.get(message.transaction, {}).get(message.attempt)
        if attempt is None:
            responder.answer((0, 0))
            return
        sealed = Sealed(attempt.messages, attempt.bytes)
        if not attempt.is_sealed:
            attempt.is_sealed = True
            self._buffer.seal(attempt.transaction, attempt.number, sealed)
        responder.answer(sealed)

    def _prepare(self, responder: Responder[list[int]], message: Prepare) -> None:
        if self._is_over(responder, message):
            return
        why = self._groups.staged.prepare(message.transaction, message.attempts)
        if why is not None:
            responder.refuse(ReplyCode.PRECONDITION_FAILED, why)
            return
        here = self._attempts.get(message.transaction, {})
        attempts = [here.get(number) for number in message.attempts]
        counts = [
            0 if attempt is None else attempt.messages if attempt.is_sealed else NOT_SEALED for attempt in attempts
        ]
        sealed = [attempt for attempt in attempts if attempt is not None and attempt.is_sealed]
        self._preparations.begin(Preparation(responder, message, counts, sealed))

    def _is_over(self, responder: Responder[Any], message: Seal | Prepare) -> bool:
        """Whether a request comes too late; it is refused then."""
        if message.transaction not in self._ended:
            return False
        responder.refuse(ReplyCode.PRECONDITION_FAILED, _over(message.transaction))
        return True

    def _conclude(self, responder: Responder[None], message: FollowDecision) -> None:
        transaction = message.transaction
        why = self._decisions.why_stuck(transaction)
        if why is not None:
            responder.refuse(ReplyCode.RESOURCE_ERROR, why)
            return
        if not self._decisions.is_under_way(transaction):
            if transaction in self._ended:
                responder.answer(None)
                return
            here = self._attempts.get(transaction, {})
            # All that was counted for the commit was sealed here: what is not came since, and nobody has counted it.
            attempts = [number for number in message.attempts if number in here and here[number].is_sealed]
            self._ended.add(transaction, transaction + 1)
            self._preparations.end(transaction, _over(transaction))
            self._buffer.conclude(transaction, attempts or None, list(self._ended))
            if not here:
                responder.answer(None)
                return
            self._decisions.begin(transaction, attempts)
        self._decisions.wait(transaction, responder)

    def newest(self) -> int:
        """The highest number of a transaction that is known here; 0 for none."""
        return max(self._ended.end - 1 if self._ended else 0, *self._attempts, 0)

    @property
    def is_any_open(self) -> bool:
        """Whether something is staged: it joins its queues when that is decided."""
        return bool(self._attempts)

    @property
    def late(self) -> bool:
        """Whether something waits for its turn."""
        return bool(self._preparations or self._wide or self._decisions.concluding)

    def wait_seconds(self, _now: float) -> float | None:
        """Return when something that is decided is to be carried out, in seconds from now; None for nothing."""
        return 0.0 if self._preparations or self._decisions.is_due else None

    def begin(self) -> None:
        """A pass begins: a portion of what is decided is carried out; what the passes before wrote is in the store."""
        for attempt in self._wide:
            attempt.narrow()
        self._wide.clear()
        self._preparations.go_on()
        self._decisions.carry_out()


def _over(transaction: int) -> str:
    return f"transaction {transaction} is over: it was committed, aborted or has expired; begin it again"
