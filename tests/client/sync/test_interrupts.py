"""A signal's handler raises wherever Python lets it: what goes on afterwards goes on, or says at once why not."""

import sys
import time
from collections.abc import Callable
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


@pytest.mark.parametrize(("step", "moments"), [(publish, 90), (get, 130), (declare, 120), (consume, 150), (close, 50)])
def test_wherever_a_step_is_interrupted_the_next_one_is_answered_and_the_connection_closes_at_once(
    broker: Broker, step: Callable[[shardmq.Connection, shardmq.Channel], None], moments: int
) -> None:
    seen = 0
    for moment in range(1, moments):
        connection = shardmq.connect(broker.url, recovery=None)
        channel = connection.channel()
        channel.queue_declare(QUEUE)
        channel.basic_publish("", QUEUE, b"1")
        channel.basic_publish("", QUEUE, b"2")  # this thread has begun to read its answers itself
        interruption = Interruption(moment)
        interruption.during(lambda: step(connection, channel))  # noqa: B023 - it is called here
        began = time.monotonic()
        try:
            channel.basic_publish("", QUEUE, b"3")
        except errors.ConnectionFault:
            assert interruption.where or step is close
        connection.close()
        assert time.monotonic() - began < CLOSE_SECONDS, interruption.where
        seen += bool(interruption.where)
    assert seen > moments / 3
