"""Decided transactions: their messages join their queues, or are dropped, in portions at the start of passes."""

from collections import deque
from collections.abc import Iterable
from typing import Final

from shardmq.bus.listener import Responder
from shardmq.errors import ReplyCode
from shardmq.message.record_batch import OFFSETS
from shardmq.shards.consumers.consumer import UNLIMITED
from shardmq.shards.handlers.delays import DelayedMessages
from shardmq.shards.handlers.partitions.groups import Groups
from shardmq.shards.segments.shared_batch import SharedBatch
from shardmq.shards.state.attempts import StagedAttempt
from shardmq.shards.state.hosted_queue import HostedQueue
from shardmq.shards.state.shard import ShardState
from shardmq.shards.storage.entries import DamagedStage, Staged, StagedPlace

ROLL_BYTES: Final = 4 << 20
"""About what one pass carries out of what is decided; others have their turns in between."""

ROLL_BATCH_BYTES: Final = 2048
"""What a batch counts for besides its records, which is about what it costs."""

ROLL_ROOM_BYTES: Final = 32 << 20
"""What the disk must have free before a portion joins its queues: a few of them, and what they displace. Where the disk
is full, no pass can be written, and nobody could empty the queues that have had their part."""

READ_BYTES: Final = 256 << 10
"""Staged batches that are read at a time: a portion may be over when a few of them have gone to many queues."""

DROPPED_BATCHES_PER_PASS: Final = 2000
"""Staged batches removed in one commit; every page they free is work for LMDB."""

Attempts = dict[int, dict[int, StagedAttempt]]
"""Those that have something staged, by transaction and number."""


class Conclusion:
    """A transaction that is decided, while that is being carried out.

    Attributes:
        transaction: its number.
        attempts: whose messages are still to join their queues; what others staged is removed after that.
        since: the sequence at which the first of them goes on.
        behind: the last place that was removed, so that a scan need not pass over what is gone.
        kept: of attempts whose turn is over, messages that stay staged: damaged, or for a queue out of service.
        why: what is to be said of those.
        asked: who waits for the end.
    """

    __slots__ = ("asked", "attempts", "behind", "kept", "since", "transaction", "why")

    def __init__(self, transaction: int, attempts: Iterable[int]) -> None:
        self.transaction = transaction
        self.attempts = deque(attempts)
        self.since = 0
        self.behind: StagedPlace | None = None
        self.kept: dict[int, int] = {}
        self.why = ""
        self.asked: list[Responder[None]] = []


