"""What the management process says where it can take no samples."""

import asyncio
import logging

import pytest

from shardmq.management import sampling
from shardmq.management.sampling import Sampler
from shardmq.management.state.callers import Callers, Credentials
from shardmq.management.state.facts import Facts
from tests.ports import free_ports


def test_a_broker_that_is_away_is_told_of_once_and_not_at_the_first_look(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks, told = 0, []

    async def pause(_seconds: float) -> None:
        nonlocal looks
        looks += 1
        told.append(len(caplog.records))
        if looks == 4:
            raise asyncio.CancelledError

    url = f"shardmq://guest:guest@127.0.0.1:{free_ports(1)[0]}/"
    monkeypatch.setattr(sampling.asyncio, "sleep", pause)
    caplog.set_level(logging.WARNING, "shardmq")
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(Sampler(Callers(url), Facts(url, "here", "127.0.0.1", 0), Credentials("guest", "guest")).run())
    assert told == [0, 1, 1, 1]
    assert "no samples were taken: no broker answers" in caplog.text
