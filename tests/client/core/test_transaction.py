"""How a transaction's messages are numbered, and published again while a shard is away."""

import pytest

from shardmq.client.core.transaction import (
    RESEND_SECONDS,
    RESEND_SECONDS_MAX,
)
from shardmq.errors import (
    AccessRefused,
    ChannelError,
    ConnectionLost,
    NotFound,
    PreconditionFailed,
    PublishRefused,
    ShardmqError,
    Unroutable,
)
from shardmq.limits import FRAMED_PRODUCERS
from shardmq.message import record as records
from shardmq.protocol.native.operations.basic import BasicReturn
from tests.client.core.harness import Waiter, hear, sent
from tests.client.core.recovering import LOST, let_in, opened, restore
from tests.client.core.staging import AWAY, SECONDS, begun, confirm, named, publish, refuse


def test_its_messages_are_numbered_from_zero_without_gaps_beside_those_of_its_channel() -> None:
    core, channel, _ = opened()
    transaction, _ = begun(core, channel)
    other, _ = begun(core, channel, 8)
    publish(transaction, channel, 3, 4)
    core.publish(channel, ("x", "k", 1, 5, records.pack_many([b""] * 5), 0, 0, 0, 0), Waiter())
    publish(other, channel, 2)
    publish(transaction, channel, 1)
    core.publish(channel, ("x", "k", 1, 1, records.pack(None, b""), 0, 0, 0, 0), Waiter())
    said = sent(core)
    assert [(one.transaction, one.producer, one.sequence) for one in said] == [
        (7, transaction.attempt, 0),
        (7, transaction.attempt, 3),
        (0, channel.producer, 1),
        (8, other.attempt, 0),
        (7, transaction.attempt, 7),
        (0, channel.producer, 6),
    ]
    assert transaction.attempt != other.attempt


def test_attempts_are_numbers_of_producers_whose_messages_the_broker_does_not_sort() -> None:
    core, channel, _ = opened()
    for _ in range(50):
        assert 1 <= begun(core, channel)[0].attempt < FRAMED_PRODUCERS


def test_what_is_refused_while_a_shard_is_away_is_published_again_under_the_same_numbers_in_their_order() -> None:
    core, channel, _ = opened()
    transaction, times = begun(core, channel)
    waiters = publish(transaction, channel, 3, 4, 5)
    first, second, third = sent(core)
    refuse(core, third, first)
    confirm(core, second)
    assert times.later == [RESEND_SECONDS]
    assert sent(core) == []
    assert [(waiter.confirmed, waiter.refused) for waiter in waiters] == [(0, []), (4, []), (0, [])]
    transaction.resend()
    again = sent(core)
    assert named(again) == [(0, 3), (7, 5)]
    assert {(one.producer, one.transaction, one.exchange) for one in again} == {(transaction.attempt, 7, "x")}
    assert [one.records for one in again] == [first.records, third.records]
    confirm(core, *again)
    assert [waiter.confirmed for waiter in waiters] == [3, 4, 5]


def test_it_is_published_again_later_and_later_until_something_is_taken() -> None:
    core, channel, _ = opened()
    transaction, times = begun(core, channel)
    publish(transaction, channel, 1)
    for _ in range(6):
        refuse(core, *sent(core))
        transaction.resend()
    assert times.later == [0.1, 0.2, 0.4, 0.8, RESEND_SECONDS_MAX, RESEND_SECONDS_MAX]
    confirm(core, *sent(core))
    publish(transaction, channel, 1)
    refuse(core, *sent(core))
    assert times.later[-1] == RESEND_SECONDS


def test_what_is_refused_for_longer_than_its_timeout_fails_with_the_reason() -> None:
    core, channel, _ = opened()
    transaction, times = begun(core, channel)
    [waiter] = publish(transaction, channel, 2)
    refuse(core, *sent(core))
    transaction.resend()
    times.now += SECONDS
    refuse(core, *sent(core))
    [error] = waiter.refused
    assert isinstance(error, PublishRefused)
    assert error.text.startswith(AWAY)
    assert "again and again for 10 s" in error.text
    with pytest.raises(PublishRefused, match="again and again"):
        transaction.check_taking()


