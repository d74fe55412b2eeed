"""Threads that wait for an answer: who waits for the only one reads it, and hands the reading back when it is due."""

import math
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import shardmq
from shardmq import errors
from shardmq.client.sync import sockets
from shardmq.client.sync.answers import DeliveryQueue, PendingAnswer
from shardmq.client.sync.sockets import LENT_SECONDS, ReadingRight
from shardmq.cmd.run.broker import Broker
from shardmq.protocol.native.operations.basic import BasicPublish
from shardmq.protocol.native.operations.connection import ConnectionBlocked
from tests.client.peers import Conversation, Script
from tests.e2e.traffic import until

StartBroker = Callable[..., Broker]
Peer = Callable[[Script], str]

QUICK = shardmq.Recovery(first_seconds=0.05, max_seconds=0.5)


def until_lent(connection: shardmq.Connection, channel: shardmq.Channel, is_lent: bool = True) -> None:
    """Publish until this thread reads its own confirms, or does no more."""
    deadline = time.monotonic() + 10
    while connection._transport._right.is_lent is not is_lent:
        assert time.monotonic() < deadline
        channel.basic_publish("", "nowhere", b"x")


def test_a_thread_that_waits_alone_reads_its_own_answer_and_others_are_served_as_well(broker: Broker) -> None:
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("answers")
        until_lent(connection, channel)
        got: list[bytes] = []
        all_there = threading.Event()

        def handle(message: shardmq.Message) -> None:
            got.append(message.body)
            message.ack()
            if len(got) == 200:
                all_there.set()

        connection.channel().basic_consume("answers", handle)
        assert not connection._transport._right.is_lent
        for number in range(100):
            channel.basic_publish("", "answers", b"%d" % number)
        with connection.channel().publisher() as publisher:
            for number in range(100, 200):
                publisher.publish("", "answers", b"%d" % number)
        assert all_there.wait(10)
        assert got == [b"%d" % number for number in range(200)]
        channel.queue_delete("answers")


def test_a_publisher_beside_a_thread_that_reads_its_own_answers_has_its_confirms(broker: Broker) -> None:
    with shardmq.connect(broker.url) as connection:
        channel, other = connection.channel(), connection.channel()
        for _ in range(5):
            until_lent(connection, channel)
            with other.publisher() as publisher:
                publisher.publish("", "nowhere", b"x")
                began = time.monotonic()
                publisher.flush()
            assert time.monotonic() - began < 5


