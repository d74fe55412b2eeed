"""`shardmq top`: a snapshot in a pipe, and a live view on a terminal of 80 columns and 24 lines."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from tests.cmd.pseudo_terminal import Terminal

QUEUES = 40


@pytest.fixture(scope="module")
def full(broker: Broker) -> Iterator[Broker]:
    """The broker with forty empty queues and one with ten messages."""
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        for number in range(QUEUES):
            channel.queue_declare(f"idle-{number:02}", durable=True)
        channel.queue_declare("zz-busy", durable=True)
        for _ in range(10):
            channel.basic_publish("", "zz-busy", b"x")
        yield broker


@pytest.fixture
def terminal(full: Broker) -> Iterator[Terminal]:
    """`shardmq top` on a small terminal; its looks come from keys alone."""
    shown = Terminal(command("top", "--interval", "60", "--sort", "ready"), environment(SHARDMQ_URL=full.url))
    try:
        yield shown
    finally:
        shown.close()


@pytest.mark.usefixtures("full", "at")
def test_a_snapshot_has_the_broker_and_its_fullest_queues(printed: Callable[..., bytes]) -> None:
    lines = printed("top", "--sort", "ready", "--rows", "3").decode().splitlines()
    assert lines[0].startswith("broker\t41 queues, ")
    assert [line.split("\t")[:4] for line in lines if line.startswith("queue")] == [
        ["queue", "zz-busy", "10", "0"],
        ["queue", "idle-00", "0", "0"],
        ["queue", "idle-01", "0", "0"],
    ]
    assert printed("top", "--sort", "deliver", "--rows", "1").count(b"\nqueue\t") == 1
    assert printed("top", "--once", "--filter", "BUSY").count(b"\nqueue\t") == 1


@pytest.mark.usefixtures("full", "at")
def test_machines_get_the_rows_as_they_are(parsed: Callable[..., Any]) -> None:
    found = parsed("top", "--sort", "name", "--reverse", "--rows", "1")
    assert (found["found"], found["overview"]["queue_totals"]["ready"]) == (QUEUES + 1, 10)
    assert [row["name"] for row in found["queues"]] == ["zz-busy"]


def test_a_small_terminal_has_the_fullest_queue_first_and_the_keys_below(terminal: Terminal) -> None:
    shown = terminal.read_until("q quit")
    lines = [line.rstrip() for line in shown.splitlines()]
    assert len(lines) <= 24
    assert all(len(line) <= 80 for line in lines)
    header = next(number for number, line in enumerate(lines) if line.startswith("queue "))
    assert lines[header + 2].startswith("zz-busy")
    assert "41 queues, page 1 of 3, by ready" in shown


def test_keys_sort_reverse_filter_turn_pages_and_quit(terminal: Terminal) -> None:
    terminal.read_until("q quit")
    terminal.type("n")
    terminal.read_until("page 2 of 3")
    terminal.type("s")
    terminal.read_until("page 1 of 3, by unacked")
    terminal.type("r")
    terminal.read_until("by unacked reversed")
    terminal.type("/")
    terminal.read_until("filter: _")
    terminal.type("idle-3x\x7f7\r")
    terminal.read_until("1 queue with 'idle-37'")
    terminal.type("q")
    assert terminal.wait() == 0


def test_what_comes_while_somebody_looks_is_shown_without_a_key(full: Broker) -> None:
    shown = Terminal(command("top", "--interval", "0.5", "--sort", "ready"), environment(SHARDMQ_URL=full.url))
    try:
        shown.read_until("q quit")
        with shardmq.connect(full.url) as connection, connection.channel() as channel:
            with channel.publisher() as publisher:
                publisher.publish_many("", "idle-05", [b"x"] * 777)
            shown.read_until("777")
            channel.queue_purge("idle-05")
        shown.type("q")
        assert shown.wait() == 0
    finally:
        shown.close()


def test_a_broker_that_does_not_answer_ends_it_with_a_sentence(refused: Callable[..., str]) -> None:
    assert "no broker answers" in refused("top", "--url", "shardmq://127.0.0.1:1")
