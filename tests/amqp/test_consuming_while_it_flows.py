"""Consumers that come and go while messages flow: nothing is lost or doubled, and order and marks are right."""

import threading
import time
from collections.abc import Callable, Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.message.record import unpack
from shardmq.protocol.native.operations.basic import BasicAck, BasicCancel, BasicConsume, BasicDeliver
from tests.gateway.rawclient import RawClient

MESSAGES = 1000


@pytest.fixture
def publisher(broker: Broker, queue: str) -> Iterator[Callable[[], None]]:
    """Publishes messages 0 to MESSAGES in its own time; what it returns waits for that."""

    def publish() -> None:
        with shardmq.connect(broker.url) as connection:
            channel = connection.channel()
            for number in range(MESSAGES):
                channel.basic_publish("", queue, b"%d" % number)

    thread = threading.Thread(target=publish)
    thread.start()
    yield thread.join
    thread.join()


class Turns:
    """Takes a queue's messages in turns: a consumer, cancelled after a moment, and one basic.get."""

    def __init__(self, channel: BlockingChannel, queue: str) -> None:
        self.channel = channel
        self.queue = queue
        self.seen: list[int] = []
        self.late = 0
        self.running = ""

    def on_message(self, channel: BlockingChannel, method: object, _properties: object, body: bytes) -> None:
        self.seen.append(int(body))
        self.late += method.consumer_tag != self.running  # type: ignore[attr-defined]
        channel.basic_ack(method.delivery_tag)  # type: ignore[attr-defined]

    def take(self) -> None:
        channel = self.channel
        self.running = f"turn {len(self.seen)} {time.monotonic()}"
        channel.basic_consume(self.queue, self.on_message, consumer_tag=self.running)
        channel.connection.process_data_events(time_limit=0.003)
        channel.basic_cancel(self.running)  # pika nacks what has come and was not handed out
        channel.connection.process_data_events(time_limit=0)
        self.running = ""
        method, _, body = channel.basic_get(self.queue)
        if method is not None:
            self.seen.append(int(body))
            channel.basic_ack(method.delivery_tag)


def test_cancelling_while_messages_come_loses_none_and_keeps_their_order(
    channel: BlockingChannel, queue: str, publisher: Callable[[], None]
) -> None:
    turns = Turns(channel, queue)
    deadline = time.monotonic() + 60
    while len(turns.seen) < MESSAGES:
        assert time.monotonic() < deadline, len(turns.seen)
        turns.take()
    publisher()
    assert turns.seen == list(range(MESSAGES))
    assert turns.late == 0
    assert channel.queue_declare(queue, passive=True).method.message_count == 0


@pytest.mark.parametrize("auto_ack", [False, True])
def test_what_came_as_its_consumer_was_cancelled_comes_once_and_unmarked(
    broker: Broker, queue: str, publisher: Callable[[], None], auto_ack: bool
) -> None:
    seen: list[int] = []
    with RawClient(broker).open() as client:

        def take() -> None:
            said = client.receive()
            assert isinstance(said, BasicDeliver)
            assert not said.redelivered
            seen.extend([int(record.body) for record in unpack(said.records, said.count)])
            if not auto_ack:
                client.send(BasicAck(1, [(said.tag, said.tag + said.count - 1)]))

        while len(seen) < MESSAGES:
            client.ask(BasicConsume, queue, "c", auto_ack)
            take()
            client.ask(BasicCancel, "c")
            while client.inbox:  # what came before it had ended
                take()
    assert seen == list(range(MESSAGES))
    publisher()


def test_counts_are_right_behind_consume_ok_and_cancel_ok(channel: BlockingChannel, queue: str) -> None:
    for _ in range(20):
        tag = channel.basic_consume(queue, lambda *_: None)
        assert channel.queue_declare(queue, passive=True).method.consumer_count == 1
        channel.basic_cancel(tag)
        assert channel.queue_declare(queue, passive=True).method.consumer_count == 0


def test_a_message_that_came_as_its_consumer_was_cancelled_can_be_got(channel: BlockingChannel, queue: str) -> None:
    for number in range(100):
        tag = channel.basic_consume(queue, lambda *_: None)
        channel.basic_publish("", queue, b"%d" % number)
        channel.basic_cancel(tag)  # in most rounds its delivery is on its way, and in some here
        channel.connection.process_data_events(time_limit=0)
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            channel.basic_recover(requeue=True)
            method, _, body = channel.basic_get(queue, auto_ack=True)
        assert method is not None
        assert body == b"%d" % number


def test_a_consumer_of_a_queue_that_another_client_deletes_is_cancelled_however_close_they_are(
    broker: Broker, connection: pika.BlockingConnection
) -> None:
    with shardmq.connect(broker.url) as native:
        other = native.channel()
        for number in range(30):
            channel = connection.channel()
            cancelled: list[object] = []
            channel.add_on_cancel_callback(cancelled.append)
            name = f"short-lived {number}"
            other.queue_declare(name)
            deleting = threading.Thread(target=other.queue_delete, args=(name,))
            deleting.start()
            try:
                channel.basic_consume(name, lambda *_: None)
            except pika.exceptions.ChannelClosedByBroker as closed:
                assert closed.reply_code == 404
            else:
                deadline = time.monotonic() + 10
                while not cancelled:
                    assert time.monotonic() < deadline, f"the consumer of '{name}' is not cancelled"
                    connection.process_data_events(time_limit=0.01)
            deleting.join()


def test_an_exclusive_consumer_keeps_others_off_until_it_is_cancelled(
    connection: pika.BlockingConnection, queue: str
) -> None:
    only = connection.channel()
    for _ in range(10):
        tag = only.basic_consume(queue, lambda *_: None, exclusive=True)
        other = connection.channel()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="exclusive"):
            other.basic_consume(queue, lambda *_: None)
        only.basic_cancel(tag)
        other = connection.channel()
        other.basic_consume(queue, lambda *_: None)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="exclusive"):
            connection.channel().basic_consume(queue, lambda *_: None, exclusive=True)
        other.close()
