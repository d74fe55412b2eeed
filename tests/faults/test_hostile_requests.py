"""Small requests that mean a lot of work or memory: refused before they cost it, and nobody else notices."""

import struct
import threading
from collections.abc import Callable, Iterator

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.limits import HELLO_BYTES_MAX, PROPERTIES_BYTES_MAX, REQUEST_BYTES_MAX
from shardmq.message.properties import Properties
from shardmq.message.record import pack
from shardmq.message.record_batch import PERSISTENT
from shardmq.protocol.native.frames import frame
from shardmq.protocol.native.operations.administration import DefinitionsImport, LimitsPut
from shardmq.protocol.native.operations.basic import (
    BasicAck,
    BasicConfirm,
    BasicNack,
    BasicPublish,
    BasicRefused,
    BasicRenew,
)
from shardmq.protocol.native.operations.codec import TYPES
from shardmq.protocol.native.operations.connection import ChannelClose, ConnectionClose, ConnectionOpen, Refused
from shardmq.protocol.native.operations.fields import Operation
from shardmq.protocol.native.operations.topology import QueueDeclare, QueueDelete, QueuePeek

from .saboteur import RawClient, rss_bytes, until

GROWTH_MAX = 160 << 20
"""A frame of 32 MB, held, cut out, decoded; an empty table for each byte of it would be 2 GB."""

MILLIONS = 15 << 20

Open = Callable[[], RawClient]


def tables(count: int) -> bytes:
    """An array of empty tables: a byte each, and 70 when decoded."""
    return b"\xdd" + struct.pack(">I", count) + b"\x80" * count


@pytest.fixture
def raw(broker: Broker) -> Iterator[Open]:
    """Makes clients; the processes are the same before and after, serve others, and have not grown by much."""
    pids = dict(broker.pids)
    before = rss_bytes(pids["gateway-0"])
    peak = [before]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.01):
            peak[0] = max(peak[0], rss_bytes(pids["gateway-0"]))

    watcher = threading.Thread(target=watch)
    watcher.start()
    clients: list[RawClient] = []

    def make() -> RawClient:
        clients.append(RawClient(broker))
        return clients[-1]

    try:
        yield make
    finally:
        ended.set()
        watcher.join()
        for client in clients:
            client.close()
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("calm", durable=True)
        channel.basic_publish("", "calm", b"x")
        message = channel.basic_get("calm", auto_ack=True)
        assert message is not None
        assert message.body == b"x"
    assert broker.pids == pids
    assert peak[0] - before < GROWTH_MAX


def answer(client: RawClient, sent: bytes) -> Operation | None:
    """What comes back; None where the gateway hangs up before all is sent, and the socket says no more than that."""
    try:
        client.socket.sendall(sent)
        return client.receive()
    except (ConnectionResetError, BrokenPipeError):
        return None


def test_strangers_may_say_little(raw: Open) -> None:
    hello = b"\x97\x01\x01\xa5guest\xa5guest\xa1/\x00\x81\xa1a"
    for size in (HELLO_BYTES_MAX, MILLIONS):
        said = answer(raw(), frame(TYPES[ConnectionOpen], hello + tables(size)))
        assert said is None or (isinstance(said, ConnectionClose) and str(HELLO_BYTES_MAX) in said.text)


def test_requests_are_as_large_as_amqp_has_them(raw: Open) -> None:
    declare = b"\x95\x05\x01\xa1q\xc2\x81\xa1a"
    for size in (REQUEST_BYTES_MAX, MILLIONS):
        said = answer(raw().open(), frame(TYPES[QueueDeclare], declare + tables(size)))
        assert said is None or (isinstance(said, ConnectionClose) and str(REQUEST_BYTES_MAX) in said.text)
    said = answer(raw().open(), frame(TYPES[QueueDeclare], declare + tables(REQUEST_BYTES_MAX - 100)))
    assert isinstance(said, Refused)


def test_properties_are_as_large_as_amqp_has_them(raw: Open) -> None:
    client = raw().open()
    for messages, size in ((1, MILLIONS), (1, PROPERTIES_BYTES_MAX), (200, PROPERTIES_BYTES_MAX - 100)):
        record = b"\x92\x81\xa7headers\x81\xa7x-death" + tables(size) + b"\xc4\x00"
        client.send(BasicPublish(5, 1, "", "nowhere", 0, messages, record * messages))
        said = client.receive()
        assert isinstance(said, BasicRefused)
        assert (said.code, "of properties; the limit is" in said.text) == (311, True)
    record = b"\x92\x81\xa7headers\x81\xa7x-death" + tables(PROPERTIES_BYTES_MAX - 100) + b"\xc4\x00"
    client.send(BasicPublish(6, 1, "", "nowhere", 0, 1, record))
    assert isinstance(client.receive(), BasicConfirm)


