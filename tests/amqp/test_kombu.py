"""kombu over py-amqp: producers, consumers, pools and the simple interface."""

import queue as queues
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import kombu
import pytest
from kombu.common import Broadcast
from kombu.exceptions import OperationalError
from kombu.mixins import ConsumerMixin
from kombu.pools import connections, producers, reset

import shardmq

SECONDS = 30.0


@pytest.fixture
def connected(url: str) -> Iterator[kombu.Connection]:
    with kombu.Connection(url, transport_options={"confirm_publish": True}) as connection:
        yield connection


class Inbox:
    """A consumer's callback that acknowledges, and what it was called with."""

    def __init__(self, connection: kombu.Connection) -> None:
        self._connection = connection
        self.messages: list[kombu.Message] = []

    def __call__(self, _body: object, message: kombu.Message) -> None:
        self.messages.append(message)
        message.ack()

    def take(self, count: int) -> list[Any]:
        """Bodies, when so many have come."""
        deadline = time.monotonic() + SECONDS
        while len(self.messages) < count:
            assert time.monotonic() < deadline, f"only {self.messages} came"
            self._connection.drain_events(timeout=SECONDS)
        return [message.payload for message in self.messages]


@pytest.fixture
def inbox(connected: kombu.Connection) -> Inbox:
    return Inbox(connected)


@pytest.mark.parametrize("serializer", ["json", "pickle", "msgpack"])
def test_bodies_of_every_serializer_come_back_as_they_were(
    connected: kombu.Connection, inbox: Inbox, serializer: str
) -> None:
    body = {"numbers": [1, 2.5, None], "text": "grün", "yes": True}
    queue = kombu.Queue(f"kombu.{serializer}", exclusive=True, durable=False)
    producer = connected.Producer(serializer=serializer)
    with connected.Consumer([queue], callbacks=[inbox], accept=[serializer]):
        producer.publish(body, routing_key=queue.name, headers={"h": [1, {"x": "y"}]}, correlation_id="c")
        assert inbox.take(1) == [body]
    (message,) = inbox.messages
    assert message.headers == {"h": [1, {"x": "y"}]}
    assert message.properties["correlation_id"] == "c"


def test_large_bodies_are_compressed_on_their_way(connected: kombu.Connection, inbox: Inbox) -> None:
    queue = kombu.Queue("kombu.zip", exclusive=True, durable=False)
    with connected.Consumer([queue], callbacks=[inbox]):
        connected.Producer().publish({"x": "y" * 1_000_000}, routing_key=queue.name, compression="zlib")
        assert inbox.take(1) == [{"x": "y" * 1_000_000}]
    assert inbox.messages[0].headers["compression"] == "application/x-gzip"


@pytest.mark.parametrize(
    ("kind", "binding", "key"), [("direct", "a", "a"), ("topic", "a.#", "a.b.c"), ("fanout", "", "any")]
)
def test_exchanges_and_their_queues_are_declared_as_they_are_used(
    connected: kombu.Connection, inbox: Inbox, kind: str, binding: str, key: str
) -> None:
    exchange = kombu.Exchange(f"kombu.{kind}", kind, durable=False, auto_delete=True)
    queue = kombu.Queue("", exchange, routing_key=binding, exclusive=True, durable=False)
    with connected.Consumer([queue], callbacks=[inbox]):
        connected.Producer(exchange=exchange).publish("hello", routing_key=key, mandatory=True, retry=True)
        assert inbox.take(1) == ["hello"]


def test_headers_exchanges_and_bindings_between_exchanges(connected: kombu.Connection, inbox: Inbox) -> None:
    first = kombu.Exchange("kombu.first", "headers", durable=False, auto_delete=True)
    second = kombu.Exchange("kombu.second", "fanout", durable=False, auto_delete=True)
    queue = kombu.Queue("", second, exclusive=True, durable=False)
    with connected.Consumer([queue], callbacks=[inbox]):
        source = first(connected.default_channel)
        source.declare()
        second(connected.default_channel).bind_to(source, arguments={"x-match": "any", "a": 1, "b": 2})
        producer = connected.Producer(exchange=first)
        producer.publish("no", headers={"a": 2})
        producer.publish("yes", headers={"b": 2})
        assert inbox.take(1) == ["yes"]


