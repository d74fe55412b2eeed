"""`shardmq tap`, as a user runs it."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from tests.cmd.interrupts import heeding_interrupts

HEADERS = {"x-match": "all", "speed": "express"}


@pytest.fixture
def channel(at: Broker) -> Iterator[shardmq.Channel]:
    """A channel of a connection that ends with the test."""
    with shardmq.connect(at.url) as connection:
        yield connection.channel()


@contextmanager
def tapping(at: Broker, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A tap that is bound and consumes."""
    with heeding_interrupts():
        running = subprocess.Popen(
            command("tap", *arguments, "--url", at.url),
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    with running:
        try:
            assert running.stderr is not None
            assert running.stderr.readline().startswith(b"Tapping exchange")
            yield running
        finally:
            running.kill()


def keys(running: subprocess.Popen[bytes]) -> list[str]:
    """The routing keys of all that a tap prints until its end."""
    assert running.stdout is not None
    return [json.loads(line)["routing_key"] for line in running.stdout]


def test_a_tap_copies_what_queues_get_and_leaves_it_to_them(at: Broker, channel: shardmq.Channel) -> None:
    channel.exchange_declare("strays", "fanout")
    channel.exchange_declare("tapped", "topic", arguments={"alternate-exchange": "strays"})
    for queue, exchange, key in (("kept", "tapped", "order.#"), ("kept", "tapped", "*.new"), ("lost", "strays", "")):
        channel.queue_declare(queue)
        channel.queue_bind(queue, exchange, key)
    with tapping(at, "tapped", "-n", "2") as running:
        for key in ("order.new", "odd", "order.old"):
            channel.basic_publish("tapped", key, b"x")
        assert keys(running) == ["order.new", "order.old"]
        assert running.wait(10) == 0
    assert [message.routing_key for message in channel.queue_peek("kept")] == ["order.new", "order.old"]
    assert [message.routing_key for message in channel.queue_peek("lost")] == ["odd"]


def test_a_tap_with_a_key_copies_what_no_queue_gets(at: Broker, channel: shardmq.Channel) -> None:
    channel.exchange_declare("unbound", "direct")
    with tapping(at, "unbound", "--key", "a", "--key", "b", "-n", "2") as running:
        for key in ("a", "c", "b"):
            channel.basic_publish("unbound", key, b"x")
        assert keys(running) == ["a", "b"]


def test_a_tap_of_a_headers_exchange_goes_by_its_queues_headers(at: Broker, channel: shardmq.Channel) -> None:
    channel.exchange_declare("by-headers", "headers")
    channel.queue_declare("express")
    channel.queue_bind("express", "by-headers", "", HEADERS)
    with tapping(at, "by-headers", "-n", "1") as running:
        channel.basic_publish("by-headers", "slow", b"x")
        channel.basic_publish("by-headers", "fast", b"x", shardmq.Properties(headers={"speed": "express"}))
        assert keys(running) == ["fast"]


def test_a_tap_leaves_nothing_behind(at: Broker, channel: shardmq.Channel) -> None:
    with tapping(at, "amq.fanout", "--key", "") as running:
        os.kill(running.pid, signal.SIGINT)
        assert running.wait(10) == 130
    with shardmq.connect(at.url) as connection:
        left = [row for row in connection.topology("bindings") if row["source"] == "amq.fanout"]
    assert left == []
    with pytest.raises(shardmq.errors.Unroutable):
        channel.basic_publish("amq.fanout", "", b"x", mandatory=True)


def test_exchanges_that_a_tap_would_change_are_refused(channel: shardmq.Channel, refused: Callable[..., str]) -> None:
    channel.exchange_declare("hashed", "x-consistent-hash")
    assert "one destination" in refused("tap", "hashed")
    assert "leave --key out" in refused("tap", "amq.headers", "--key", "a")
    assert "nothing is bound" in refused("tap", "amq.topic")
    assert "no exchange 'absent'" in refused("tap", "absent")
    assert "default exchange" in refused("tap", "")