def test_routing_keys_of_many_messages_are_too_many(raw: Open) -> None:
    client = raw().open()
    for count, messages, confirmed in ((1, 1024, True), (1025, 1, False), (1024, 16, True), (1024, 17, False)):
        record = pack(Properties(headers={"CC": ["k"] * count}), b"")
        client.send(BasicPublish(7, 1, "", "nowhere", 0, messages, record * messages))
        said = client.receive()
        assert isinstance(said, BasicConfirm) is confirmed
        assert confirmed or (isinstance(said, BasicRefused) and said.code == 406)
    for held, confirmed in (
        (b"x" * 1000, False),
        (5, False),
        ({"a": 1}, False),
        (None, False),
        ([1], True),  # no keys at all
        ([["k"], "k" * 256], False),
        ([["k"]] * 16_384, False),
    ):
        record = pack(Properties(headers={"CC": held, "BCC": held}), b"")
        client.send(BasicPublish(8, 1, "", "nowhere", 0, 2, record * 2))
        assert isinstance(client.receive(), BasicConfirm if confirmed else BasicRefused)


def test_a_forged_history_does_not_stop_a_message_from_dying(broker: Broker, raw: Open) -> None:
    raw()
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("grave", durable=True)
        terms = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave", "x-message-ttl": 0}
        channel.queue_declare("forged", durable=True, arguments=terms)
        forgeries: list[object] = [
            5,
            "x",
            [None] * 100,
            [{}] * 50_000,
            [{"queue": "forged", "reason": "expired", "count": -1}],
            [{"queue": "forged", "reason": "expired", "count": 2**63 - 1}] * 1000,
            [{"queue": 1, "reason": []}],
        ]
        for forged in forgeries:
            channel.basic_publish("", "forged", b"x", shardmq.Properties(headers={"x-death": forged}))
        until(lambda: channel.queue_declare("grave", durable=True).messages == len(forgeries), "all have died")
        channel.queue_delete("grave")
        channel.queue_delete("forged")


def test_numbers_at_the_end_of_their_range_are_numbers(raw: Open) -> None:
    client = raw().open()
    most = 2**63 - 1
    client.send(QueueDeclare(2, 1, "edge", True))
    client.receive()
    record = pack(None, b"x")
    for request, (producer, sequence, delay_ms, count) in enumerate(
        [(most, most, 0, 1), (most, most, 0, 2), (most, most - 1, 0, 100), (1, most, 2**32 - 1, 2), (0, most, 0, 1)], 10
    ):
        operation = BasicPublish(
            request, 1, "", "edge", PERSISTENT, count, record * count, delay_ms, producer, sequence
        )
        client.send(operation)
        assert isinstance(client.receive(), BasicConfirm | BasicRefused)
    client.send(QueuePeek(30, 1, "edge", most, 65_536), LimitsPut(31, 1, "vhost", "/", {"max-queues": 2**63}))
    assert client.receive().result == []  # type: ignore[attr-defined]
    client.receive()
    client.send(LimitsPut(32, 1, "vhost", "/", {"max-queues": None}), QueueDelete(33, 1, "edge"))
    client.receive()
    client.receive()


@pytest.mark.parametrize(
    "garbage",
    [
        {"queues": 5},
        {"queues": [5]},
        {"queues": [{"name": 5}]},
        {"policies": [5]},
        {"vhosts": [{"name": "v", "metadata": {"tags": 5}}]},
        {"vhosts": [{"name": "v", "metadata": 5}]},
        {"vhosts": [{"name": "v", "metadata": {"description": {}, "tags": [5]}}]},
        {"parameters": [{"component": "vhost-limits", "name": "limits", "value": "x"}]},
        {"queues": [{"name": "a", "arguments": {"x-delivery-limit": {}}}]},
        {"bindings": [{"source": "amq.topic", "destination": "q", "destination_type": [1]}]},
    ],
)
def test_definitions_that_have_no_meaning_are_refused(raw: Open, garbage: dict[str, object]) -> None:
    client = raw().open()
    client.send(DefinitionsImport(5, 1, garbage))
    assert isinstance(client.receive(), Refused)


@pytest.mark.parametrize("operation", [BasicAck(1, [(7, 9)]), BasicNack(1, [(7, 9)], True, 5), BasicRenew(1, [(7, 9)])])
def test_tags_of_nobody_close_the_channel_alone(raw: Open, operation: Operation) -> None:
    client = raw().open()
    client.send(operation)
    said = client.receive()
    assert isinstance(said, ChannelClose)
    assert said.code == 406


def test_a_thousand_exclusive_queues_go_with_their_connection(broker: Broker, raw: Open) -> None:
    client = raw().open()
    client.send(*[QueueDeclare(number, 1, f"own-{number}", exclusive=True) for number in range(10, 1010)])
    for _ in range(1000):
        client.receive()
    client.reset()
    with shardmq.connect(broker.url) as connection:
        until(
            lambda: not [table for table in connection.topology("queues") if table["name"].startswith("own-")],
            "they are gone",
        )
