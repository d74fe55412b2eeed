"""`shardmq trace`, as a user runs it."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import shardmq
from shardmq.cmd.messages.trace import line
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from tests.cmd.conftest import Parsed, Printed
from tests.cmd.pseudo_terminal import Terminal

LARGE = {
    "event": "publish",
    "timestamp_ms": 0,
    "exchange_name": "x",
    "routing_keys": ["k"],
    "routed_queues": [],
    "user": "ann",
    "body": "a\tb\n" + "c" * 200,
}


@pytest.fixture
def channel(at: Broker) -> Iterator[shardmq.Channel]:
    """A channel of a connection that ends with the test."""
    with shardmq.connect(at.url) as connection:
        yield connection.channel()


@contextmanager
def following(at: Broker, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A follower that is bound and consumes."""
    running = subprocess.Popen(
        command("trace", "follow", *arguments, "--url", at.url),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with running:
        try:
            assert running.stderr is not None
            assert running.stderr.readline().startswith(b"Following virtual host '/'")
            yield running
        finally:
            running.kill()


def traced(running: subprocess.Popen[bytes]) -> list[dict[str, Any]]:
    assert running.stdout is not None
    return [json.loads(row) for row in running.stdout]


def test_publishes_and_deliveries_are_printed_while_a_virtual_host_is_traced(
    at: Broker, channel: shardmq.Channel, printed: Printed, parsed: Parsed, refused: Callable[..., str]
) -> None:
    assert "is not traced; `shardmq trace on" in refused("trace", "follow")
    assert b"Tracing 0.5 of the messages of virtual host '/'" in printed("trace", "on", "--sample", "0.5")
    assert parsed("trace", "status") == [{"name": "/", "tracing": True, "trace_sample": 0.5}]
    assert parsed("trace", "on", "--vhost", "/") == {"ok": True}
    channel.queue_declare("seen")
    with following(at, "-n", "2") as running:
        channel.basic_publish("", "seen", b"hello")
        assert channel.basic_get("seen", auto_ack=True) is not None
        published, delivered = traced(running)
        assert running.wait(10) == 0
    assert (published["event"], published["body"], published["routed_queues"]) == ("publish", "hello", ["seen"])
    assert (delivered["event"], delivered["queue"], delivered["routing_keys"]) == ("deliver", "seen", ["seen"])
    with following(at, "-n", "1", "--queue", "seen") as running:
        channel.basic_publish("", "seen", b"\xff")
        assert channel.basic_get("seen", auto_ack=True) is not None
        (only,) = traced(running)
    assert (only["event"], only["body_base64"]) == ("deliver", "/w==")
    assert b"Stopped tracing virtual host '/'" in printed("trace", "off")
    assert parsed("trace", "status") == [{"name": "/", "tracing": False, "trace_sample": 0.0}]
    assert "nowhere" in refused("trace", "on", "--vhost", "nowhere")


def test_on_a_terminal_a_copy_is_a_line(at: Broker, channel: shardmq.Channel, printed: Printed) -> None:
    printed("trace", "on")
    channel.queue_declare("shown")
    terminal = Terminal(command("trace", "follow", "-n", "2", "--url", at.url), environment())
    try:
        terminal.read_until("Following")
        channel.basic_publish("", "shown", b"hello")
        channel.basic_get("shown", auto_ack=True)
        assert terminal.wait() == 0
    finally:
        terminal.close()
    _, published, delivered = terminal.text.strip().splitlines()
    assert "publish to (default) 'shown' -> shown (guest, 5 B) hello" in published
    assert "deliver from shown: (default) 'shown' (guest, 5 B) hello" in delivered
    printed("trace", "off")


def test_a_line_ends_with_the_terminal_and_has_no_control_characters() -> None:
    shown = line(LARGE, 204, 80)
    assert len(shown) == 80
    assert "publish to x 'k' -> nowhere (ann, 204 B) a\\tb\\nccc" in shown
