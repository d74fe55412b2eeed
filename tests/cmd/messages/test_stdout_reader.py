"""A message is acked when whoever reads stdout has taken its line, and not when the reader is gone."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment

MESSAGES = 1000


@pytest.fixture
def letters(broker: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    """A queue with numbered messages."""
    name = request.node.name
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True)
        with channel.publisher() as publisher:
            publisher.publish_many("", name, [b"%d" % number for number in range(MESSAGES)])
        yield name
        channel.queue_delete(name)


def left(broker: Broker, queue: str) -> list[int]:
    """What a queue has, once nobody holds any of it."""
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            (row,) = [row for row in connection.topology("queues") if row["name"] == queue]
            if not row["unacked"]:
                return [int(message.body) for message in channel.queue_peek(queue, count=MESSAGES)]
    raise AssertionError(f"somebody holds messages of {queue}")


def consume(broker: Broker, *words: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command("consume", *words),
        env=environment(SHARDMQ_URL=broker.url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize("lines", [1, 7])
def test_head_takes_as_many_messages_as_it_prints_and_the_rest_stays(broker: Broker, letters: str, lines: int) -> None:
    consumer = consume(broker, letters)
    assert consumer.stdout is not None
    head = subprocess.run(
        ["head", "-n", str(lines)], stdin=consumer.stdout, capture_output=True, timeout=30, check=True
    )
    consumer.stdout.close()
    _, said = consumer.communicate(timeout=30)
    assert head.stdout.split() == [b"%d" % number for number in range(lines)]
    assert (consumer.returncode, said) == (141, b"")
    assert left(broker, letters) == list(range(lines, MESSAGES))


def test_what_the_reader_has_not_taken_goes_back_when_it_is_gone(broker: Broker, letters: str) -> None:
    consumer = consume(broker, letters, "--json")
    assert consumer.stdout is not None
    assert os.read(consumer.stdout.fileno(), 10)  # a part of a line
    consumer.stdout.close()
    consumer.communicate(timeout=30)
    assert consumer.returncode == 141
    assert left(broker, letters) == list(range(MESSAGES))


def test_a_follower_ends_when_its_reader_goes_though_no_message_comes(broker: Broker, letters: str) -> None:
    with shardmq.connect(broker.url) as connection:
        connection.channel().queue_purge(letters)
        consumer = consume(broker, letters, "--follow")
        assert consumer.stdout is not None
        connection.channel().basic_publish("", letters, b"1")
        assert consumer.stdout.readline() == b"1\n"
        consumer.stdout.close()
        assert consumer.wait(30) == 141
        assert consumer.stderr is not None
        assert consumer.stderr.read() == b""
        consumer.stderr.close()
    assert left(broker, letters) == []


def test_a_killed_reader_of_a_slow_pipe_leaves_what_it_did_not_read(broker: Broker, letters: str) -> None:
    consumer = consume(broker, letters)
    assert consumer.stdout is not None
    reader = subprocess.Popen(["sleep", "60"], stdin=consumer.stdout)  # it reads nothing
    consumer.stdout.close()
    reader.send_signal(signal.SIGKILL)
    reader.wait()
    consumer.communicate(timeout=30)
    assert consumer.returncode == 141
    assert left(broker, letters) == list(range(MESSAGES))


def test_everything_comes_through_a_pipe_in_order(broker: Broker, letters: str) -> None:
    consumer = consume(broker, letters, "--wait", "0.3")
    out, _ = consumer.communicate(timeout=30)
    assert out.split() == [b"%d" % number for number in range(MESSAGES)]
    assert consumer.returncode == 0
    assert left(broker, letters) == []


@pytest.mark.usefixtures("at")
def test_other_commands_end_as_quietly(broker: Broker, letters: str, printed: Callable[..., bytes]) -> None:
    assert letters.encode() in printed("queue", "list")
    shown = subprocess.run(
        ["sh", "-c", '"$@" | true', "sh", *command("queue", "peek", letters, "--count", "1000")],
        env=environment(SHARDMQ_URL=broker.url),
        capture_output=True,
        timeout=30,
        check=True,
    )
    assert shown.stderr == b""
