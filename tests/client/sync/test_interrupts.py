"""A signal's handler raises wherever Python lets it: what goes on afterwards goes on, or says at once why not."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

import shardmq
from shardmq import errors
from shardmq.client.api.defaults import CLOSE_SECONDS
from shardmq.cmd.run.broker import Broker

QUEUE = "interrupted"
OURS = "shardmq.client"


def publish(_connection: shardmq.Connection, channel: shardmq.Channel) -> None:
    channel.basic_publish("", QUEUE, b"x")


def get(_connection: shardmq.Connection, channel: shardmq.Channel) -> None:
    channel.basic_get(QUEUE)


def declare(_connection: shardmq.Connection, channel: shardmq.Channel) -> None:
    channel.queue_declare(QUEUE)


def consume(_connection: shardmq.Connection, channel: shardmq.Channel) -> None:
    for batch in channel.consume_batches(QUEUE, 10, inactivity_timeout=0.01):
        batch.ack()


def close(connection: shardmq.Connection, _channel: shardmq.Channel) -> None:
    connection.close()


class Interruption:
    """Raises at one of the moments at which Python 3.11 calls the handlers of signals: when a function begins, and
    behind each call of one that is not Python's own.

    Args:
        moment: which of those within the SDK.

    Attributes:
        where: file, line and function at which it was raised; empty before.
    """

    def __init__(self, moment: int) -> None:
        self.where = ""
        self._left = moment

    def during(self, step: Callable[[], object]) -> None:
        """Take a step, and raise in it."""
        sys.setprofile(self._look)
        try:
            step()
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event in ("call", "c_return") and frame.f_globals.get("__name__", "").startswith(OURS):
            self._left -= 1
            if not self._left:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
                raise KeyboardInterrupt


@contextmanager
def ready(broker: Broker, recovery: shardmq.Recovery | None) -> Iterator[tuple[shardmq.Connection, shardmq.Channel]]:
    """A connection whose answers this thread has begun to read itself; it is to close at once."""
    connection = shardmq.connect(broker.url, recovery=recovery)
    channel = connection.channel()
    channel.queue_declare(QUEUE)
    channel.basic_publish("", QUEUE, b"1")
    channel.basic_publish("", QUEUE, b"2")
    yield connection, channel
    began = time.monotonic()
    connection.close()
    assert time.monotonic() - began < CLOSE_SECONDS


@pytest.mark.parametrize(("step", "moments"), [(publish, 90), (get, 130), (declare, 120), (consume, 150), (close, 50)])
def test_wherever_a_step_is_interrupted_the_next_one_is_answered_at_once(
    broker: Broker, step: Callable[[shardmq.Connection, shardmq.Channel], None], moments: int
) -> None:
    seen = 0
    for moment in range(1, moments):
        with ready(broker, None) as (connection, channel):
            interruption = Interruption(moment)
            interruption.during(lambda: step(connection, channel))
            try:
                channel.basic_publish("", QUEUE, b"3")
            except errors.ConnectionFault:
                assert interruption.where or step is close
        seen += bool(interruption.where)
    assert seen > moments / 3


def test_wherever_a_step_is_interrupted_a_connection_that_recovers_goes_on(broker: Broker) -> None:
    recovery = shardmq.Recovery(first_seconds=0.01, max_seconds=0.1)
    for moment in range(1, 90):
        with ready(broker, recovery) as (connection, channel):
            Interruption(moment).during(lambda: publish(connection, channel))
            channel.basic_publish("", QUEUE, b"3")
