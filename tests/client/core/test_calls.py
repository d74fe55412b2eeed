"""Calls that wait for an answer, without a connection: one consumer for all of them, whoever gives up waiting."""

from typing import Any

from shardmq.client.core.calls import CallsCore
from shardmq.client.core.channel import ChannelCore, SettlerCore
from shardmq.client.core.connection import ConnectionCore
from shardmq.errors import ChannelError, Unavailable
from shardmq.message import record as records
from shardmq.message.properties import Properties
from shardmq.protocol.native.operations.basic import BasicConsume, BasicDeliver
from shardmq.protocol.native.operations.connection import Ok, Refused
from tests.client.core.harness import Waiter, hear, opened, sent


def calling() -> tuple[ConnectionCore, ChannelCore, CallsCore]:
    """The calls of an open channel."""
    core, channel = opened()
    settler = SettlerCore()
    settler.core = channel
    return core, channel, CallsCore(core, settler)


def beginning(core: ConnectionCore) -> BasicConsume:
    """What asks for the consumer, the only thing that was said."""
    [operation] = sent(core)
    assert isinstance(operation, BasicConsume)
    return operation


def answer(correlation_id: str) -> BasicDeliver:
    """An answer of somebody."""
    packed = records.pack(Properties(correlation_id=correlation_id), b"answer")
    return BasicDeliver(1, "t", 1, False, "", "q", 1, 5, 1, 1, 1, packed)


def test_the_consumer_begins_once_for_all_though_the_first_one_gave_up() -> None:
    core, _, calls = calling()
    first, second, third = Waiter(), Waiter(), Waiter()
    calls.begin(first)
    asked = beginning(core)
    first.is_gone = True
    calls.begin(second)
    assert sent(core) == []
    hear(core, Ok(asked.request, 1, {"consumer": "t"}))
    calls.begin(third)
    assert sent(core) == []
    assert (first.results, second.results, third.results) == ([], [asked.queue], [asked.queue])
    assert calls.reply_to == asked.queue


def test_the_consumer_stays_for_later_calls_where_all_gave_up() -> None:
    core, channel, calls = calling()
    gone, later = Waiter(), Waiter()
    calls.begin(gone)
    asked = beginning(core)
    gone.is_gone = True
    hear(core, Ok(asked.request, 1, {"consumer": "t"}))
    calls.begin(later)
    assert (sent(core), later.results, list(channel.inboxes)) == ([], [asked.queue], ["t"])


def test_where_it_cannot_begin_all_are_told_and_the_next_call_tries_again() -> None:
    core, _, calls = calling()
    waiters = [Waiter(), Waiter()]
    for waiter in waiters:
        calls.begin(waiter)
    hear(core, Refused(beginning(core).request, 1, 506, "the coordinator is not there now"))
    assert [type(waiter.errors[0]) for waiter in waiters] == [Unavailable, Unavailable]
    calls.begin(Waiter())
    assert beginning(core).auto_ack


def test_answers_go_to_who_waits_for_them_and_all_hear_of_the_end() -> None:
    core, channel, calls = calling()
    calls.begin(Waiter())
    hear(core, Ok(beginning(core).request, 1, {"consumer": "t"}))
    waiters: list[Any] = [Waiter(), Waiter(), Waiter()]
    asked = [calls.expect(waiter) for waiter in waiters]
    assert len(set(asked)) == 3
    hear(core, answer(asked[1]), answer("of nobody"))
    calls.forget(asked[2])
    core.state.end_channel(channel, ChannelError("it is closed"))
    assert [waiter.results[0].body for waiter in waiters if waiter.results] == [b"answer"]
    assert [len(waiter.errors) for waiter in waiters] == [1, 0, 0]
    assert (calls.reply_to, core.state.undelivered) == ("", 0)


def test_a_channel_that_closes_meanwhile_is_told() -> None:
    core, channel, calls = calling()
    waiter = Waiter()
    calls.begin(waiter)
    core.state.end_channel(channel, ChannelError("it is closed"))
    assert isinstance(waiter.errors[0], ChannelError)
    assert calls.reply_to == ""
