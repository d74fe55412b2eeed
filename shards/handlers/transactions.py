"""Transactions: messages that are kept aside until it is decided whether they appear.

    publish ──► staged ──► sealed ─┬─ committed ──► concluding ──► in their queues
              (for an attempt)     └─ aborted, or of an attempt that does not count ──► gone

A decision is on disk as soon as it is known, and carried out in portions, at the start of passes. Each portion's
messages leave the staged ones and join their queues in one commit: it goes on where it was, wherever it was stopped.
Numbers of transactions that are decided are remembered for ever, as ranges: what comes late for them is refused.

A commit is prepared by reading what was staged: where something of it is damaged, there is no commit. What is found
damaged later, and what is for a queue out of service, stays staged; the rest joins its queues.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from shardmq.bus.listener import Peer
from shardmq.bus.messages.base import Answer
from shardmq.bus.messages.shard import (
    FollowDecision,
    Prepare,
    Publish,
    PublishRefusal,
    Seal,
)
from shardmq.errors import ReplyCode, RowDamaged
from shardmq.ranges import RangeSet
from shardmq.shards.handlers.delays import DelayedMessages
from shardmq.shards.state.attempts import StagedAttempt
from shardmq.shards.state.shard import ShardState
from shardmq.shards.storage.entries import DamagedStage, Sealed, Staged, StagedPlace
from shardmq.shards.storage.recovery import StoredState

ROLL_BYTES: Final = 4 << 20
"""About what one pass carries out of what is decided; others have their turns in between."""

ROLL_RUN_BYTES: Final = 2048
"""What a run counts for besides its records, which is about what it costs."""

ROLL_ROOM_BYTES: Final = 32 << 20
"""What the disk must have free before a portion joins its queues: a few of them, and what they displace. A message that
goes to many queues takes as much room in each. Where the disk is full, no pass can be written, and nobody could empty
the queues that have had their part."""

READ_BYTES: Final = 256 << 10
"""Staged runs that are read at a time: a portion may be over when a few of them have gone to many queues."""

DROPPED_RUNS_PER_PASS: Final = 2000
"""Staged runs removed in one commit; every page they free is work for LMDB."""

CHECK_BYTES: Final = 32 << 20
"""About what one pass reads of what is to be committed, to see that it is what was written: some 10 ms."""

NOT_SEALED: Final = -1
"""The answer to a Prepare for an attempt that may still take something."""


class Conclusion:
    """A transaction that is decided, while that is being carried out.

    Attributes:
        transaction: its number.
        attempts: whose messages are still to join their queues; what others staged is removed after that.
        since: the first of them goes on here.
        behind: what is removed is behind that, so that what was need not be passed over.
        kept: of attempts whose turn is over, messages that stay staged: damaged, or for a queue out of service.
        why: what is to be said of those.
        asked: who waits for the end, and by which request.
    """

    __slots__ = ("asked", "attempts", "behind", "kept", "since", "transaction", "why")

    def __init__(self, transaction: int, attempts: Iterable[int]) -> None:
        self.transaction = transaction
        self.attempts = deque(attempts)
        self.since = 0
        self.behind: StagedPlace | None = None
        self.kept: dict[int, int] = {}
        self.why = ""
        self.asked: list[tuple[Peer, int]] = []


@dataclass(slots=True)
class _Check:
    """A commit that is being prepared.

    Attributes:
        peer: who asked.
        message: what for.
        counts: the answer.
        attempts: whose messages are still to be read.
        since: the first of them goes on here.
    """

    peer: Peer
    message: Prepare
    counts: list[int]
    attempts: deque[int]
    since: int = 0


class Transactions:
    """What a shard does with transactions.

    Args:
        holdings: the queues.
        timers: for what joins them later.
    """

    def __init__(self, holdings: ShardState, timers: DelayedMessages) -> None:
        self._holdings = holdings
        self._store, self._journal = holdings.store, holdings.journal
        self._timers = timers
        self._attempts: dict[
            int, dict[int, StagedAttempt]
        ] = {}  # by transaction and number; those with something staged
        self._wide: dict[StagedAttempt, None] = {}
        self._ended = RangeSet()
        self._concluding: dict[int, Conclusion] = {}
        self._stuck: dict[int, Conclusion] = {}  # all was done that can be
        self._checking: deque[_Check] = deque()
        self._is_held = False  # all of these wait for room on the disk
        self.handlers: dict[type, Callable[[Peer, Any], None]] = {
            Seal: self._seal,
            Prepare: self._prepare,
            FollowDecision: self._conclude,
        }

    def load(self, contents: StoredState) -> None:
        """At start: take over what was staged, and go on with what is decided."""
        for place in self._store.staging.all():
            attempt = self._attempt(place.transaction, place.attempt)
            attempt.add(place)
            if attempt.is_wide:
                attempt.narrow()
        for transaction, number in contents.sealed:
            self._attempt(transaction, number).is_sealed = True
        self._ended = RangeSet(contents.ended)
        for transaction in dict.fromkeys([*contents.concluding, *self._attempts]):
            if transaction in self._ended:
                here = self._attempts.setdefault(transaction, {})
                attempts = [number for number in contents.concluding.get(transaction, ()) if number in here]
                self._concluding[transaction] = Conclusion(transaction, attempts)

    def table(self) -> list[dict[str, Any]]:
        """What is staged, of each transaction, as `shardmq status` shows it."""
        return [
            {
                "number": number,
                "attempts": len(here),
                "messages": sum([attempt.messages for attempt in here.values()]),
                "bytes": sum([attempt.bytes for attempt in here.values()]),
            }
            for number, here in self._attempts.items()
        ]

    # --- staging ----------------------------------------------------------------------------------------------------

    def stage(self, publish: int, message: Publish) -> PublishRefusal | None:
        """Keep what its attempt has not staged yet of a publish; returns the refusal where it may not be.

        Args:
            publish: its number in the session.
            message: it. All its queues are here.
        """
        transaction, number, run = message.transaction, message.producer, message.run
        if transaction in self._ended:
            return PublishRefusal(publish, ReplyCode.PRECONDITION_FAILED, _over(transaction))
        start, end = message.sequence, message.sequence + run.count
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
            piece = self._holdings.cutter.cut(run, first - start, stop - start)
            place = StagedPlace(transaction, number, first, piece.count, len(piece.records))
            attempt.add(place)
            self._journal.stage(Staged(place, message.queues, message.delay_ms, piece))
        if attempt.is_wide:
            self._wide[attempt] = None
        return None

    def _attempt(self, transaction: int, number: int) -> StagedAttempt:
        here = self._attempts.setdefault(transaction, {})
        attempt = here.get(number)
        if attempt is None:
            attempt = here[number] = StagedAttempt(transaction, number)
        return attempt

    # --- deciding ---------------------------------------------------------------------------------------------------

    def _seal(self, peer: Peer, message: Seal) -> None:
        if self._is_over(peer, message):
            return
        attempt = self._attempts.get(message.transaction, {}).get(message.attempt)
        if attempt is None:
            peer.post(Answer(message.request, (0, 0)))
            return
        sealed = Sealed(attempt.messages, attempt.bytes)
        if not attempt.is_sealed:
            attempt.is_sealed = True
            self._journal.seal(attempt.transaction, attempt.number, sealed)
        peer.post(Answer(message.request, sealed))

    def _prepare(self, peer: Peer, message: Prepare) -> None:
        if self._is_over(peer, message):
            return
        here = self._attempts.get(message.transaction, {})
        attempts = [here.get(number) for number in message.attempts]
        counts = [
            0 if attempt is None else attempt.messages if attempt.is_sealed else NOT_SEALED for attempt in attempts
        ]
        staged = [number for number, count in zip(message.attempts, counts, strict=True) if count > 0]
        self._checking.append(_Check(peer, message, counts, deque(staged)))
        if len(self._checking) == 1:
            self._check()

    def _check(self) -> None:
        """Read a portion of what is to be committed; who asked is answered when all of it was."""
        room = CHECK_BYTES
        while self._checking and room > 0:
            check = self._checking[0]
            number = check.message.transaction
            try:
                while check.attempts and room > 0:
                    left = self._store.staging.check(number, check.attempts[0], check.since, min(room, READ_BYTES))
                    room -= READ_BYTES
                    check.since = left or 0
                    if left is None:
                        check.attempts.popleft()
            except RowDamaged as damage:
                self._checking.popleft()
                text = self._holdings.quarantine.hold(number, damage)
                self._holdings.refuse(check.peer, check.message.request, ReplyCode.PRECONDITION_FAILED, text)
                continue
            if not check.attempts:
                self._checking.popleft()
                check.peer.post(Answer(check.message.request, check.counts))

    def _is_over(self, peer: Peer, message: Seal | Prepare) -> bool:
        """Whether a request comes too late; it is refused then."""
        if message.transaction not in self._ended:
            return False
        self._holdings.refuse(peer, message.request, ReplyCode.PRECONDITION_FAILED, _over(message.transaction))
        return True

    def _conclude(self, peer: Peer, message: FollowDecision) -> None:
        transaction = message.transaction
        if transaction in self._stuck:
            self._holdings.refuse(peer, message.request, ReplyCode.RESOURCE_ERROR, self._stuck[transaction].why)
            return
        conclusion = self._concluding.get(transaction)
        if conclusion is None and transaction in self._ended:
            peer.post(Answer(message.request))
            return
        if conclusion is None:
            here = self._attempts.get(transaction, {})
            # All that was counted for the commit was sealed here: what is not came since, and nobody has counted it.
            attempts = [number for number in message.attempts if number in here and here[number].is_sealed]
            self._ended.add(transaction, transaction + 1)
            self._journal.conclude(transaction, attempts or None, list(self._ended))
            if not here:
                peer.post(Answer(message.request))
                return
            conclusion = self._concluding[transaction] = Conclusion(transaction, attempts)
            self._is_held = False
        conclusion.asked.append((peer, message.request))

    # --- carrying out what is decided -------------------------------------------------------------------------------

    @property
    def is_rolling(self) -> bool:
        """Whether something that is decided is to be carried out now."""
        return bool(self._checking) or (bool(self._concluding) and not self._is_held)

    def roll(self) -> None:
        """Carry out a portion of what is decided. Called at the start of a pass: what the passes before wrote can be
        found in the store. What is to disappear makes room, and need not wait for it.
        """
        for attempt in self._wide:
            attempt.narrow()
        self._wide.clear()
        self._check()
        joining = [each for each in self._concluding.values() if each.attempts]
        is_cramped = bool(joining) and not self._store.has_room(ROLL_ROOM_BYTES)
        self._is_held = is_cramped and len(joining) == len(self._concluding)
        room = ROLL_BYTES
        for transaction in list(self._concluding):
            if room <= 0:
                break
            if is_cramped and self._concluding[transaction].attempts:
                continue
            conclusion = self._concluding.pop(transaction)
            here = self._attempts[transaction]
            room = self._join(conclusion, here, room) if conclusion.attempts else self._drop(conclusion, here, room)
            if conclusion.attempts or len(here) > len(conclusion.kept):
                self._concluding[transaction] = conclusion  # behind all others
            elif here:
                self._stick(conclusion)
            else:
                self._finish(conclusion)

    def _join(self, conclusion: Conclusion, here: dict[int, StagedAttempt], room: int) -> int:
        """Have runs join their queues, in order of attempts and their numbers; returns what is left of the portion."""
        while conclusion.attempts and room > 0:
            attempt = here[conclusion.attempts[0]]
            kept = conclusion.kept
            if attempt.messages > kept.get(attempt.number, 0):
                room = self._join_some(conclusion, attempt, room)
            if attempt.messages == kept.get(attempt.number, 0):
                room -= ROLL_RUN_BYTES
                if attempt.number not in kept:
                    self._forget(here, attempt)
                conclusion.attempts.popleft()
                conclusion.since = 0
        return room

    def _join_some(self, conclusion: Conclusion, attempt: StagedAttempt, room: int) -> int:
        number = attempt.number
        found = self._store.staging.batches(conclusion.transaction, number, conclusion.since, min(room, READ_BYTES))
        assert found, f"{attempt.messages} messages of attempt {number} are not in the store"
        for staged in found:
            if room <= 0:
                break
            place = staged.place
            conclusion.since = place.sequence + place.messages
            if isinstance(staged, DamagedStage):
                conclusion.why = self._holdings.quarantine.hold(conclusion.transaction, staged.damage)
                self._keep(conclusion, place)
                continue
            left = self._join_queues(staged)
            if left:
                conclusion.why = self._holdings.quarantine.text(left[0])
                self._keep(conclusion, place)
            if left != staged.queues:
                self._journal.unstage(place)
            if left and left != staged.queues:
                self._journal.stage(staged._replace(queues=left))
            if not left:
                attempt.remove(place)
            room -= (place.bytes + ROLL_RUN_BYTES) * len(staged.queues)
        return room

    def _keep(self, conclusion: Conclusion, place: StagedPlace) -> None:
        """A run stays staged: it was promised, and cannot be where it was to go."""
        conclusion.kept[place.attempt] = conclusion.kept.get(place.attempt, 0) + place.messages

    def _join_queues(self, staged: Staged) -> tuple[int, ...]:
        """A run joins its queues as if it came now; returns those that are out of service, and have not got it.

        One that is condemned gets it too: it may yet be kept.
        """
        holdings, run = self._holdings, staged.run
        now_ms = holdings.agenda.now_ms
        left = []
        for number in staged.queues:
            hosted = holdings.queues.get(number)
            if hosted is None:
                if number in holdings.quarantine:
                    left.append(number)
                continue
            if staged.delay_ms:
                self._timers.delay(hosted, run, now_ms + staged.delay_ms)
            else:
                self._timers.publish(hosted, run, now_ms)
                holdings.active[number] = hosted
        return tuple(left)

    def _drop(self, conclusion: Conclusion, here: dict[int, StagedAttempt], room: int) -> int:
        """Remove what attempts staged that do not count; returns what is left of the portion."""
        count_max = min(DROPPED_RUNS_PER_PASS, room // ROLL_RUN_BYTES + 1)
        places = self._store.staging.places(conclusion.transaction, conclusion.behind, count_max)
        for place in places:
            if place.attempt in conclusion.kept:
                continue
            self._journal.unstage(place)
            attempt = here[place.attempt]
            attempt.remove(place)
            if not attempt.messages:
                self._forget(here, attempt)
        if len(places) < count_max:
            for attempt in list(here.values()):
                if attempt.number not in conclusion.kept:
                    self._forget(here, attempt)
        else:
            conclusion.behind = places[-1]
        return room - len(places) * ROLL_RUN_BYTES

    def _forget(self, here: dict[int, StagedAttempt], attempt: StagedAttempt) -> None:
        """Nothing of an attempt is left."""
        del here[attempt.number]
        if attempt.is_sealed:
            self._journal.seal(attempt.transaction, attempt.number, None)

    def _stick(self, conclusion: Conclusion) -> None:
        """All that can be carried out is: whoever waits for the rest is told why it cannot."""
        self._stuck[conclusion.transaction] = conclusion
        for peer, request in conclusion.asked:
            self._holdings.refuse(peer, request, ReplyCode.RESOURCE_ERROR, conclusion.why)
        conclusion.asked.clear()

    def _finish(self, conclusion: Conclusion) -> None:
        """Nothing of a transaction is left: say so to whoever waits for it, once that is on disk."""
        del self._attempts[conclusion.transaction]
        self._holdings.quarantine.let_go(conclusion.transaction)
        self._journal.conclude(conclusion.transaction, None, None)
        for peer, request in conclusion.asked:
            peer.post(Answer(request))


def _over(transaction: int) -> str:
    return f"transaction {transaction} is over: it was committed, aborted or has expired; begin it again"
