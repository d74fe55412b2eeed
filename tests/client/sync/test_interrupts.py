"""A signal's handler raises wherever Python lets it: what goes on afterwards goes on, or says at once why not."""

import itertools
import os
import signal
import sys
import threading
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
from shardmq.message.record import pack
from shardmq.protocol.native.operations.basic import BasicPublish
from shardmq.protocol.native.operations.connection import ConnectionBlocked, ConnectionUnblocked
from tests.client.peers import PATIENCE_SECONDS, Conversation, Script
from tests.conftest import StartBroker
from tests.e2e.traffic import until

QUEUE = "interrupted"
QUICK = shardmq.Recovery(first_seconds=0.01, max_seconds=0.1)
MIXED = shardmq.Properties(priority=1), shardmq.Properties(priority=2)
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


@pytest.fixture
def connection(broker: Broker) -> Iterator[shardmq.Connection]:
    """One that nobody interrupts."""
    with shardmq.connect(broker.url) as connection:
        yield connection


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


@pytest.mark.parametrize(
    ("size", "moments"),
    [(1, range(1, 90)), (12 << 20, range(20, 40))],
    ids=["small", "more than a socket takes at once"],
)
def test_wherever_a_publish_is_interrupted_a_connection_that_recovers_goes_on(
    broker: Broker, connection: shardmq.Connection, size: int, moments: range
) -> None:
    purging = connection.channel()
    purging.queue_declare(QUEUE)
    for moment in moments:
        with ready(broker, QUICK) as (_, channel):
            Interruption(moment).during(lambda: channel.basic_publish("", QUEUE, bytes(size)))
            channel.basic_publish("", QUEUE, b"3")
        purging.queue_purge(QUEUE)  # over another one: it may be lost only now, which ends what is under way


def test_wherever_a_publisher_is_interrupted_what_it_took_is_stored_or_the_flush_says_so(broker: Broker) -> None:
    told = 0
    for moment in range(1, 300, 2):
        with ready(broker, QUICK) as (_, channel):
            channel.queue_purge(QUEUE)
            publisher, taken = channel.publisher(), itertools.count()

            def publish_some(publisher: shardmq.Publisher = publisher, taken: Iterator[int] = taken) -> None:
                for number in range(40):
                    publisher.publish("", QUEUE, b"x", MIXED[number % 2])
                    next(taken)

            Interruption(moment).during(publish_some)
            try:
                publisher.flush()
            except errors.PublishRefused as refused:
                assert "interrupted" in refused.text
                told += 1
                with pytest.raises(errors.PublishRefused):
                    publisher.publish("", QUEUE, b"x")
            else:
                assert channel.queue_declare(QUEUE).messages >= next(taken)
    assert told


def test_wherever_an_ack_is_interrupted_the_consumer_gets_the_rest(broker: Broker) -> None:
    for moment in range(1, 120, 2):
        with ready(broker, QUICK) as (_, channel):
            channel.queue_purge(QUEUE)
            with channel.publisher() as publisher:
                publisher.publish_many("", QUEUE, [b"%d" % number for number in range(12)])
            found: set[bytes] = set()
            interruption = Interruption(moment)
            for message in channel.consume(QUEUE, prefetch=4, inactivity_timeout=20.0):
                found.add(message.body)
                if len(found) < 4:
                    interruption.during(message.ack)
                else:
                    message.ack()
                if len(found) == 12:
                    break
            assert len(found) == 12


def test_an_iterator_that_is_left_while_nobody_answers_gives_back_what_it_has(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    with (
        shardmq.connect(broker.url) as other,
        shardmq.connect(broker.url, timeout=6.0) as connection,
        connection.channel() as channel,
    ):
        channel.queue_declare(QUEUE)
        for _ in range(9):
            channel.basic_publish("", QUEUE, b"x")
        try:
            for _ in channel.consume(QUEUE, prefetch=5):
                os.kill(broker.pids["gateway-0"], signal.SIGSTOP)
                break  # what cancels the consumer times out
        finally:
            os.kill(broker.pids["gateway-0"], signal.SIGCONT)
        asking = other.channel()
        until(lambda: asking.queue_declare(QUEUE).messages == 8, "all are back but the one that was seen")


@contextmanager
def interrupted_when(is_time: Callable[[], bool]) -> Iterator[None]:
    """Interrupt what this thread, the main one, does as soon as it is time."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def send() -> None:
        until(is_time, "it is time for the interrupt")
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_publish_that_is_interrupted_while_it_is_held_is_not_sent_later(peer: Callable[[Script], str]) -> None:
    interrupted = threading.Event()

    def script(talk: Conversation) -> None:
        talk.open()
        talk.send(ConnectionBlocked("the disk is full"))
        assert interrupted.wait(PATIENCE_SECONDS)
        talk.send(ConnectionUnblocked())
        publish = talk.next(BasicPublish)
        assert publish.records == pack(None, b"later")
        talk.confirm(publish)
        talk.read_to_end()

    with shardmq.connect(peer(script), recovery=None) as connection, connection.channel() as channel:
        until(lambda: connection.blocked, "the connection is blocked")
        with interrupted_when(lambda: bool(connection._transport._waiting)):
            channel.basic_publish("", "q", b"never")
        interrupted.set()
        channel.basic_publish("", "q", b"later")
