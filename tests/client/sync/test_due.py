"""What is collected is always due to be flushed, in whatever order the I/O thread and others take their steps."""

import select
from collections.abc import Callable, Iterator
from functools import partial
from operator import call
from typing import Any

import pytest

import shardmq
from shardmq.client.api.url import parse
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.interfaces import IgnoredReply
from shardmq.client.core.state import AUTO_ACKED
from shardmq.client.sync import publisher as publisher_module
from shardmq.client.sync import settler as settler_module
from shardmq.client.sync import transport as transport_module
from shardmq.client.sync.publisher import EAGER_BATCHES, TICKS_MAX, Publisher
from shardmq.client.sync.reconnect import Reconnect
from shardmq.client.sync.settler import ChannelSettler
from shardmq.client.sync.transport import Transport
from tests.client.stepping import Step

MODULES = [publisher_module, settler_module, transport_module]


@pytest.fixture
def idle() -> Iterator[Callable[[], tuple[ConnectionCore, Transport]]]:
    """Transports whose I/O threads stand still: a test takes their steps."""
    made: list[Transport] = []

    def make() -> tuple[ConnectionCore, Transport]:
        address = parse("shardmq://127.0.0.1/")
        core = ConnectionCore(address, 0)
        transport = Transport(core, Reconnect([address], None, None, 1.0, call), 1.0, {})
        made.append(transport)
        return core, transport

    yield make
    for transport in made:
        transport._close_all()


def is_awake(transport: Transport) -> bool:
    """Whether the I/O thread flushes again without being told: it ticks, or has been woken."""
    return transport._is_brisk or bool(select.select([transport._wakes.reader], [], [], 0)[0])


@pytest.mark.parametrize("is_brisk", [True, False])
@pytest.mark.parametrize("waiting", [0, 1, 2])
def test_what_becomes_due_at_any_step_is_flushed_or_the_thread_awake(idle: Any, is_brisk: bool, waiting: int) -> None:
    line = 0
    while True:
        line += 1
        _, transport = idle()
        done: list[int] = []
        transport._is_brisk = is_brisk
        transport._due.extend([lambda done=done: done.append(0)] * waiting)
        step = Step([transport_module], [], line, lambda: transport.due(lambda: done.append(1)))  # noqa: B023
        with step.tracing():
            transport._flush_due()
        assert 1 in done or is_awake(transport) or not step.has_acted, f"before line {line}"
        if not step.has_acted:
            break
    assert line > 3


@pytest.mark.parametrize("is_brisk", [True, False])
def test_the_thread_may_flush_at_any_step_of_who_has_something_due(idle: Any, is_brisk: bool) -> None:
    line = 0
    while True:
        line += 1
        _, transport = idle()
        done: list[int] = []
        transport._is_brisk = is_brisk
        step = Step([transport_module], [], line, transport._flush_due)
        with step.tracing():
            transport.due(lambda: done.append(1))  # noqa: B023
        assert done or is_awake(transport), f"before line {line}"
        if not step.has_acted:
            break
    assert line > 2


def both(other: Callable[[], object], own: Callable[[], object], line: int, locks: list[Any]) -> bool:
    """Do something, and something else before a line of it, or afterwards; returns whether there was that line."""
    step = Step(MODULES, locks, line, other)
    with step.tracing():
        own()
    if not step.has_acted:
        other()
    return step.has_acted


@pytest.mark.parametrize("is_flushing", [True, False])
@pytest.mark.parametrize("is_due", [True, False])
def test_an_ack_is_sent_or_due_whatever_the_thread_does_meanwhile(idle: Any, is_flushing: bool, is_due: bool) -> None:
    line, is_more = 0, True
    while is_more:
        line += 1
        core, transport = idle()
        settler = ChannelSettler(core, transport, lambda: None)
        settler.open(IgnoredReply())
        if is_due:
            settler.ack_one(1)
            settler._due_at = 0.0
        flush = transport._due.popleft() if is_due else settler.flush_due
        acts = [flush, partial(settler.ack_one, 2)]
        own, other = acts if is_flushing else reversed(acts)
        is_more = both(other, own, line, [] if is_flushing else [settler._lock])
        assert not settler.core.acknowledgements.count or transport._due, f"before line {line}"
    assert line > 5


@pytest.mark.parametrize("is_flushing", [True, False])
@pytest.mark.parametrize("is_due", [True, False])
@pytest.mark.parametrize("other", [None, shardmq.Properties(type="b")])
def test_a_message_is_sent_or_due_whatever_the_thread_does_meanwhile(
    idle: Any, is_flushing: bool, is_due: bool, other: shardmq.Properties | None
) -> None:
    line, is_more = 0, True
    while is_more:
        line += 1
        core, transport = idle()
        publisher = Publisher.__new__(Publisher)
        channel = core.open_channel(AUTO_ACKED, IgnoredReply())
        publisher._set_up(core, transport, channel, None, 1.0, 0, lambda: False, lambda _: None)
        for _ in range(EAGER_BATCHES):
            publisher.publish("", "q", b"unconfirmed")
        if is_due:
            publisher.publish("", "q", b"due")
        publisher._ticks = TICKS_MAX
        flush = transport._due.popleft() if is_due else publisher._flush_due
        acts = [flush, partial(publisher.publish, "", "q", b"late", other)]
        own, beside = acts if is_flushing else reversed(acts)
        is_more = both(beside, own, line, [publisher._lock, transport.lock])
        assert not publisher._collecting.count or transport._due, f"before line {line}"
        assert len(transport._due) <= 1 + is_due
    assert line > 5
