"""Shells complete the names that a broker has, and nothing where none answers."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

import shardmq
from shardmq.cmd.main import cli
from shardmq.cmd.run.broker import Broker


def completed(*words: str) -> list[str]:
    """What a shell is told for a command line whose last word is not yet whole."""
    *given, last = words
    return [item.value for item in ShellComplete(cli, {}, "shardmq", "").get_completions(given, last)]


@pytest.fixture(scope="module")
def full(broker: Broker) -> Iterator[Broker]:
    """The broker with queues, a topic that a group reads, and a user."""
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        for name in ("orders", "orders.late", "invoices", "o(dd"):
            channel.queue_declare(name, durable=True)
        channel.exchange_declare("events", "topic", durable=True)
        channel.queue_declare("journal", durable=True, arguments={"x-queue-type": "stream"})
        channel.group_commit("journal", "billing", {0: 0})
        connection.user_put("ann", "secret")
        yield broker


@pytest.mark.usefixtures("full", "at")
def test_names_of_the_broker_are_completed() -> None:
    assert completed("queue", "purge", "ord") == ["orders", "orders.late"]
    assert completed("queue", "purge", "o(") == ["o(dd"]
    assert completed("consume", "") == ["invoices", "journal", "o(dd", "orders", "orders.late"]
    assert completed("exchange", "delete", "ev") == ["events"]
    assert completed("user", "delete", "a") == ["ann"]
    assert completed("vhost", "delete", "") == ["/"]
    assert completed("group", "describe", "journal", "b") == ["billing"]
    assert completed("check", "group", "elsewhere", "b") == []


def test_the_url_on_the_command_line_is_asked(full: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDMQ_URL", "shardmq://127.0.0.1:1")
    assert completed("queue", "purge", "--url", full.url, "inv") == ["invoices"]


def test_a_broker_that_does_not_answer_completes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDMQ_URL", "shardmq://127.0.0.1:1")
    assert completed("queue", "purge", "x") == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_names_as_the_documents_have_it_set_up(full: Broker) -> None:
    script = """
        eval "$(_SHARDMQ_COMPLETE=bash_source shardmq)"
        COMP_WORDS=(shardmq queue purge ord) COMP_CWORD=3
        _shardmq_completion shardmq
        echo "${COMPREPLY[@]}"
    """
    path = f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path, "SHARDMQ_URL": full.url}
    done = subprocess.run(["bash", "-c", script], env=variables, capture_output=True, text=True, timeout=30, check=True)
    assert (done.stdout.split(), done.stderr) == (["orders", "orders.late"], "")