class Decisions:
    """Carries out what is decided.

    Args:
        state: the queues.
        delays: for what joins them later.
        attempts: what is staged; attempts of which nothing is left are removed.
        groups: whose offsets transactions commit.

    Attributes:
        concluding: what is being carried out, by transaction.
    """

    def __init__(self, state: ShardState, delays: DelayedMessages, attempts: Attempts, groups: Groups) -> None:
        self._state = state
        self._store, self._buffer = state.store, state.buffer
        self._delays = delays
        self._attempts = attempts
        self._groups = groups
        self.concluding: dict[int, Conclusion] = {}
        self._stuck: dict[int, Conclusion] = {}  # all was done that can be
        self._is_held = False  # all of these wait for room on the disk
        groups.replaced = self._try_again

    @property
    def is_due(self) -> bool:
        """Whether something is to be carried out now."""
        return bool(self.concluding) and not self._is_held

    def is_under_way(self, transaction: int) -> bool:
        """Whether a decision is being carried out."""
        return transaction in self.concluding

    def why_stuck(self, transaction: int) -> str | None:
        """Return why the rest of a decision cannot be carried out; None where it can."""
        conclusion = self._stuck.get(transaction)
        return None if conclusion is None else conclusion.why

    def begin(self, transaction: int, attempts: Iterable[int]) -> None:
        """Begin to carry out a decision.

        Args:
            transaction: its number.
            attempts: that count, in order; none of them where it is aborted.
        """
        self.concluding[transaction] = Conclusion(transaction, attempts)
        self._groups.staged.decided(transaction)
        self._is_held = False

    def wait(self, transaction: int, responder: Responder[None]) -> None:
        """Answer a request when a decision is carried out."""
        self.concluding[transaction].asked.append(responder)

    def carry_out(self) -> None:
        """Carry out a portion. What is to disappear makes room on the disk, and need not wait for it."""
        joining = [each for each in self.concluding.values() if each.attempts]
        is_cramped = bool(joining) and not self._store.has_room(ROLL_ROOM_BYTES)
        self._is_held = is_cramped and len(joining) == len(self.concluding)
        room = ROLL_BYTES
        for transaction in list(self.concluding):
            if room <= 0:
                break
            if is_cramped and self.concluding[transaction].attempts:
                continue
            conclusion = self.concluding.pop(transaction)
            here = self._attempts[transaction]
            room = self._join(conclusion, here, room) if conclusion.attempts else self._drop(conclusion, here, room)
            if conclusion.attempts or len(here) > len(conclusion.kept):
                self.concluding[transaction] = conclusion  # behind all others
            elif here:
                self._stick(conclusion)
            else:
                self._finish(conclusion)

    def _join(self, conclusion: Conclusion, here: dict[int, StagedAttempt], room: int) -> int:
        """Have batches join their queues, in order of attempts and numbers; returns what is left of the portion."""
        while conclusion.attempts and room > 0:
            attempt = here[conclusion.attempts[0]]
            kept = conclusion.kept
            if attempt.messages > kept.get(attempt.number, 0):
                room = self._join_some(conclusion, attempt, room)
            if attempt.messages == kept.get(attempt.number, 0):
                room -= ROLL_BATCH_BYTES
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
                conclusion.why = self._state.quarantine.hold(conclusion.transaction, staged.damage)
                self._keep(conclusion, place)
                continue
            left = self._join_queues(staged)
            if left:
                conclusion.why = self._state.quarantine.text(left[0])
                self._keep(conclusion, place)
            if left != staged.queues:
                self._buffer.unstage(place)
            if left and left != staged.queues:
                self._buffer.stage(staged._replace(queues=left))
            if not left:
                attempt.remove(place)
            room -= (place.bytes + ROLL_BATCH_BYTES) * len(staged.queues)
        return room

    def _keep(self, conclusion: Conclusion, place: StagedPlace) -> None:
        """Leave a batch staged that was promised and cannot join its queues."""
        conclusion.kept[place.attempt] = conclusion.kept.get(place.attempt, 0) + place.messages

    def _join_queues(self, staged: Staged) -> tuple[int, ...]:
        """Append a batch to its queues as if it came now; returns those that are out of service, and did not get it.

        A queue that is condemned gets it, too: it may yet be kept.
        """
        state, batch = self._state, staged.batch
        if len(staged.queues) > 1 and not staged.delay_ms and type(batch) is not SharedBatch:
            batch = self._store.bodies.share(batch)
        now_ms = state.schedule.now_ms
        left = []
        for number in staged.queues:
            hosted = state.queues.get(number)
            if hosted is None:
                if number in state.quarantine:
                    left.append(number)
                continue
            if batch.flags & OFFSETS and self._groups.why_out(hosted, batch.routing_key) is not None:
                left.append(number)
            elif batch.flags & OFFSETS:
                self._groups.carry_out(hosted, batch.routing_key, batch.serial, batch.origin)
                state.active[number] = hosted
            elif staged.delay_ms:
                self._delays.delay(hosted, batch, now_ms + staged.delay_ms)
            else:
                batch.timestamp_ms = now_ms
                hosted.queue.append(batch, _credit(hosted))
                state.active[number] = hosted
        return tuple(left)

    def _drop(self, conclusion: Conclusion, here: dict[int, StagedAttempt], room: int) -> int:
        """Remove what attempts staged that do not count; returns what is left of the portion."""
        count_max = min(DROPPED_BATCHES_PER_PASS, room // ROLL_BATCH_BYTES + 1)
        places = self._store.staging.places(conclusion.transaction, conclusion.behind, count_max)
        for place in places:
            if place.attempt in conclusion.kept:
                continue
            self._buffer.unstage(place)
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
        return room - len(places) * ROLL_BATCH_BYTES

    def _forget(self, here: dict[int, StagedAttempt], attempt: StagedAttempt) -> None:
        """Forget an attempt of which nothing is left."""
        del here[attempt.number]
        if attempt.is_sealed:
            self._buffer.seal(attempt.transaction, attempt.number, None)

    def _stick(self, conclusion: Conclusion) -> None:
        """Tell those who wait why the rest of a decision cannot be carried out."""
        self._stuck[conclusion.transaction] = conclusion
        for responder in conclusion.asked:
            responder.refuse(ReplyCode.RESOURCE_ERROR, conclusion.why)
        conclusion.asked.clear()

    def _try_again(self) -> None:
        """Go on with what could not be carried out: a damaged cursor was replaced, which some of it may wait for."""
        stuck, self._stuck = self._stuck, {}
        for conclusion in stuck.values():
            self.begin(conclusion.transaction, conclusion.kept)

    def _finish(self, conclusion: Conclusion) -> None:
        """Forget a transaction of which nothing is left; those who wait are answered once that is on disk."""
        del self._attempts[conclusion.transaction]
        self._groups.staged.ended(conclusion.transaction)
        self._state.quarantine.let_go(conclusion.transaction)
        self._buffer.conclude(conclusion.transaction, None, None)
        for responder in conclusion.asked:
            responder.answer(None)


def _credit(hosted: HostedQueue) -> int:
    """How many messages beyond its length limit a queue takes of what is committed: all, as all of it was promised.

    If it tried again later, what is committed next would come before it. Where what is too much are dead letters, they
    are here, too.
    """
    if hosted.queue.arguments.dead_letters_refused:
        return hosted.consumers.credit()
    return UNLIMITED