def test_many_threads_that_publish_one_at_a_time_share_a_connection(broker: Broker) -> None:
    with shardmq.connect(broker.url) as connection:
        failures: list[BaseException] = []

        def publish(channel: shardmq.Channel) -> None:
            try:
                for _ in range(200):
                    channel.basic_publish("", "nowhere", b"x")
            except BaseException as fault:
                failures.append(fault)
                raise

        threads = [threading.Thread(target=publish, args=(connection.channel(),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not failures
        assert not any(thread.is_alive() for thread in threads)


def test_a_gateway_that_dies_while_a_thread_reads_its_answer_costs_no_message(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    with shardmq.connect(broker.url, recovery=QUICK) as connection:
        channel = connection.channel()
        channel.queue_declare("kept", durable=True)
        until_lent(connection, channel)
        killer = threading.Timer(0.2, broker.kill, ["gateway-0"])
        killer.start()
        total, over = 0, time.monotonic() + 1.5
        while time.monotonic() < over:
            channel.basic_publish("", "kept", b"%d" % total)
            total += 1
        killer.join()
        assert channel.queue_declare("kept", passive=True).messages == total


def test_closing_the_connection_wakes_the_thread_that_reads_its_answer(peer: Peer) -> None:
    asked = threading.Event()

    def script(talk: Conversation) -> None:
        talk.open()
        talk.confirm(talk.next(BasicPublish))
        talk.next(BasicPublish)
        asked.set()
        talk.read_to_end()

    connection = shardmq.connect(peer(script), recovery=None)
    channel = connection.channel()
    channel.basic_publish("", "q", b"1")
    met: list[BaseException] = []

    def publish() -> None:
        try:
            channel.basic_publish("", "q", b"2")
        except errors.ShardmqError as error:
            met.append(error)

    waiting = threading.Thread(target=publish)
    waiting.start()
    assert asked.wait(10)
    connection.close()
    waiting.join(10)
    assert [type(error) for error in met] == [errors.ConnectionLost]


def test_a_server_that_falls_silent_while_a_thread_reads_its_answer_is_lost(peer: Peer) -> None:
    def script(talk: Conversation) -> None:
        talk.open(heartbeat=1)
        talk.confirm(talk.next(BasicPublish))
        talk.read_to_end()

    with shardmq.connect(peer(script), recovery=None, heartbeat=1) as connection:
        channel = connection.channel()
        channel.basic_publish("", "q", b"1")
        with pytest.raises(errors.ConnectionLost, match="nothing heard"):
            channel.basic_publish("", "q", b"2")


def test_what_nobody_has_asked_for_is_heard_after_a_thread_has_read_its_answer(peer: Peer) -> None:
    told = threading.Event()

    def script(talk: Conversation) -> None:
        talk.open()
        talk.confirm(talk.next(BasicPublish))
        talk.confirm(talk.next(BasicPublish))
        told.wait(LENT_SECONDS / 5)  # it is the program that waits: for nothing
        talk.send(ConnectionBlocked("no memory"))
        talk.read_to_end()

    with shardmq.connect(peer(script), recovery=None) as connection:
        connection.on_blocked(lambda _: told.set())
        channel = connection.channel()
        channel.basic_publish("", "q", b"1")
        channel.basic_publish("", "q", b"2")
        assert told.wait(5)


def test_a_signal_in_the_thread_that_reads_its_answer_costs_no_connection(peer: Peer) -> None:
    connections: list[shardmq.Connection] = []

    def script(talk: Conversation) -> None:
        talk.open()
        talk.confirm(talk.next(BasicPublish))
        late = talk.next(BasicPublish)
        until(lambda: connections[0]._transport._waiting, "all is said, and the answer is waited for")
        os.kill(os.getpid(), signal.SIGUSR1)
        talk.confirm(talk.next(BasicPublish))
        talk.confirm(late)
        talk.read_to_end()

    class Interrupted(BaseException): ...

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with shardmq.connect(peer(script), recovery=None) as connection:
            connections.append(connection)
            channel = connection.channel()
            channel.basic_publish("", "q", b"1")
            with pytest.raises(Interrupted):
                channel.basic_publish("", "q", b"2")
            channel.basic_publish("", "q", b"3")
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def interrupted_late() -> Iterator[Callable[[], None]]:
    """Have a signal come that does not end the wait of the main thread, as one in the moment before it does not.

    The signal goes to another thread; Python calls its handler in the main thread, once that runs again.
    """
    pending = threading.Event()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def send() -> None:
        pending.wait()
        time.sleep(0.1)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    sender = threading.Thread(target=send)
    sender.start()
    yield pending.set
    pending.set()
    sender.join()
    signal.signal(signal.SIGUSR1, before)


def dial_someone_silent() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sockets._wait(ours, select.POLLIN, math.inf, theirs)


@pytest.mark.parametrize(
    "wait",
    [
        lambda: PendingAnswer[None]().wait(math.inf),
        lambda: DeliveryQueue().take(None),
        lambda: DeliveryQueue().take(60),
        dial_someone_silent,
    ],
    ids=["answer", "delivery", "delivery within", "dialling"],
)
def test_no_wait_outlives_a_signal_that_did_not_end_it(
    interrupted_late: Callable[[], None], wait: Callable[[], object]
) -> None:
    interrupted_late()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        wait()
    assert time.monotonic() - began < 30


def test_no_poll_of_a_group_outlives_a_signal_that_did_not_end_it(
    broker: Broker, interrupted_late: Callable[[], None]
) -> None:
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.topic_declare("waited-for", 1)
        with channel.group_consumer("waited-for", "waiting") as consumer:
            interrupted_late()
            began = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                list(consumer)
            assert time.monotonic() - began < 30


def test_who_is_interrupted_while_it_takes_in_what_came_leaves_a_fault_to_the_io_thread() -> None:
    right = ReadingRight()
    assert right.borrow("answer")
    right._poll = Ready()  # type: ignore[assignment]

    def read() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        right.read_until(lambda: False, read, time.monotonic() + 10)
    assert isinstance(right.fault, errors.ConnectionLost)
    assert not right.is_lent
    assert right.use(lambda: True)


def test_the_right_to_read_is_used_by_one_at_a_time_and_not_lent_again_at_once() -> None:
    right = ReadingRight()
    assert right.borrow("answer")
    assert not right.borrow("another")
    assert not right.use(lambda: True)
    right.end_loan()
    right.read_until(lambda: False, lambda: True, time.monotonic() + 10)
    assert right.use(lambda: True)
    assert not right.borrow("another")


class Ready:
    """A poll that has something."""

    def poll(self, _: float) -> list[tuple[int, int]]:
        return [(0, 1)]