def test_simple_queues_put_get_and_count(connected: kombu.Connection) -> None:
    simple = connected.SimpleQueue("kombu.simple", queue_opts={"exclusive": True})
    for number in range(3):
        simple.put({"number": number})
    first = simple.get(timeout=SECONDS)
    first.ack()
    assert first.payload == {"number": 0}
    second = simple.get(timeout=SECONDS)
    second.requeue()
    third = simple.get(timeout=SECONDS)
    third.reject()
    simple.clear()
    simple.close()
    with pytest.raises(queues.Empty):
        connected.SimpleBuffer("kombu.buffer").get(timeout=0.2)


def test_every_subscriber_of_a_broadcast_gets_its_copy(connected: kombu.Connection, inbox: Inbox) -> None:
    first, second = Broadcast("kombu.all", durable=False), Broadcast("kombu.all", durable=False)
    with (
        connected.Consumer([first], callbacks=[inbox]),
        connected.channel() as channel,
        kombu.Consumer(channel, [second], callbacks=[inbox]),
    ):
        connected.Producer().publish("all", exchange=first.exchange)
        assert inbox.take(2) == ["all", "all"]


def test_drain_events_gives_up_in_time_and_heartbeats_are_checked(url: str) -> None:
    with kombu.Connection(url, heartbeat=2) as connection:
        assert connection.get_heartbeat_interval() == 2
        with connection.Consumer([kombu.Queue("", exclusive=True)], callbacks=[lambda *_: None]):
            for _ in range(8):  # four seconds: two heartbeats, both ways
                with pytest.raises(socket.timeout):
                    connection.drain_events(timeout=0.5)
                connection.heartbeat_check(rate=2)


def test_prefetch_of_a_consumer_is_changed_while_it_runs(
    connected: kombu.Connection, native: shardmq.Connection
) -> None:
    queue = kombu.Queue("kombu.prefetch", durable=False)
    came: list[kombu.Message] = []
    callback = lambda _body, message: came.append(message)  # noqa: E731
    with connected.Consumer([queue], callbacks=[callback], prefetch_count=2) as consumer:
        for number in range(6):
            connected.Producer().publish(number, routing_key=queue.name)
        for count in (2, 4):
            consumer.qos(prefetch_count=count)
            while len(came) < count:
                connected.drain_events(timeout=SECONDS)
            assert queue(connected.default_channel).queue_declare(passive=True).message_count == 6 - count
            (row,) = [row for row in native.topology("consumers") if row["queue"] == "kombu.prefetch"]
            assert row["prefetch"] == count
    queue(connected.default_channel).delete()


def test_pools_lend_connections_and_producers(url: str) -> None:
    with kombu.Connection(url) as connection, connections[connection].acquire(block=True) as lent:
        queue = kombu.Queue("", exclusive=True)(lent.default_channel)
        queue.declare()
        with producers[connection].acquire(block=True) as producer:
            producer.publish("pooled", routing_key=queue.name, retry=True)
        while (message := queue.get(no_ack=True)) is None:
            pass
        assert message.payload == "pooled"
    reset()


def test_a_consumer_mixin_comes_back_after_its_connection_was_closed(url: str, native: shardmq.Connection) -> None:
    class Worker(ConsumerMixin):  # type: ignore[misc]
        def __init__(self, connection: kombu.Connection) -> None:
            self.connection = connection
            self.came: list[Any] = []

        def get_consumers(self, make: Callable[..., kombu.Consumer], _channel: Any) -> list[kombu.Consumer]:
            return [make([kombu.Queue("kombu.mixin")], callbacks=[self.on_message])]

        def on_message(self, body: Any, message: kombu.Message) -> None:
            message.ack()
            self.came.append(body)
            if body == "first":
                for row in native.topology("connections"):
                    if row["client_properties"].get("product") == "py-amqp":
                        native.connection_expel(row["name"])
                with kombu.Connection(url, transport_options={"confirm_publish": True}) as other:
                    other.Producer().publish("second", routing_key="kombu.mixin")
            else:
                self.should_stop = True

    with kombu.Connection(url, transport_options={"confirm_publish": True}) as connection:
        queue = kombu.Queue("kombu.mixin")(connection.default_channel)
        queue.declare()
        connection.Producer().publish("first", routing_key=queue.name)
    worker = Worker(kombu.Connection(url))
    worker.run()
    assert worker.came[0] == "first"
    assert worker.came[-1] == "second"
    with kombu.Connection(url) as connection:
        kombu.Queue("kombu.mixin")(connection.default_channel).delete()


def test_a_broker_that_is_not_there_is_an_operational_error() -> None:
    with kombu.Connection("amqp://127.0.0.1:1//") as connection, pytest.raises(OperationalError):
        connection.ensure_connection(max_retries=1, interval_start=0, timeout=5)
