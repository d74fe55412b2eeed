"""A process stays awake for conversations, and for nothing else."""

import os
import time
from collections.abc import Iterator

import pytest

from shardmq.bus import spinning
from shardmq.bus.poller import Poller
from shardmq.bus.spinning import AWAKE_SECONDS, SCORE_MAX, SCORE_MIN, Spinning

PASS_SECONDS = 0.0002
IN_TIME = AWAKE_SECONDS * 0.8
LATE = AWAKE_SECONDS * 1.5


class Turns:
    """Passes of a process, each begun some time after the one before has ended."""

    def __init__(self) -> None:
        self.spinning = Spinning()
        self.ended = time.monotonic()

    def run(self, *gaps: float, is_small: bool = True) -> None:
        for gap in gaps:
            began = self.ended + gap
            self.ended = began + PASS_SECONDS
            self.spinning.passed(began, self.ended, is_small)

    @property
    def stays_awake(self) -> bool:
        assert self.spinning.awake_until in (0.0, self.ended + AWAKE_SECONDS)
        return self.spinning.awake_until > 0


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spinning, "core_count", lambda: 2)


@pytest.fixture
def turns() -> Turns:
    return Turns()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


def test_a_process_stays_awake_while_answers_bring_more_in_time(turns: Turns) -> None:
    turns.run(*[IN_TIME] * 100)
    assert turns.stays_awake


def test_it_does_not_stay_awake_for_what_comes_late(turns: Turns) -> None:
    turns.run(*[LATE] * 10)
    assert not turns.stays_awake


def test_one_late_answer_does_not_end_a_conversation(turns: Turns) -> None:
    turns.run(*[IN_TIME] * SCORE_MAX, LATE, *[IN_TIME] * 3, LATE)
    assert turns.stays_awake


def test_half_of_the_tries_are_too_few(turns: Turns) -> None:
    turns.run(*[IN_TIME, LATE] * SCORE_MAX)
    assert not turns.stays_awake


def test_a_conversation_that_begins_is_noticed_while_the_process_sleeps(turns: Turns) -> None:
    turns.run(*[LATE] * 100)
    turns.run(*[IN_TIME] * SCORE_MIN)
    assert turns.stays_awake


def test_large_passes_tell_nothing_and_nobody_stays_awake_for_them(turns: Turns) -> None:
    turns.run(*[LATE] * 100, is_small=False)
    assert not turns.stays_awake
    turns.run(IN_TIME)
    assert turns.stays_awake


def test_on_one_core_it_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spinning, "core_count", lambda: 1)
    turns = Turns()
    turns.run(*[IN_TIME] * 100)
    assert not turns.stays_awake


@pytest.mark.parametrize("is_awake", [True, False])
def test_what_comes_is_noticed_awake_or_not(pipe: tuple[int, int], is_awake: bool) -> None:
    poller = Poller([pipe[0]])

    def wait(seconds: float) -> bool:
        return poller.wait(seconds, time.monotonic() + AWAKE_SECONDS if is_awake else 0.0)

    assert not wait(0)
    assert not wait(AWAKE_SECONDS * 2)
    os.write(pipe[1], b"x")
    assert wait(10)
