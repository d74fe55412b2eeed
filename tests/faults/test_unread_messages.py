"""Large messages for clients that do not read: the gateway keeps its memory, and the others are served."""

import contextlib
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.protocol.native.operations.basic import BasicConsume, BasicGet
from shardmq.protocol.native.operations.connection import ChannelOpen, Ok

from .amqpclient import AmqpClient
from .saboteur import RawClient, queue_table, rss_bytes, until

MEGABYTE = 1 << 20
LARGE = 15 * MEGABYTE
QUEUES = 12
GROWTH_MAX = 150 * MEGABYTE
TRANSIENT = shardmq.Properties(delivery_mode=1)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker whose queues have a large message each, and a gateway that has not held them lately."""
    broker = Broker(tmp_path_factory.mktemp("unread") / "data", shards=2)
    try:
        broker.start()
        with shardmq.connect(broker.url) as connection, connection.channel() as channel:
            for number in range(QUEUES):
                channel.queue_declare(f"large-{number}", durable=True)
                channel.basic_publish("", f"large-{number}", bytes(LARGE), TRANSIENT)
        yield broker
    finally:
        broker.close()
        print(broker.last_words())


@contextlib.contextmanager
def growth(broker: Broker) -> Iterator[Callable[[], int]]:
    """How many bytes the gateway took more at most, while this lasts."""
    pid = broker.pids["gateway-0"]
    before = most = rss_bytes(pid)
    over = threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.01):
            most = max(most, rss_bytes(pid))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield lambda: most - before
    finally:
        over.set()
        thread.join()


def deliveries(connection: shardmq.Connection) -> int:
    return sum(queue_table(connection, f"large-{number}")["unacked"] for number in range(QUEUES))


def serve(connection: shardmq.Connection, seconds: float = 1.5) -> list[float]:
    """Publish one by one; returns how long each took."""
    took = []
    with connection.channel() as channel:
        channel.queue_declare("others", durable=True)
        end = time.monotonic() + seconds
        while (began := time.monotonic()) < end:
            channel.basic_publish("", "others", b"x")
            took.append(time.monotonic() - began)
        channel.queue_delete("others")
    return sorted(took)


def test_forty_consumers_of_a_connection_that_is_not_read_cost_the_gateway_a_few_messages(filled: Broker) -> None:
    with shardmq.connect(filled.url) as connection, contextlib.closing(RawClient(filled, 65_536)) as client:
        client.open()
        for number in range(40):  # each is told that it consumes before it gets anything large
            client.send(ChannelOpen(1000 + number, 2 + number))
            assert isinstance(client.receive(), Ok)
        with growth(filled) as grown:
            client.send(
                *(
                    BasicConsume(2000 + number, 2 + number, f"large-{number % QUEUES}", f"c{number}", False, 1)
                    for number in range(40)
                )
            )
            until(lambda: deliveries(connection), "something is delivered")
            took = serve(connection)
            assert deliveries(connection) <= 3
            assert grown() < GROWTH_MAX
        assert took[len(took) // 2] < 0.2
    with shardmq.connect(filled.url) as connection:
        until(lambda: not deliveries(connection), "what it had returns")


def test_gets_of_many_channels_that_are_not_read_cost_the_gateway_a_few_messages(filled: Broker) -> None:
    with shardmq.connect(filled.url) as connection, contextlib.closing(RawClient(filled, 65_536)) as client:
        client.open()
        client.send(*(ChannelOpen(1000 + number, 2 + number) for number in range(QUEUES)))
        for _ in range(QUEUES):
            assert isinstance(client.receive(), Ok)
        with growth(filled) as grown:
            client.send(*(BasicGet(2000 + number, 2 + number, f"large-{number}", False) for number in range(QUEUES)))
            until(lambda: deliveries(connection), "something is got")
            serve(connection)
            assert deliveries(connection) <= 3
            assert grown() < GROWTH_MAX
        answers = set()
        while len(answers) < QUEUES:  # whoever reads late gets all
            answer = client.receive()
            assert isinstance(answer, Ok)
            assert len(answer.result["records"]) > LARGE
            answers.add(answer.request)
        assert answers == set(range(2000, 2000 + QUEUES))


def test_amqp_consumers_get_large_messages_however_many_share_a_connection(filled: Broker) -> None:
    pika = pytest.importorskip("pika")
    with pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@127.0.0.1:{filled.port}/%2F")) as connection:
        got = []

        def take(channel: object, method: object, _properties: object, body: bytes) -> None:
            got.append(len(body))
            channel.basic_ack(method.delivery_tag)  # type: ignore[attr-defined]

        channel = connection.channel()
        channel.basic_qos(prefetch_count=1)
        with growth(filled) as grown:
            for number in range(3 * QUEUES):
                channel.basic_consume(f"large-{number % QUEUES}", take)
            deadline = time.monotonic() + 60
            while len(got) < QUEUES and time.monotonic() < deadline:
                connection.process_data_events(time_limit=1)
            assert got == [LARGE] * QUEUES
            assert grown() < GROWTH_MAX
    with shardmq.connect(filled.url) as native, native.channel() as channel:
        for number in range(QUEUES):  # as they were, for other tests
            channel.basic_publish("", f"large-{number}", bytes(LARGE), TRANSIENT)


def test_what_each_tiny_message_takes_in_frames_counts(filled: Broker) -> None:
    """An empty message with long names takes 800 bytes on the wire, and 4 where it is stored."""
    exchange, key, tag = "x" * 200, "k" * 200, b"t" * 200
    with shardmq.connect(filled.url) as connection, contextlib.closing(AmqpClient(filled, 65_536)) as client:
        channel = connection.channel()
        channel.exchange_declare(exchange, "direct")
        channel.queue_declare("tiny")
        channel.queue_bind("tiny", exchange, key)
        with channel.publisher() as publisher:
            publisher.publish_many(exchange, key, [b""] * 100_000)
        with growth(filled) as grown:
            client.method(1, 60, 20, b"\0\0\x04tiny" + bytes((len(tag),)) + tag + b"\0" + struct.pack(">I", 0))
            until(lambda: queue_table(connection, "tiny")["unacked"], "something is delivered")
            serve(connection)
            assert 0 < queue_table(connection, "tiny")["unacked"] < 25_000
            assert grown() < 30 * MEGABYTE
        channel.queue_delete("tiny")
        channel.exchange_delete(exchange)


def test_deaf_connections_do_not_keep_large_messages_from_others_for_ever(
    start_broker: Callable[..., Broker],
) -> None:
    """Whoever reads nothing of what was lent to it, while others wait, is parted from."""
    broker = start_broker(shards=1, options=["--memory-watermark", "1GiB"])
    with shardmq.connect(broker.url, timeout=60) as connection, contextlib.ExitStack() as stack:
        channel = connection.channel()
        channel.queue_declare("large", durable=True)
        for _ in range(10):
            channel.basic_publish("", "large", bytes(LARGE), TRANSIENT)
        for number in range(6):
            client = RawClient(broker, 65_536)
            stack.callback(client.close)
            client.open()
            client.send(BasicConsume(3, 1, "large", f"deaf-{number}", False, 1))
        until(lambda: queue_table(connection, "large")["consumers"] == 6, "they consume")
        got = 0
        for message in channel.consume("large", prefetch=1, inactivity_timeout=60):
            message.ack()
            got += 1
            if got == 3:
                break
        assert got == 3
