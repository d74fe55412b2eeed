"""`shardmq context`: brokers by name, in a file that nobody else reads."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker

Printed = Callable[..., bytes]
Parsed = Callable[..., Any]
Refused = Callable[..., str]

NOWHERE = "shardmq://ann:secret@127.0.0.1:1/"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for settings, and no SHARDMQ_URL."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("SHARDMQ_URL", raising=False)
    return tmp_path


def test_commands_use_the_selected_context_unless_a_url_is_given(
    broker: Broker, printed: Printed, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed("context", "add", "here", broker.url)
    assert b"amq.topic" in printed("exchange", "list")
    printed("context", "add", "away", NOWHERE, "--select")
    assert "no broker answers" in refused("exchange", "list")
    assert b"amq.topic" in printed("exchange", "list", "--url", broker.url)
    monkeypatch.setenv("SHARDMQ_URL", broker.url)
    assert b"amq.topic" in printed("exchange", "list")
    monkeypatch.delenv("SHARDMQ_URL")
    assert printed("context", "previous") == b"Selected context 'here'\n"
    assert b"logged in as guest to virtual host '/'" in printed("context", "validate")
    assert "no broker answers" in refused("context", "validate", "away")
    printed("context", "previous")
    assert "no broker answers" in refused("exchange", "list")


def test_shovels_are_those_of_the_context_and_in_its_virtual_host(
    broker: Broker, printed: Printed, parsed: Parsed, refused: Refused
) -> None:
    with shardmq.connect(broker.url) as connection:
        connection.vhost_put("eu west")
        connection.permission_put("guest", "eu west", ".*", ".*", ".*")
    printed("context", "add", "west", f"{broker.url}eu%20west", "--select")
    ends = ("--queue", "in", "--to", "amqp://127.0.0.1:1", "--to-queue", "out", "--reconnect-delay", "0")
    assert printed("shovel", "add", "mover", *ends) == b"Added shovel 'mover' in virtual host 'eu west'\n"
    assert [(row["name"], row["vhost"]) for row in parsed("shovel", "list")] == [("mover", "eu west")]
    assert printed("shovel", "restart", "mover") == b"Restarted shovel 'mover' in virtual host 'eu west'\n"
    printed("context", "add", "away", NOWHERE, "--select")
    for words in (("list",), ("add", "mover", *ends), ("restart", "mover"), ("delete", "mover")):
        assert "no broker answers" in refused("shovel", *words)
    printed("context", "previous")
    assert "no shovel 'mover' in vhost '/'" in refused("shovel", "delete", "mover", "--vhost", "/")
    assert printed("shovel", "delete", "mover") == b"Deleted shovel 'mover' in virtual host 'eu west'\n"
    assert parsed("shovel", "list") == []


def test_lists_hide_passwords(printed: Printed, parsed: Parsed) -> None:
    printed("context", "add", "away", NOWHERE, "--description", "far off")
    assert parsed("context", "list") == [
        {"name": "away", "url": "shardmq://ann:…@127.0.0.1:1/", "description": "far off", "selected": True}
    ]
    assert b"secret" not in printed("context", "show")
    assert parsed("context", "show", "away", "--password")["url"] == NOWHERE


def test_the_file_is_its_users_alone(home: Path, printed: Printed, refused: Refused) -> None:
    printed("context", "add", "away", NOWHERE)
    file = home / "shardmq" / "contexts.json"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert list(file.parent.iterdir()) == [file]
    file.chmod(0o644)
    assert f"run `chmod 600 {file}`" in refused("context", "list")
    assert "chmod" in refused("queue", "list")
    file.chmod(0o600)
    for damaged in ("nonsense", "[]", json.dumps({"format": 2}), json.dumps({"format": 1, "contexts": {"a": {}}})):
        file.write_text(damaged)
        assert "is no file of contexts" in refused("queue", "list")


def test_a_url_can_be_kept_from_the_shells_memory(
    printed: Printed, parsed: Parsed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(NOWHERE + "\n"))
    printed("context", "add", "away", "-")
    assert parsed("context", "show", "--password")["url"] == NOWHERE


def test_what_is_wrong_is_said(printed: Printed, refused: Refused) -> None:
    assert "`shardmq context add` makes one" in refused("context", "select", "missing")
    assert "no context is selected" in refused("context", "show")
    assert "no other context" in refused("context", "previous")
    assert "is no name" in refused("context", "add", "a b", NOWHERE, code=2)
    assert "none of shardmq://" in refused("context", "add", "web", "http://nowhere", code=2)
    printed("context", "add", "away", NOWHERE)
    assert "--replace changes it" in refused("context", "add", "away", NOWHERE)
    assert "there are away" in refused("context", "remove", "missing")
    assert printed("context", "remove", "away") == b"Removed context 'away'\n"
    assert "no context is selected" in refused("context", "validate")
