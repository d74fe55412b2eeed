"""Clients that flood: a bystander is served in between, and the processes keep their memory.

With SHARDMQ_FLOOD_SECONDS set, floods last that long, commits and declarations are as many as may be, and what a
bystander waits for is held to the figures in the documents (for a machine that does nothing else).
"""

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.message.record import pack
from shardmq.protocol.native.operations.basic import BasicCancel, BasicConsume, BasicPublish
from shardmq.protocol.native.operations.codec import encode
from shardmq.protocol.native.operations.connection import ChannelOpen, Ok
from shardmq.protocol.native.operations.fields import Operation
from shardmq.protocol.native.operations.groups import GroupAssigned, GroupRevoked
from shardmq.protocol.native.operations.topology import QueueDeclare

from .amqpclient import AmqpClient
from .saboteur import RawClient, rss_bytes, until

MEGABYTE = 1 << 20
SECONDS = float(os.environ.get("SHARDMQ_FLOOD_SECONDS", "0"))
P99_SECONDS = 0.05
DECLARE_SECONDS = 0.2
TURNS = 20


class Bystander:
    """Does one thing after the other, and notes how long each takes."""

    def __init__(self, broker: Broker, act: Callable[[shardmq.Channel, int], object]) -> None:
        self.took: list[float] = []
        self._over = threading.Event()
        self._act = act
        self._url = broker.url
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with shardmq.connect(self._url, timeout=60) as connection, connection.channel() as channel:
            channel.queue_declare("bystander", durable=True)
            while not self._over.wait(0.01):
                began = time.monotonic()
                self._act(channel, len(self.took))
                self.took.append(time.monotonic() - began)

    def __enter__(self) -> "Bystander":
        self._thread.start()
        until(lambda: len(self.took) > 3, "it is served")
        self.took.clear()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def p99(self) -> float:
        took = sorted(self.took)
        print(
            f"{len(took)} times, median {took[len(took) // 2] * 1e3:.1f} ms, "
            f"p99 {took[len(took) * 99 // 100] * 1e3:.1f} ms, longest {took[-1] * 1e3:.1f} ms"
        )
        return took[len(took) * 99 // 100]

    def had_turns(self, seconds: float) -> bool:
        """Whether it got its turns while the others flooded: 99 of 100 within so many seconds, where floods last long.

        A short flood says nothing about seconds, as a busy machine may take one away from all: it is enough there that
        each turn came within a second, or many came. Without turns of its own it has one, when the flood is over.
        """
        p99 = self.p99
        return p99 < seconds if SECONDS else p99 < 1 or len(self.took) >= TURNS


def publish(channel: shardmq.Channel, _number: int) -> None:
    channel.basic_publish("", "bystander", b"x")


def amqp_flood(broker: Broker) -> tuple[socket.socket, bytes, Callable[[], None]]:
    client = AmqpClient(broker)
    table = b"\0V" * 60_000
    properties = struct.pack(">HI", 1 << 13, len(table)) + table
    return client.socket, client.message("nowhere", properties, b"x") * 8, client.close


def native_flood(broker: Broker) -> tuple[socket.socket, bytes, Callable[[], None]]:
    client = RawClient(broker).open()
    record = pack(shardmq.Properties(headers={str(number): {} for number in range(16_000)}), b"x")
    data = encode(BasicPublish(3, 1, "", "nowhere", 0, 16, record * 16))
    threading.Thread(target=_swallow, args=(client.socket,), daemon=True).start()
    return client.socket, data, client.close


def _swallow(there: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while there.recv(1 << 16):
            pass


@pytest.mark.parametrize("begin", [amqp_flood, native_flood])
def test_a_flood_of_headers_leaves_others_their_turns(broker: Broker, begin: Callable[[Broker], tuple]) -> None:  # type: ignore[type-arg]
    there, data, close = begin(broker)
    before = rss_bytes(broker.pids["gateway-0"])
    with Bystander(broker, publish) as bystander:
        end = time.monotonic() + (SECONDS or 2)
        while time.monotonic() < end:
            there.sendall(data)
    close()
    assert len(bystander.took) > (20 * SECONDS or 3)  # it pauses for 10 ms after each
    assert bystander.had_turns(P99_SECONDS)
    assert rss_bytes(broker.pids["gateway-0"]) - before < 150 * MEGABYTE


@pytest.fixture
def queues(broker: Broker) -> Iterator[list[str]]:
    names = [f"tx-{number}" for number in range(8)]
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        for name in names:
            channel.queue_declare(name, durable=True)
        yield names
        for name in names:
            channel.queue_delete(name)


@pytest.mark.parametrize("shared", [1, 8], ids=["one-queue", "eight-queues"])
def test_a_large_tx_is_committed_in_pieces_and_whole(broker: Broker, queues: list[str], shared: int) -> None:
    client = AmqpClient(broker)
    body = bytes(1000)
    count = 50_000 if SECONDS else 10_000
    client.method(1, 90, 10)
    client.receive()
    messages = [client.message(name, struct.pack(">HB", 1 << 12, 2), body) for name in queues[:shared]]
    client.socket.sendall(b"".join(messages[number % shared] for number in range(count)))
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        assert channel.queue_declare(queues[0], durable=True).messages == 0
        with Bystander(broker, publish) as bystander:
            client.method(1, 90, 20)
            assert client.receive() == struct.pack(">HH", 90, 21)
        held = [channel.queue_declare(name, durable=True).messages for name in queues[:shared]]
        assert held == [count // shared] * shared
        first = channel.basic_get(queues[0], auto_ack=True)
        assert first is not None
        assert first.body == body
    client.close()
    assert bystander.took
    assert bystander.had_turns(P99_SECONDS)


def test_thousands_of_declarations_at_once_leave_others_their_turns_and_none_is_lost(broker: Broker) -> None:
    count, channels = (100_000, 200) if SECONDS else (2000, 200)
    before = {name: rss_bytes(pid) for name, pid in broker.pids.items()}
    client = RawClient(broker).open()
    client.send(*(ChannelOpen(number, number) for number in range(2, channels + 2)))
    for _ in range(channels):
        assert isinstance(client.receive(), Ok)
    declares = b"".join(
        encode(QueueDeclare(1000 + number, 2 + number % channels, f"many-{number}")) for number in range(count)
    )
    answered = []

    def read() -> None:
        client.socket.settimeout(300)
        while len(answered) < count:
            answered.append(client.receive())

    reader = threading.Thread(target=read)
    with Bystander(broker, lambda channel, number: channel.queue_declare(f"own-{number}")) as bystander:
        reader.start()
        client.socket.sendall(declares)
        reader.join()
    assert all(isinstance(answer, Ok) for answer in answered)
    assert len({answer.request for answer in answered}) == count  # type: ignore[attr-defined]
    assert bystander.took
    assert bystander.had_turns(DECLARE_SECONDS)
    grown = {name: rss_bytes(pid) - before[name] for name, pid in broker.pids.items()}
    assert max(grown.values()) < 40 * MEGABYTE + count * 2000, grown
    client.close()


def test_thousands_of_declarations_without_answers_are_all_carried_out(broker: Broker) -> None:
    count = 100_000 if SECONDS else 400
    client = AmqpClient(broker)
    client.socket.settimeout(300)
    before = rss_bytes(broker.pids["gateway-0"])
    with Bystander(broker, lambda channel, number: channel.queue_declare(f"mine-{number}")) as bystander:
        client.socket.sendall(b"".join(client.declare(f"silent-{number}", nowait=True) for number in range(count)))
        client.socket.sendall(client.declare("silent-last", nowait=False))
        assert client.receive()[:4] == struct.pack(">HH", 50, 11)
    with shardmq.connect(broker.url) as connection:
        names = {table["name"] for table in connection.status()["queues"]}
    assert {f"silent-{number}" for number in range(count)} <= names
    assert bystander.had_turns(DECLARE_SECONDS)
    assert rss_bytes(broker.pids["gateway-0"]) - before < 40 * MEGABYTE + count * 2000
    client.close()


@pytest.mark.parametrize("kind", ["ordered", "shared"])
def test_members_that_join_and_leave_by_the_thousand_leave_nothing_behind(broker: Broker, kind: str) -> None:
    count, channels = 10_000 if SECONDS else 1000, 10
    topic, arguments = f"churned-{kind}", {"x-group": "g", "x-group-type": kind, "x-stream-offset": "first"}
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        channel.topic_declare(topic, 4)
        before = {name: rss_bytes(pid) for name, pid in broker.pids.items()}
        client = RawClient(broker).open()
        client.send(*(ChannelOpen(number, number) for number in range(2, channels + 2)))
        for _ in range(channels):
            assert isinstance(client.receive(), Ok)
        with Bystander(broker, publish) as bystander:
            for first in range(0, count, channels):
                asked: dict[int, Operation] = {}
                for on in range(2, channels + 2):
                    number = 1000 + 2 * (first + on)
                    member = f"member-{number}"
                    asked[number] = BasicConsume(number, on, topic, member, prefetch=10, arguments=arguments)
                    asked[number + 1] = BasicCancel(number + 1, on, member)
                client.send(*asked.values())
                while asked:
                    answer = client.receive()
                    if isinstance(answer, Ok):
                        del asked[answer.request]
                    else:
                        assert isinstance(answer, GroupAssigned | GroupRevoked), answer
        client.close()
        assert bystander.took
        assert bystander.had_turns(P99_SECONDS)
        channel.basic_publish(topic, "key", b"there")
        with channel.group_consumer(topic, "g", shared=kind == "shared", start="earliest") as consumer:
            assert [message.body for message in consumer.poll(20)] == [b"there"]
        channel.topic_delete(topic)
    grown = {name: rss_bytes(pid) - before[name] for name, pid in broker.pids.items()}
    assert max(grown.values()) < 20 * MEGABYTE, grown


def test_a_topic_may_have_ten_thousand_partitions_and_others_are_served_meanwhile(broker: Broker) -> None:
    count = 10_000
    before = {name: rss_bytes(pid) for name, pid in broker.pids.items()}
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        with Bystander(broker, publish) as bystander:
            channel.topic_declare("wide", count)
            with channel.publisher() as publisher:
                publisher.publish_keyed("wide", [(str(number), b"%d" % number) for number in range(1000)])
            partitions = channel.topic_info("wide")["partitions"]
        assert len(partitions) == count
        assert sum(row["messages"] for row in partitions) == 1000
        grown = {name: rss_bytes(pid) - before[name] for name, pid in broker.pids.items()}
        channel.topic_delete("wide")
    assert bystander.took
    assert bystander.had_turns(1)
    assert sum(grown.values()) < count * 20_000, grown
