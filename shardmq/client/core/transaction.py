"""A transaction of this program, without any I/O: what it stages and sends again, and the steps of its life.

    open ──seal──► sealed ──commit──► committed
      └───────────────┴──────abort──► aborted

The steps are generators. They yield what is to be asked, flushed or waited for, and are sent the answer or thrown the
error; the front for threads and the one for asyncio carry them out. What is published comes through `publish`, from a
publisher, under the connection's lock.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final, TypeVar

from shardmq.client.api.results import Begun, Sealed
from shardmq.client.core.batching import PublishBatch
from shardmq.client.core.channel import ChannelCore
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.interfaces import Confirms, again
from shardmq.client.core.requests import transactions
from shardmq.client.core.requests.request import Request
from shardmq.client.core.requests.steps import ASK_AGAIN_SECONDS, Asking, Flush, Patience, Pause, Steps
from shardmq.client.core.validation import check_timeout
from shardmq.errors import (
    ChannelError,
    ConnectionFault,
    PreconditionFailed,
    PublishRefused,
    ReplyCode,
    RequestError,
    ShardmqError,
    StillPreparing,
    Timeout,
    Unavailable,
    Unroutable,
)
from shardmq.limits import FRAMED_PRODUCERS, KEYED_NUMBERS, OFFSETS_FROM
from shardmq.message.record_batch import KEYED
from shardmq.protocol.native.operations.basic import BasicPublish

T = TypeVar("T")

RESEND_SECONDS: Final = 0.1
"""Until what was refused because its shard is away is published again; twice as long each time."""

RESEND_SECONDS_MAX: Final = 1.0
"""Never longer than that: a shard is back a second after it died."""


class State(Enum):
    """The state of a transaction, as far as this program knows; the value is what a publish there is told."""

    OPEN = "is being committed or aborted: it takes no messages"
    SEALED = "is sealed: it takes no more messages; publish before seal(), or in a transaction of another name"
    COMMITTED = "is committed; begin another one, with another name"
    ABORTED = "was aborted; begin it again"
    FOUND_COMMITTED = "was committed before"


class _Staged:
    """The confirms of one batch. It is told to the publisher when there will be no other."""

    __slots__ = ("_came_back", "_confirms", "_transaction", "refused_at", "batch")

    def __init__(self, transaction: "TransactionCore", confirms: Confirms, batch: PublishBatch) -> None:
        self._transaction = transaction
        self._confirms = confirms
        self._came_back = False
        self.batch = batch
        self.refused_at: float | None = None

    def settled(self, count: int, error: ShardmqError | None, taken: int = 0) -> None:
        """Pass on a confirm or refusal, if it is the last one."""
        verdict = self._transaction.settled(self, error)
        if verdict is None:
            self._confirms.settled(count, None)
        elif verdict is not _LATER:
            self._confirms.settled(count, verdict, taken)

    def returned(self, count: int, error: Unroutable) -> bool:
        """Pass on that messages came back, once: not when they were published again."""
        if self.refused_at is not None and self._came_back:
            return False
        self._came_back = True
        return self._confirms.returned(count, error)


_LATER: Final = PublishRefused("published again in a moment")


class TransactionCore:
    """One transaction and this program's attempt at it.

    Args:
        core: the connection.
        channel: on which it publishes.
        name: of the transaction.
        timeout_ms: after which the broker aborts it, 0 for the broker's default.
        seconds: for how long it insists, with each of its steps and with each message.
        later: told in how many seconds to call `resend`.
        clock: rises by one each second.

    Attributes:
        name: of the transaction.
        number: the broker's for it.
        attempt: its own number as a publisher.
        state: where it is.
        is_taking: whether publishing does something.
    """

    def __init__(
        self,
        core: ConnectionCore,
        channel: ChannelCore,
        name: str,
        timeout_ms: int,
        seconds: float,
        later: Callable[[float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_timeout(seconds)
        self.name = name
        self.number = 0
        # Below those whose frames the broker may sort: these messages keep their numbers whatever frames they come in.
        self.attempt = 1 + secrets.randbelow(FRAMED_PRODUCERS - 1)
        self.state = State.OPEN
        self.is_taking = False
        self._core = core
        self._channel = channel
        self._timeout_ms = timeout_ms
        self._seconds = seconds
        self._later = later
        self._clock = clock
        self._messages = self._sequence = 0
        self._offsets = 0
        self._failure: ShardmqError | None = None
        self._sealed: Sealed | None = None
        self._named: list[tuple[int, int]] = []
        self._may_be_committed = False
        self._resends = 0
        self._is_resend_due = False
        self._put_off_because = ""

    def publish(self, channel: ChannelCore, batch: PublishBatch, confirms: Confirms) -> None:
        """Stage a batch: what `ConnectionCore.publish` is to other publishers."""
        if not self.is_taking:
            confirms.settled(batch[3], self._refusal())
            return
        exchange, routing_key, flags, count, packed, delay_ms, *_ = batch
        staged = _Staged(
            self,
            confirms,
            (exchange, routing_key, flags, count, packed, delay_ms, self.attempt, self._sequence, self.number),
        )
        self._messages += count
        self._sequence += count * KEYED_NUMBERS if flags & KEYED else count
        self._core.publish(channel, staged.batch, staged)

    def settled(self, staged: _Staged, error: ShardmqError | None) -> ShardmqError | None:
        """What a batch's publisher is told: None for a confirm, an error, or `_LATER` for nothing yet."""
        if error is None:
            if staged.refused_at is not None:
                self._resends = 0
                self._put_off_because = ""
            return None
        is_passing = isinstance(error, PublishRefused) and error.code == ReplyCode.RESOURCE_ERROR
        if is_passing and self._failure is None and self.state in (State.OPEN, State.SEALED):
            now = self._clock()
            if staged.refused_at is None:
                staged.refused_at = now
            waited = now - staged.refused_at
            if waited < self._seconds:
                self._put_off(staged, error)
                return _LATER
            error = PublishRefused(f"{error.text}; it was published again and again for {waited:.0f} s")
        self.fail(error)
        return error

    def fail(self, error: ShardmqError) -> None:
        """Note that a message is missing, so that it cannot be committed."""
        self._failure = self._failure or error
        self.is_taking = False

    def resend(self) -> None:
        """Publish again what was put off."""
        self._is_resend_due = False
        self._resends += 1
        self._core.publish_again(self._channel)

    def _put_off(self, staged: _Staged, error: ShardmqError) -> None:
        self._put_off_because = error.text
        self._channel.put_off.append((staged, BasicPublish(0, self._channel.number, *staged.batch)))
        if not self._is_resend_due:
            self._is_resend_due = True
            self._later(min(RESEND_SECONDS * 2 ** min(self._resends, 32), RESEND_SECONDS_MAX))

    @property
    def is_committed(self) -> bool:
        """Whether it is committed, by this program or before."""
        return self.state in (State.COMMITTED, State.FOUND_COMMITTED)

    def check_taking(self) -> None:
        """Raise where publishing is a mistake, or of no use any more; not where it was committed before."""
        if not self.is_taking and self.state is not State.FOUND_COMMITTED:
            raise self._refusal()

    def begin(self) -> Steps[None]:
        """Begin it, or find it."""
        begun: Begun = yield from self._insist(transactions.transaction_begin(self.name, self._timeout_ms))
        self.number = begun.number
        if begun.state == "committed":
            self.state = State.FOUND_COMMITTED
        else:
            self.is_taking = True

    def stage_offsets(self, place: tuple[str, str], offsets: Mapping[int, int], is_member: bool = True) -> Steps[None]:
        """Stage the commit of offsets, by partition, of a group; `place` is (topic, group)."""
        sequence = OFFSETS_FROM + self._offsets
        self._offsets += len(offsets)
        try:
            yield from self._insist(
                transactions.transaction_offsets(self.number, self.attempt, sequence, place, offsets, is_member)
            )
        except ShardmqError as error:
            self.fail(error)
            raise

    def seal(self) -> Steps[Sealed]:
        """Seal the attempt; returns what it has staged."""
        if self.state is State.FOUND_COMMITTED:
            return Sealed(self.attempt, 0)
        if self.state is State.ABORTED or (self.state is State.COMMITTED and self._sealed is None):
            raise self._refusal()
        return (yield from self._seal())

    def flush(self, seconds: float | None) -> Steps[None]:
        """Wait until all that was published is staged."""
        yield from self._flush(self._seconds if seconds is None else seconds)

    def commit(self, sealed: Iterable[tuple[int, int]] | None, seconds: float | None = None) -> Steps[bool]:
        """Commit; returns whether all of it has appeared.

        Args:
            sealed: the attempts that count; its own where None.
            seconds: to insist; where None, those of the transaction, which begin anew while shards get on.
        """
        may_last = seconds is None
        seconds = self._seconds if seconds is None else seconds
        check_timeout(seconds)
        if self.state is State.ABORTED:
            raise self._refusal()
        if self.state in (State.OPEN, State.SEALED):
            self._named = [(yield from self._seal())] if sealed is None else self._complete(list(sealed))
        request = transactions.transaction_commit(self.name, self.number, self._named)
        self.is_taking = False
        patience = Patience(seconds, self._clock)
        while True:
            self._may_be_committed = True
            try:
                is_visible: bool = yield Asking(request, patience.left)
            except (Unavailable, Timeout, ChannelError, ConnectionFault) as error:
                is_passing = isinstance(error, Unavailable | Timeout)
                if may_last:
                    patience.hear(error)
                if not is_passing or not patience.lasts:
                    if self.is_committed:
                        return False
                    if isinstance(error, StillPreparing):
                        self._may_be_committed = False
                        raise
                    raise self._in_doubt(error) from error
            except RequestError:
                self._may_be_committed = False
                raise
            else:
                if self.state is not State.FOUND_COMMITTED:
                    self.state = State.COMMITTED
                if is_visible or not patience.lasts:
                    return is_visible
            yield Pause(ASK_AGAIN_SECONDS)

    def abort(self) -> Steps[None]:
        """Abort: nothing of it appears."""
        if self.state is State.ABORTED:
            return
        if self.is_committed:
            raise PreconditionFailed(f"transaction '{self.name}' is committed: it cannot be aborted any more")
        self.is_taking = False
        yield from self._insist(transactions.transaction_abort(self.name, self.number))
        self.state = State.ABORTED

    def leave(self, error: BaseException | None) -> Steps[None]:
        """Commit at the end of `with`; abort where it ends by an exception."""
        if self.is_committed or self.state is State.ABORTED:
            return
        if error is not None:
            yield from self._give_up(error)
            return
        try:
            yield from self.commit(None)
        except GeneratorExit:
            raise
        except BaseException as fault:
            yield from self._give_up(fault)
            if not self.is_committed or not isinstance(fault, ShardmqError):  # a signal's, a cancelled task's
                raise

    def _seal(self) -> Steps[Sealed]:
        if self._sealed is None:
            yield from self._flush(self._seconds)
            self.is_taking = False
            self._sealed = yield from self._insist(transactions.transaction_seal(self.number, self.attempt))
            self.state = State.SEALED
        yield from self._flush(self._seconds)  # what other threads published in between may have come too late
        return self._sealed

    def _flush(self, seconds: float) -> Steps[None]:
        try:
            yield Flush(seconds)
        except Timeout as late:
            why = f" ({self._put_off_because})" if self._put_off_because else ""
            raise Timeout(
                f"{late.text}{why}; nothing of transaction '{self.name}' has appeared: seal or commit it "
                f"again, or abort it"
            ) from late
        if self._failure is not None:
            raise self._refusal()

    def _give_up(self, error: BaseException) -> Steps[None]:
        """Abort it because of an error; or learn that it was committed after all."""
        try:
            yield from self.abort()
        except PreconditionFailed as refused:
            if self._may_be_committed:
                self.state = State.COMMITTED
            error.add_note(f"transaction '{self.name}' was not aborted: {refused}")
        except ShardmqError as fault:
            error.add_note(
                f"transaction '{self.name}' could not be aborted ({fault}); the broker does it when its "
                f"time is over, unless it was committed"
            )
        else:
            error.add_note(f"transaction '{self.name}' was aborted: nothing of it appears")

    def _insist(self, request: Request[T]) -> Steps[T]:
        """Ask until somebody can answer: no harm is done where all of them are carried out."""
        patience = Patience(self._seconds, self._clock)
        while True:
            try:
                answer: T = yield Asking(request, patience.left)
            except (Unavailable, Timeout):
                if not patience.lasts:
                    raise
            else:
                return answer
            yield Pause(ASK_AGAIN_SECONDS)

    def _complete(self, named: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The attempts that a commit names, refused where they leave out what was published here."""
        if self._sequence and self.attempt not in [attempt for attempt, *_ in named]:
            raise PreconditionFailed(
                f"this commit of transaction '{self.name}' leaves out the {self._messages} "
                f"messages published here: add what seal() returns to `sealed`"
            )
        return named

    def _in_doubt(self, error: ShardmqError) -> ShardmqError:
        return error.with_text(
            f"{error.text}; whether transaction '{self.name}' was committed is not known: commit it "
            f"again, or begin it again by its name, which tells"
        )

    def _refusal(self) -> ShardmqError:
        """The error for a publish that is not taken any more."""
        if self._failure is None:
            return PreconditionFailed(f"transaction '{self.name}' {self.state.value}")
        return again(self._failure)
