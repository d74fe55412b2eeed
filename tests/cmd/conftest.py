"""What tests of commands share: a broker that they talk to, and what they write."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from shardmq.cmd.main import run
from shardmq.cmd.run.broker import Broker

Printed = Callable[..., bytes]
Parsed = Callable[..., Any]


@pytest.fixture
def at(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """The broker of the file, for commands without --url."""
    monkeypatch.setenv("SHARDMQ_URL", broker.url)
    return broker


@pytest.fixture
def printed(capsysbinary: pytest.CaptureFixture[bytes]) -> Printed:
    """What a command writes to stdout: `printed("queue", "list")`; `code` is how it is to end."""

    def give(*arguments: str, code: int = 0) -> bytes:
        assert run(arguments) == code, capsysbinary.readouterr().err.decode()
        return capsysbinary.readouterr().out

    return give


@pytest.fixture
def parsed(printed: Printed) -> Parsed:
    """What a command writes as JSON."""

    def give(*arguments: str, code: int = 0) -> Any:
        return json.loads(printed(*arguments, "--json", code=code))

    return give


@pytest.fixture
def refused(capsysbinary: pytest.CaptureFixture[bytes]) -> Callable[..., str]:
    """What a command that fails says."""

    def give(*arguments: str, code: int = 1) -> str:
        assert run(arguments) == code
        return capsysbinary.readouterr().err.decode()

    return give
