"""The steps of a transaction's life: begin, seal, commit, abort, and what each insists on."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from shardmq.client.api.results import Begun, Sealed
from shardmq.client.api.url import parse
from shardmq.client.core.channel import ChannelCore
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.requests.steps import ASK_AGAIN_SECONDS, Flush, Pause
from shardmq.client.core.transaction import State, TransactionCore
from shardmq.errors import (
    AccessRefused,
    ChannelError,
    ConnectionLost,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    ShardmqError,
    StillPreparing,
    Timeout,
    Unavailable,
)
from shardmq.protocol.native.operations.connection import Ok
from shardmq.protocol.native.operations.transaction import (
    TransactionAbort,
    TransactionBegin,
    TransactionCommit,
    TransactionSeal,
)
from tests.client.core.harness import Waiter, hear, sent
from tests.client.core.recovering import LOST, let_in, opened, restore
from tests.client.core.staging import AWAY, SECONDS, Flushed, Times, begun, carry_out, publish, refuse


def test_it_is_begun_until_somebody_answers() -> None:
    core, channel, _ = opened()
    times = Times()
    transaction = TransactionCore(core, channel, "batch", 500, SECONDS, times.later.append, times)
    away = Unavailable("the coordinator is not there now")
    _, taken = carry_out(transaction.begin(), times, away, away, Begun(7, "open"))
    asked = TransactionBegin(0, 0, "batch", 500)
    assert taken == [asked, Pause, asked, Pause, asked]
    assert (transaction.number, transaction.is_taking, transaction.is_committed) == (7, True, False)


def test_beginning_gives_up_when_its_time_is_over_and_at_once_where_it_is_refused() -> None:
    core, channel, _ = opened()
    times = Times()
    transaction = TransactionCore(core, channel, "batch", 0, SECONDS, times.later.append, times)
    with pytest.raises(Timeout):
        carry_out(transaction.begin(), times, Unavailable("not now"), Timeout("no answer"))
    with pytest.raises(AccessRefused):
        carry_out(transaction.begin(), times, AccessRefused("it is ann's"))


def test_a_name_that_was_committed_takes_nothing_quietly_and_asks_for_nothing() -> None:
    core, channel, _ = opened()
    times = Times()
    transaction = TransactionCore(core, channel, "batch", 0, SECONDS, times.later.append, times)
    carry_out(transaction.begin(), times, Begun(7, "committed"))
    assert transaction.is_committed
    assert not transaction.is_taking
    transaction.check_taking()
    assert carry_out(transaction.seal(), times) == (Sealed(transaction.attempt, 0), [])
    assert carry_out(transaction.leave(None), times) == (None, [])
    assert carry_out(transaction.leave(LookupError()), times) == (None, [])
    with pytest.raises(PreconditionFailed, match="committed"):
        carry_out(transaction.abort(), times)


def test_a_seal_waits_for_all_confirms_and_comes_once() -> None:
    core, channel, _ = opened()
    transaction, times = begun(core, channel)
    sealed = Sealed(transaction.attempt, 12)
    result, taken = carry_out(transaction.seal(), times, Unavailable("not now"), sealed)
    asked = TransactionSeal(0, 0, 7, transaction.attempt)
    assert (result, taken) == (sealed, [Flush, asked, Pause, asked, Flush])
    assert carry_out(transaction.seal(), times) == (sealed, [Flush])
    with pytest.raises(PreconditionFailed, match="is sealed"):
        transaction.check_taking()


def test_a_flush_that_is_late_says_what_it_waits_for_and_can_be_repeated() -> None:
    core, channel, _ = opened()
    transaction, times = begun(core, channel)
    publish(transaction, channel, 1)
    refuse(core, *sent(core))
    with pytest.raises(Timeout, match=rf"flush: .*{AWAY}.*nothing of transaction 'batch' has appeared"):
        carry_out(transaction.seal(), times, Flushed(Timeout("flush: no answer in 10 s")))
    assert transaction.is_taking
    assert carry_out(transaction.seal(), times, Sealed(transaction.attempt, 1))[0]


def test_a_message_that_was_refused_keeps_it_from_being_sealed_for_ever() -> None:
    core, channel, _ = opened()
    transaction, times = begun(core, channel)
    publish(transaction, channel, 1)
    refuse(core, *sent(core), code=404, text="no exchange 'x'")
    for _ in range(2):
        with pytest.raises(NotFound, match="no exchange"):
            carry_out(transaction.seal(), times)
        with pytest.raises(NotFound, match="no exchange"):
            carry_out(transaction.commit(None), times)
    with pytest.raises(NotFound, match="no exchange"):
        carry_out(transaction.flush(None), times)


def test_a_commit_is_asked_for_until_all_is_visible() -> None:
    core, channel, _ = opened()
    transaction, times = begun(core, channel)
    sealed = Sealed(transaction.attempt, 3)
    answers = [sealed, Unavailable("not now"), False, Unavailable("gone again"), False, True]
    result, taken = carry_out(transaction.commit(None), times, *answers)
    asked = TransactionCommit(0, 0, "batch", 7, [sealed])
    sealing = [Flush, TransactionSeal(0, 0, 7, transaction.attempt), Flush]
    assert taken == [*sealing, asked, *[Pause, asked] * 4]
    assert result is True
    assert transaction.state is State.COMMITTED
    assert carry_out(transaction.commit(None), times, True) == (True, [asked])
    with pytest.raises(PreconditionFailed, match="is committed"):
        transaction.check_taking()


@pytest.mark.parametrize(
    "last", [Timeout("no answer"), Unavailable("not now"), ChannelError("closed"), ConnectionLost("lost")]
)
def test_a_decision_stands_though_nobody_says_that_all_is_visible(last: ShardmqError) -> None:
    core, channel, _ = opened()
    transaction, times = begun(core, channel)
    waits = int(SECONDS / ASK_AGAIN_SECONDS) - 1 if isinstance(last, Unavailable) else 1
    answers = [Sealed(transaction.attempt, 3), *[False] * waits, last]
    result, _ = carry_out(transaction.commit(None), times, *answers)
    assert result is False
    assert transaction.is_committed


@pytest.mark.parametrize("error", [Timeout("no answer"), ChannelError("closed"), ConnectionLost("lost")])
def test_a_commit_without_an_answer_says_how_to_find_out(error: ShardmqError) -> None:
    core, channel, _ = opened()
    transaction, times = begun(core, channel)
    with pytest.raises(type(error), match="begin it again by its name") as caught:
        carry_out(transaction.commit(None), times, Sealed(transaction.attempt, 3), error)
    assert caught.value.__cause__ is error
    assert not transaction.is_committed


def reading(*bytes_read: int) -> list[StillPreparing]:
    """What a broker answers while a shard reads, each time after it has read so much of 100 bytes."""
    return [StillPreparing.of(["shard-0"], "batch", read, 100) for read in bytes_read]


def test_a_commit_is_asked_for_as_long_as_shards_get_on() -> None:
    core, channel, _ = opened()
    transaction, times = begun(core, channel)

    def clock() -> float:
        times.now += SECONDS / 10  # each look at it
        return times.now

    transaction._clock = clock
    result, _ = carry_out(transaction.commit(None), times, Sealed(transaction.attempt, 3), *reading(*range(50)), True)
    assert result is True
    assert times.now > 1000 + 10 * SECONDS


@pytest.mark.parametrize("seconds", [None, 3.0])
def test_a_commit_for_which_nothing_gets_on_or_time_is_over_says_that_nothing_is_decided(
    seconds: float | None,
) -> None:
    core, channel, _ = opened()
    transaction, times = begun(core, channel)
    tries = int((seconds or SECONDS) / ASK_AGAIN_SECONDS)
    told = reading(*[50] * (tries + 1)) if seconds is None else reading(*range(tries))
    with pytest.raises(StillPreparing, match="nothing of transaction 'batch' is decided: commit it again"):
        carry_out(transaction.commit(None, seconds), times, Sealed(transaction.attempt, 3), *told)
    assert transaction.state is State.SEALED
    assert carry_out(transaction.commit(None), times, True)[0] is True


def test_a_shard_that_begins_anew_does_not_get_on() -> None:
    core, channel, _ = opened()
    transaction, times = begun(core, channel)
    tries = int(SECONDS / ASK_AGAIN_SECONDS)
    told = reading(80, *[number % 80 for number in range(tries)])
    with pytest.raises(StillPreparing):
        carry_out(transaction.commit(None), times, Sealed(transaction.attempt, 3), *told)


def test_a_commit_names_the_attempts_it_is_given_in_their_order_as_tuples_or_lists() -> None:
    core, channel, _ = opened()
    transaction, times = begun(core, channel)
    result, taken = carry_out(transaction.commit([Sealed(5, 1), (3, 2), [4, 0]], 5.0), times, True)  # type: ignore[list-item]
    assert (result, taken) == (True, [TransactionCommit(0, 0, "batch", 7, [(5, 1), (3, 2), (4, 0)])])


def test_a_commit_that_leaves_out_what_was_published_here_is_refused() -> None:
    core, channel, _ = opened()
    transaction, times = begun(core, channel)
    publish(transaction, channel, 3)
    with pytest.raises(PreconditionFailed, match="leaves out the 3 messages"):
        carry_out(transaction.commit([(5, 1)]), times)
    carry_out(transaction.commit([(5, 1), (transaction.attempt, 3)]), times, True)


@pytest.mark.parametrize("sealed", ["12", 5, [3], [(1, 2, 3)], [("a", 1)], [(1, True)]])
def test_what_are_no_attempts_is_a_type_error_before_anything_is_asked(sealed: Any) -> None:
    core, channel, _ = opened()
    transaction, times = begun(core, channel)
    with pytest.raises(TypeError):
        carry_out(transaction.commit(sealed), times)
    assert transaction.is_taking


def test_an_attempt_named_twice_is_refused() -> None:
    core, channel, _ = opened()
    transaction, times = begun(core, channel)
    with pytest.raises(InvalidRequest, match="more than once"):
        carry_out(transaction.commit([(5, 1), (5, 1)]), times)


def test_an_abort_is_asked_for_once_and_ends_it() -> None:
    core, channel, _ = opened()
    transaction, times = begun(core, channel)
    assert carry_out(transaction.abort(), times, None)[1] == [TransactionAbort(0, 0, "batch", 7)]
    assert carry_out(transaction.abort(), times) == (None, [])
    assert carry_out(transaction.leave(None), times) == (None, [])
    steps: list[Callable[[], Any]] = [transaction.seal, lambda: transaction.commit(None)]
    for step in steps:
        with pytest.raises(PreconditionFailed, match="aborted; begin it again"):
            carry_out(step(), times)
    with pytest.raises(PreconditionFailed, match="aborted; begin it again"):
        transaction.check_taking()


def test_leaving_seals_and_commits() -> None:
    core, channel, _ = opened()
    transaction, times = begun(core, channel)
    _, taken = carry_out(transaction.leave(None), times, Sealed(transaction.attempt, 0), True)
    assert [step if isinstance(step, type) else type(step) for step in taken] == [
        Flush,
        TransactionSeal,
        Flush,
        TransactionCommit,
    ]
    assert transaction.is_committed
    assert carry_out(transaction.leave(None), times) == (None, [])


def test_leaving_by_an_exception_aborts_and_notes_it() -> None:
    core, channel, _ = opened()
    transaction, times = begun(core, channel)
    fault = LookupError("the program's own")
    assert carry_out(transaction.leave(fault), times, None)[1] == [TransactionAbort(0, 0, "batch", 7)]
    assert fault.__notes__ == ["transaction 'batch' was aborted: nothing of it appears"]


def test_an_abort_that_fails_is_a_note_of_the_exception() -> None:
    core, channel, _ = opened()
    transaction, times = begun(core, channel)
    fault = LookupError("the program's own")
    carry_out(transaction.leave(fault), times, ChannelError("closed by this program"))
    [note] = fault.__notes__
    assert "could not be aborted" in note
    assert "closed by this program" in note


def test_leaving_aborts_what_cannot_be_sealed_or_committed() -> None:
    core, channel, _ = opened()
    transaction, times = begun(core, channel)
    with pytest.raises(PreconditionFailed, match="has expired") as caught:
        carry_out(transaction.leave(None), times, PreconditionFailed("it has expired"), None)
    assert caught.value.__notes__ == ["transaction 'batch' was aborted: nothing of it appears"]
    transaction, times = begun(core, channel)
    refused = PreconditionFailed("attempt 5 has 4 messages")
    with pytest.raises(PreconditionFailed, match="attempt 5"):
        carry_out(transaction.leave(None), times, Sealed(transaction.attempt, 3), refused, None)


def test_a_commit_in_doubt_is_raised_when_the_abort_shows_that_nothing_was_decided() -> None:
    core, channel, _ = opened()
    transaction, times = begun(core, channel)
    with pytest.raises(Timeout, match="is not known") as caught:
        carry_out(transaction.leave(None), times, Sealed(transaction.attempt, 3), Timeout("no answer"), None)
    assert caught.value.__notes__ == ["transaction 'batch' was aborted: nothing of it appears"]


def test_a_commit_in_doubt_is_done_when_the_abort_is_refused_because_it_was_decided() -> None:
    core, channel, _ = opened()
    transaction, times = begun(core, channel)
    answers = [Sealed(transaction.attempt, 3), Timeout("no answer"), PreconditionFailed("it was committed")]
    carry_out(transaction.leave(None), times, *answers)
    assert transaction.is_committed


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, TimeoutError])
@pytest.mark.parametrize("is_told", [True, False])
def test_what_ends_the_program_ends_it_also_where_the_commit_is_decided(
    stop: type[BaseException], is_told: bool
) -> None:
    core, channel, _ = opened()
    transaction, times = begun(core, channel)
    answers = [False, stop()] if is_told else [stop(), PreconditionFailed("it was committed")]
    with pytest.raises(stop) as caught:
        carry_out(transaction.leave(None), times, Sealed(transaction.attempt, 3), *answers)
    assert transaction.is_committed
    assert "was not aborted" in caught.value.__notes__[0]


def test_requests_of_a_transaction_survive_a_lost_connection() -> None:
    core, channel, _ = opened()
    waiters = [Waiter() for _ in range(4)]
    core.request(channel, TransactionBegin(0, 0, "batch", 0), waiters[0])
    core.request(channel, TransactionSeal(0, 0, 7, 5), waiters[1])
    core.request(channel, TransactionCommit(0, 0, "batch", 7, [(5, 1)]), waiters[2])
    core.request(channel, TransactionAbort(0, 0, "batch", 7), waiters[3])
    assert [type(one) for one in sent(core)] == [TransactionBegin, TransactionSeal, TransactionCommit, TransactionAbort]
    core.break_off(LOST)
    let_in(core)
    restore(core)
    for operation in sent(core):
        hear(core, Ok(operation.request, 1, True))
    assert [waiter.results for waiter in waiters] == [[True]] * 4


def test_a_timeout_that_is_no_time_is_refused() -> None:
    core = ConnectionCore(parse("shardmq://localhost/"), 60)
    with pytest.raises(InvalidRequest, match="over 0 seconds"):
        TransactionCore(core, ChannelCore(1, Waiter(), None), "batch", 0, 0, [].append)
