"""A gateway stays awake where that pays: it has the time, or its clients say more for it."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from shardmq.bus import spinning
from shardmq.gateway.wakefulness import (
    AGAIN_SECONDS,
    FIRST_SECONDS,
    GAIN,
    REMEASURE_SECONDS,
    WORK_SHARE_MAX,
    Wakefulness,
)
from shardmq.protocol.native.operations.connection import Ok
from shardmq.protocol.native.operations.topology import ExchangeDeclare
from shardmq.topology.entities import Exchange
from tests.gateway.rawclient import RawClient
from tests.gateway.stage import PATIENCE_SECONDS, Stage

BUSY = 0.9
SPARE = WORK_SHARE_MAX / 2
WINDOW_SECONDS = 0.1


AWAKE_SECONDS = 0.02
"""Machines that run tests are slow, and busy."""


@pytest.fixture(autouse=True)
def two_idle_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spinning, "core_count", lambda: 2)
    monkeypatch.setattr(spinning, "AWAKE_SECONDS", AWAKE_SECONDS)


class Windows:
    """Looks of a gateway, a tenth of a second apart, with clients that may wait for answers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.awake = Wakefulness(loop)
        self._now = 1000.0

    def look(self, bytes_per_s: float, busy_share: float, is_awaited: bool = True) -> bool:
        self._now += WINDOW_SECONDS
        self.awake.decide(self._now, is_awaited, bytes_per_s, busy_share)
        return self.awake.is_on

    def states(self, seconds: float, bytes_per_s: Callable[[bool], float], busy_share: float) -> list[bool]:
        """Whether it was on in each window, where what clients say depends on that."""
        on = []
        for _ in range(round(seconds / WINDOW_SECONDS)):
            was_on = self.awake.is_on
            on.append(self.look(bytes_per_s(was_on), busy_share))
        return on


@pytest.fixture
def windows() -> Iterator[Windows]:
    loop = asyncio.new_event_loop()
    yield Windows(loop)
    loop.close()


def test_it_stays_awake_while_its_work_leaves_it_time(windows: Windows) -> None:
    on = windows.states(60, lambda _: 1_000_000, SPARE)
    assert on == [False] + [True] * (len(on) - 1)


def test_a_busy_gateway_stays_awake_where_clients_say_more_for_it(windows: Windows) -> None:
    on = windows.states(60, lambda is_on: 1_000_000 * (1.05 * GAIN if is_on else 1), BUSY)
    assert on.count(True) > 0.9 * len(on)
    assert False in on[round(REMEASURE_SECONDS / WINDOW_SECONDS) :]  # it is measured again


def test_a_busy_gateway_for_which_clients_say_no_more_tries_it_ever_more_seldom(windows: Windows) -> None:
    on = windows.states(600, lambda _: 1_000_000, BUSY)
    tried = [number * WINDOW_SECONDS for number, is_on in enumerate(on) if is_on]
    assert len(tried) == on.count(True) < 20
    assert tried[1] - tried[0] < 2 * AGAIN_SECONDS < 50 < tried[-1] - tried[-2] < 70


def test_clients_that_came_within_a_window_are_not_what_it_is_measured_by(windows: Windows) -> None:
    assert not windows.look(100_000, SPARE)
    assert windows.look(1_000_000, SPARE)
    assert not windows.look(1_000_000, BUSY)


def test_it_ends_with_those_who_may_wait_for_answers(windows: Windows) -> None:
    windows.look(1_000_000, SPARE)
    assert windows.look(1_000_000, SPARE)
    assert not windows.look(1_000_000, SPARE, is_awaited=False)


def test_a_busy_gateway_tries_it_a_second_later(windows: Windows) -> None:
    on = windows.states(FIRST_SECONDS + 1, lambda _: 1_000_000, BUSY)
    assert on.index(True) == pytest.approx(FIRST_SECONDS / WINDOW_SECONDS, abs=2)


def test_a_loop_turns_until_nothing_has_come_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    yields: list[None] = []
    monkeypatch.setattr(os, "sched_yield", lambda: yields.append(None))

    async def stay(has_sent: bool, is_small: bool) -> int:
        awake = Wakefulness(asyncio.get_running_loop())
        before = len(yields)
        awake.passed(time.monotonic(), has_sent, is_small)
        await asyncio.sleep(5 * AWAKE_SECONDS)
        looks = len(yields) - before
        await asyncio.sleep(5 * AWAKE_SECONDS)
        assert len(yields) - before == looks
        assert looks < 2 or awake.seconds > 0
        return looks

    assert asyncio.run(stay(has_sent=True, is_small=True)) > 0
    assert asyncio.run(stay(has_sent=True, is_small=False)) == 0
    assert asyncio.run(stay(has_sent=False, is_small=True)) == 0


def test_a_gateway_is_awake_for_a_client_that_goes_on_with_each_answer_and_sleeps_when_it_is_silent(
    start_stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardmq.gateway.session.client_socket.OFTEN", 0)  # on a loaded machine, this client is slow
    monkeypatch.setattr("shardmq.gateway.wakefulness.LOST_SHARE_MAX", 1.0)
    stage = start_stage([], [Exchange("/", "e", "topic")])
    awake = stage.loop._awake
    deadline = time.monotonic() + PATIENCE_SECONDS
    with RawClient(stage).open() as client:
        while not awake.seconds:
            assert time.monotonic() < deadline
            client.send(ExchangeDeclare(3, 1, "e", "topic", True))
            assert client.receive() == Ok(3, 1, None)
            stage.work()
        stage.until(lambda: not awake.is_on)
        stage.until(lambda: not awake._is_looking)
        used_seconds = awake.seconds
        time.sleep(5 * AWAKE_SECONDS)
        assert awake.seconds == used_seconds


@pytest.mark.parametrize(("lost_share", "is_on"), [(0.1, True), (0.4, False)])
def test_it_ends_where_others_use_the_processor_between_two_looks(
    monkeypatch: pytest.MonkeyPatch, lost_share: float, is_on: bool
) -> None:
    now = [1000.0, 0.0]  # monotonic, and of this thread's processor

    def give_way() -> None:
        now[0] += 0.0001
        now[1] += 0.0001 * (1 - lost_share)

    monkeypatch.setattr(os, "sched_yield", give_way)
    loop = asyncio.new_event_loop()
    windows = Windows(loop)
    windows.look(1_000_000, SPARE)
    assert windows.look(1_000_000, SPARE)
    with monkeypatch.context() as patch:
        clocks = SimpleNamespace(monotonic=lambda: now[0], thread_time=lambda: now[1])
        patch.setattr("shardmq.gateway.wakefulness.time", clocks)
        windows.awake.passed(now[0], has_sent=True, is_small=True)
        loop.call_later(5 * AWAKE_SECONDS, loop.stop)
        loop.run_forever()
    assert windows.look(1_000_000, SPARE) is is_on
    loop.close()


def test_what_a_pass_works_is_not_the_price_of_staying_awake() -> None:
    seconds = []
    for is_due in (False, True):
        loop = asyncio.new_event_loop()
        awake = Wakefulness(loop)
        awake.passed(time.monotonic(), has_sent=True, is_small=True)
        awake.is_due = is_due
        loop.call_later(5 * AWAKE_SECONDS, loop.stop)
        loop.run_forever()
        loop.close()
        seconds.append(awake.seconds)
    assert seconds[0] > 0
    assert seconds[1] == 0
