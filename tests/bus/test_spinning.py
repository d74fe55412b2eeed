"""A process stays awake for conversations, and for nothing else."""

import os
import time
from collections.abc import Iterator

import pytest

from shardmq.bus.poller import Poller
from shardmq.bus.spinning import AWAKE_SECONDS, SCORE_MAX, SCORE_MIN, Spinning

PASS_SECONDS = 0.0002
IN_TIME = AWAKE_SECONDS * 0.8
LATE = AWAKE_SECONDS * 1.5


class Turns:
    """Passes of a process, each begun some time after the one before has ended."""

    def __init__(self, source: int) -> None:
        self.spinning = Spinning(Poller([source]))
        self._ended = time.monotonic()

    def run(self, *gaps: float, is_small: bool = True) -> None:
        for gap in gaps:
            began = self._ended + gap
            self._ended = began + PASS_SECONDS
            self.spinning.passed(began, self._ended, is_small)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


@pytest.fixture
def turns(pipe: tuple[int, int]) -> Turns:
    return Turns(pipe[0])


def test_a_process_stays_awake_while_answers_bring_more_in_time(turns: Turns) -> None:
    turns.run(*[IN_TIME] * 100)
    assert turns.spinning.is_worth_it


def test_it_does_not_stay_awake_for_what_comes_late(turns: Turns) -> None:
    turns.run(*[LATE] * 10)
    assert not turns.spinning.is_worth_it


def test_one_late_answer_does_not_end_a_conversation(turns: Turns) -> None:
    turns.run(*[IN_TIME] * SCORE_MAX, LATE, *[IN_TIME] * 3, LATE)
    assert turns.spinning.is_worth_it


def test_half_of_the_tries_are_too_few(turns: Turns) -> None:
    turns.run(*[IN_TIME, LATE] * SCORE_MAX)
    assert not turns.spinning.is_worth_it


def test_a_conversation_that_begins_is_noticed_while_the_process_sleeps(turns: Turns) -> None:
    turns.run(*[LATE] * 100)
    turns.run(*[IN_TIME] * SCORE_MIN)
    assert turns.spinning.is_worth_it


def test_large_passes_tell_nothing(turns: Turns) -> None:
    turns.run(*[LATE] * 100, is_small=False)
    assert turns.spinning.is_worth_it


@pytest.mark.parametrize("gap", [IN_TIME, LATE])
def test_what_comes_is_noticed_awake_or_not(turns: Turns, pipe: tuple[int, int], gap: float) -> None:
    turns.run(*[gap] * 20)
    assert not turns.spinning.wait(0)
    assert not turns.spinning.wait(AWAKE_SECONDS * 2)
    os.write(pipe[1], b"x")
    assert turns.spinning.wait(10)