@pytest.mark.parametrize(("code", "kind"), [(404, NotFound), (406, PreconditionFailed), (403, AccessRefused)])
def test_other_refusals_fail_at_once_and_publishing_says_so(code: int, kind: type[ShardmqError]) -> None:
    core, channel, _ = opened()
    transaction, times = begun(core, channel)
    [first, second] = publish(transaction, channel, 1, 1)
    assert transaction.is_taking
    one, two = sent(core)
    refuse(core, one, code=code, text="no")
    assert [type(error) for error in first.refused] == [kind]
    with pytest.raises(kind, match="no"):
        transaction.check_taking()
    [third] = publish(transaction, channel, 1)
    assert sent(core) == []
    assert [type(error) for error in third.refused] == [kind]
    refuse(core, two)
    assert [type(error) for error in second.refused] == [PublishRefused]
    assert times.later == []


def test_a_lost_connection_publishes_again_what_was_not_confirmed_and_what_was_put_off() -> None:
    core, channel, _ = opened()
    transaction, _ = begun(core, channel)
    waiters = publish(transaction, channel, 1, 2, 3)
    first, second, _ = sent(core)
    confirm(core, second)
    refuse(core, first)
    core.break_off(LOST)
    waiters += publish(transaction, channel, 4)
    transaction.resend()
    assert sent(core) == []
    let_in(core)
    restore(core)
    again = sent(core)
    assert sorted(named(again)) == [(0, 1), (3, 3), (6, 4)]
    assert {(one.producer, one.transaction) for one in again} == {(transaction.attempt, 7)}
    confirm(core, *again)
    assert [waiter.confirmed for waiter in waiters] == [1, 2, 3, 4]


def test_much_that_was_put_off_is_published_again_in_portions_and_all_else_behind_it() -> None:
    core, channel, _ = opened()
    transaction, _ = begun(core, channel)
    for _ in range(5):
        transaction.publish(channel, ("x", "k", 1, 1, records.pack(None, bytes(500_000)), 0, 0, 0, 0), Waiter())
    refuse(core, *sent(core))
    transaction.resend()
    publish(transaction, channel, 1)
    parts = []
    while core.state.is_holding:
        parts.append(named(sent(core)))
        core.state.pump()
    parts.append(named(sent(core)))
    assert [pair for part in parts for pair in part] == [(number, 1) for number in range(6)]
    assert max(map(len, parts)) <= 3


@pytest.mark.parametrize("loses", [False, True])
def test_the_end_of_its_channel_or_connection_settles_what_was_put_off(loses: bool) -> None:
    core, channel, _ = opened()
    transaction, _ = begun(core, channel)
    [waiter] = publish(transaction, channel, 2)
    refuse(core, *sent(core))
    if loses:
        core.lose(ConnectionLost("for good"))
    else:
        core.close_channel(channel, ChannelError("closed by this program"), Waiter())
        sent(core)
    assert [type(error) for error in waiter.refused] == [ConnectionLost if loses else ChannelError]
    transaction.resend()
    assert sent(core) == []
    with pytest.raises(ShardmqError, match="for good" if loses else "closed by this program"):
        transaction.check_taking()


def test_what_comes_back_is_told_once_though_it_is_published_again() -> None:
    core, channel, _ = opened()
    transaction, _ = begun(core, channel)
    [waiter] = publish(transaction, channel, 2, mandatory=True)
    for refused in (True, False):
        [operation] = sent(core)
        hear(core, BasicReturn(1, operation.request, 312, "NO_ROUTE", "x", "k", 3, 1, records.pack(None, b"x")))
        if refused:
            refuse(core, operation)
            transaction.resend()
        else:
            confirm(core, operation)
    assert [(count, type(error)) for count, error in waiter.came_back] == [(1, Unroutable)]
    assert waiter.confirmed == 2
    assert transaction.is_taking
