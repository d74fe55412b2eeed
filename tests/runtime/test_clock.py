"""The clocks that processes read."""

import time

import pytest

from shardmq.runtime.clock import boottime


def test_deadlines_that_others_rely_on_go_on_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    at = {time.CLOCK_BOOTTIME: 1000.0, time.CLOCK_MONOTONIC: 7.0}  # the machine was suspended for most of its life
    monkeypatch.setattr(time, "clock_gettime", at.__getitem__)
    assert boottime() == 1000.0
