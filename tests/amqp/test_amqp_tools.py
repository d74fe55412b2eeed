"""Debian's amqp-tools, which are librabbitmq's: what C programs use."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from shardmq.cmd.run.broker import Broker

SECONDS = 60.0

Tool = Callable[..., str]


@pytest.fixture(scope="module")
def tool(find_peer: Callable[..., Path], broker: Broker) -> Tool:
    """Runs one of the tools against the broker: `tool("get", "-q", queue)` is what `amqp-get` writes."""
    programs = find_peer("amqp-tools", "debian/usr/bin/amqp-get", Path("/usr/bin/amqp-get")).parent
    libraries = [str(path.parent) for path in programs.parent.glob("lib/*/librabbitmq.so.4")]

    def run(name: str, *arguments: str, given: str = "", code: int = 0) -> str:
        done = subprocess.run(
            [str(programs / f"amqp-{name}"), "--url", f"amqp://guest:guest@{broker.host}:{broker.port}", *arguments],
            input=given,
            env={**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def test_a_queue_is_declared_filled_read_and_deleted(tool: Tool) -> None:
    assert tool("declare-queue", "-q", "c.durable", "-d") == "c.durable\n"
    tool("publish", "-r", "c.durable", "-p", "-b", "first")
    tool("publish", "-r", "c.durable", "-l", given="second\nthird\n")
    assert tool("get", "-q", "c.durable") == "first"
    assert tool("get", "-q", "c.durable") == "second\n"
    assert tool("delete-queue", "-q", "c.durable") == "1\n"


def test_an_empty_queue_has_an_exit_code_of_its_own(tool: Tool) -> None:
    tool("declare-queue", "-q", "c.empty", "-d")
    assert tool("get", "-q", "c.empty", code=2) == ""
    tool("delete-queue", "-q", "c.empty")


def test_a_command_is_run_for_every_message_consumed(tool: Tool) -> None:
    tool("declare-queue", "-q", "c.consumed", "-d")
    bodies = [f"message {number}\n" for number in range(10)]
    tool("publish", "-r", "c.consumed", "-l", given="".join(bodies))
    assert tool("consume", "-q", "c.consumed", "-p", "2", "-c", "7", "cat") == "".join(bodies[:7])
    assert tool("delete-queue", "-q", "c.consumed") == "3\n"


def test_large_bodies_headers_and_properties_arrive(tool: Tool, channel: BlockingChannel, queue: str) -> None:
    body = "0123456789abcdef" * 25_000
    tool(
        *("publish", "-e", "amq.direct", "-r", "c.large", "-p", "-C", "text/plain", "-E", "utf-8"),
        *("-t", "answers", "-H", "colour: green", "-b", "nobody takes this"),
    )
    channel.queue_bind(queue, "amq.direct", "c.large")
    tool(
        *("publish", "-e", "amq.direct", "-r", "c.large", "-p", "-C", "text/plain", "-E", "utf-8"),
        *("-t", "answers", "-H", "colour: green"),
        given=body,
    )
    _, properties, came = channel.basic_get(queue, auto_ack=True)
    assert came == body.encode()
    assert (properties.content_type, properties.content_encoding, properties.delivery_mode) == (
        "text/plain",
        "utf-8",
        2,
    )
    assert (properties.reply_to, properties.headers) == ("answers", {"colour": "green"})


def test_mistakes_are_said_in_the_brokers_words(tool: Tool) -> None:
    said = tool("get", "-q", "c.none", code=1)
    assert "server channel error 404" in said
    assert "message: NOT_FOUND - no queue 'c.none' in vhost '/'" in said
