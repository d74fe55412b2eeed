"""AMQP clients that do what no client should: the right words, nobody else notices, and nothing stays behind."""

import contextlib
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.errors import ReplyCode
from shardmq.protocol.amqp.encoder import BEAT, content_frames, frame, method_frame
from shardmq.protocol.amqp.methods.basic import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicPublish,
    BasicQos,
    BasicQosOk,
)
from shardmq.protocol.amqp.methods.connection import ChannelOpen, ChannelOpenOk
from shardmq.protocol.amqp.methods.topology import (
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
)
from shardmq.protocol.amqp.methods.transaction import ConfirmSelect, ConfirmSelectOk
from shardmq.protocol.amqp.tables import encode_long, wrapped
from tests.faults.saboteur import census, until

from .rawclient import RawClient

MEGABYTE = 1 << 20
GROWTH_MAX = 64 * MEGABYTE
PUBLISH = BasicPublish(0, "", "mine")
IDLE_CONNECTIONS_MAX = 10_000
IDLE_BYTES_MAX = 24 << 10
"""What an idle connection with a channel may take of the gateway's memory, three times what it does."""


@pytest.fixture(autouse=True)
def connection(broker: Broker) -> Iterator[shardmq.Connection]:
    """Somebody who behaves, before and after; the gateway that serves them is the same process."""
    pid = broker.pids["gateway-0"]
    with shardmq.connect(broker.url, timeout=60) as connection:
        serve(connection)
        yield connection
        serve(connection)
    assert broker.pids["gateway-0"] == pid


def serve(connection: shardmq.Connection, messages: int = 20) -> float:
    """Publish and consume, one at a time; returns the seconds that the slowest took."""
    slowest = 0.0
    with connection.channel() as channel:
        channel.queue_declare("others", durable=True)
        for number in range(messages):
            began = time.monotonic()
            channel.basic_publish("", "others", b"%d" % number)
            message = channel.basic_get("others", auto_ack=True)
            assert message is not None
            assert message.body == b"%d" % number
            slowest = max(slowest, time.monotonic() - began)
    return slowest


@pytest.fixture
def gateway(broker: Broker) -> psutil.Process:
    return psutil.Process(broker.pids["gateway-0"])


def raw(kind: int, channel: int, payload: bytes) -> bytes:
    return frame(kind, channel, payload)


def header(size: int, class_id: int = 60, properties: bytes = b"\0\0", weight: int = 0) -> bytes:
    return raw(2, 1, struct.pack(">HHQ", class_id, weight, size) + properties)


METHOD_FRAME = method_frame(1, PUBLISH)
BAD: dict[str, tuple[bytes, ReplyCode]] = {
    "no-end": (b"\x01\0\1\0\0\0\4abcdX", ReplyCode.FRAME_ERROR),
    "too-large": (b"\x01\0\1\0\x02\0\1" + bytes(9), ReplyCode.FRAME_ERROR),
    "huge": (b"\x03\0\1\xff\xff\xff\xff" + bytes(9), ReplyCode.FRAME_ERROR),
    "unknown-type": (raw(9, 1, b"abcd"), ReplyCode.FRAME_ERROR),
    "method-too-short": (raw(1, 1, b"\0\x3c"), ReplyCode.FRAME_ERROR),
    "heartbeat-with-content": (raw(8, 0, b"x"), ReplyCode.FRAME_ERROR),
    "heartbeat-on-a-channel": (raw(8, 1, b""), ReplyCode.UNEXPECTED_FRAME),
    "header-first": (header(1), ReplyCode.UNEXPECTED_FRAME),
    "body-first": (raw(3, 1, b"x"), ReplyCode.UNEXPECTED_FRAME),
    "content-on-channel-0": (raw(3, 0, b"x"), ReplyCode.UNEXPECTED_FRAME),
    "method-inside-a-message": (METHOD_FRAME + header(9) + METHOD_FRAME, ReplyCode.UNEXPECTED_FRAME),
    "two-methods": (METHOD_FRAME + METHOD_FRAME, ReplyCode.UNEXPECTED_FRAME),
    "two-headers": (METHOD_FRAME + header(9) + header(9), ReplyCode.UNEXPECTED_FRAME),
    "body-before-header": (METHOD_FRAME + raw(3, 1, b"x"), ReplyCode.UNEXPECTED_FRAME),
    "other-class": (METHOD_FRAME + header(1, class_id=50), ReplyCode.UNEXPECTED_FRAME),
    "body-too-long": (METHOD_FRAME + header(3) + raw(3, 1, b"four"), ReplyCode.FRAME_ERROR),
    "unknown-method": (raw(1, 1, b"\xff\xff\xff\xff"), ReplyCode.NOT_IMPLEMENTED),
    "immediate": (method_frame(1, BasicPublish(0, "", "q", immediate=True)) + header(0), ReplyCode.NOT_IMPLEMENTED),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("step", [0, 1], ids=["at-once", "byte-by-byte"])
def test_bad_frames_close_the_connection_with_the_right_code(broker: Broker, name: str, step: int) -> None:
    data, code = BAD[name]
    with RawClient(broker.port) as client:
        for part in [data] if not step else [data[at : at + 1] for at in range(len(data))]:
            client.socket.sendall(part)
        client.expect_close(code)


def test_cut_off_methods_close_the_connection_and_never_the_gateway(broker: Broker) -> None:
    whole = method_frame(1, QueueDeclare(0, "cut", arguments={"x-max-length": 5, "deep": {"a": [1, "b", {}]}}))[7:-1]
    for cut in range(4, len(whole)):
        with RawClient(broker.port) as client:
            client.socket.sendall(raw(1, 1, whole[:cut]))
            assert client.end()[0] == "connection"


@pytest.mark.parametrize("depth", [10, 100, 1000, 10_000])
def test_tables_that_nest_deep_are_refused_or_taken_and_the_gateway_lives(broker: Broker, depth: int) -> None:
    value = b"V"
    for _ in range(depth):
        entry = b"\x01a" + value
        value = b"F" + struct.pack(">I", len(entry)) + entry
    table = b"\x01a" + value
    payload = method_frame(1, QueueDeclare(0, "deep"))[7:-1][:-4] + struct.pack(">I", len(table)) + table
    with RawClient(broker.port) as client:
        client.socket.sendall(raw(1, 1, payload))
        said = client.hear().method
        assert isinstance(said, QueueDeclareOk) or depth > 10


def test_messages_of_several_channels_may_be_interleaved(broker: Broker) -> None:
    with RawClient(broker.port, channels=3) as client:
        client.ask(QueueDeclare(0, "interleaved", exclusive=True), QueueDeclareOk)
        frames: list[list[bytes]] = []
        for channel in (1, 2, 3):
            body = bytes((channel,)) * 10
            publish = method_frame(channel, BasicPublish(0, "", "interleaved"))
            content = raw(2, channel, struct.pack(">HHQ", 60, 0, len(body)) + b"\0\0")
            frames.append([publish, content, *(raw(3, channel, body[at : at + 1]) for at in range(10))])
        client.socket.sendall(b"".join(b"".join(each) + BEAT for each in zip(*frames, strict=True)))
        for channel in (2, 3):
            client.ask(BasicQos(0, 1), BasicQosOk, channel)
        declared = client.ask(QueueDeclare(0, "interleaved", exclusive=True), QueueDeclareOk)
        assert declared.message_count == 3


def test_clients_that_reset_anywhere_in_a_publish_harm_nobody(broker: Broker, connection: shardmq.Connection) -> None:
    whole = METHOD_FRAME + content_frames(1, b"\0\0", bytes(5000), 4096)
    base = census(connection)
    for cut in (1, 6, 7, 8, len(METHOD_FRAME), len(METHOD_FRAME) + 3, 200, 4095, len(whole) - 1):
        client = RawClient(broker.port)
        client.send(1, BasicConsume(0, "others"))
        client.expect(BasicConsumeOk)
        client.socket.sendall(whole[:cut])
        client.reset()
    until(lambda: census(connection) == base, "they are all gone")


def settled_rss(process: psutil.Process) -> int:
    """The memory of a process once it no longer grows."""
    last = process.memory_info().rss

    def is_settled() -> bool:
        nonlocal last
        time.sleep(0.3)  # between two looks
        before, last = last, process.memory_info().rss
        return last <= before + MEGABYTE

    until(is_settled, "memory settles")
    return int(last)


def send_until_stuck(client: RawClient, data: bytes, bytes_max: int) -> int:
    """Send the same again and again until the other side reads no more; returns how many bytes it took."""
    client.socket.settimeout(1.5)
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < bytes_max:
            sent += client.socket.send(data[sent % len(data) :])
    client.socket.settimeout(60)
    return sent


def fill(connection: shardmq.Connection, queue: str, megabytes: int) -> None:
    with connection.channel() as channel:
        channel.queue_declare(queue, durable=True)
        with channel.publisher(window=16) as publisher:
            for _ in range(megabytes):
                publisher.publish("", queue, bytes(MEGABYTE), shardmq.Properties(delivery_mode=1))


@pytest.mark.parametrize("how", ["consume", "get"])
def test_a_client_that_never_reads_its_messages_costs_a_bounded_amount(
    broker: Broker, connection: shardmq.Connection, gateway: psutil.Process, how: str
) -> None:
    fill(connection, how, 150)
    before = settled_rss(gateway)
    with RawClient(broker.port, receive_buffer=65_536) as client:
        if how == "consume":
            client.ask(BasicConsume(0, how, no_ack=True), BasicConsumeOk)
        else:
            client.send(1, *[BasicGet(0, how, no_ack=True)] * 150)
        time.sleep(1)  # it may take its time to take too much
        assert settled_rss(gateway) - before < GROWTH_MAX
        assert serve(connection) < 5
    with RawClient(broker.port) as client:
        client.ask(QueuePurge(0, how), QueuePurgeOk)


def test_many_consumers_of_a_client_that_never_reads_cost_a_bounded_amount(
    broker: Broker, connection: shardmq.Connection, gateway: psutil.Process
) -> None:
    count = 300
    with RawClient(broker.port, receive_buffer=65_536) as client, connection.channel() as channel:
        queue = client.ask(QueueDeclare(0, "many"), QueueDeclareOk).queue
        client.send(1, *[BasicConsume(0, queue) for _ in range(count)])
        for _ in range(count):
            client.expect(BasicConsumeOk)
        before = settled_rss(gateway)
        with channel.publisher(window=16) as publisher:
            for _ in range(200):
                publisher.publish_many("", queue, [bytes(10_000)] * 100, shardmq.Properties(delivery_mode=1))
        assert settled_rss(gateway) - before < GROWTH_MAX
        assert serve(connection) < 5
    with RawClient(broker.port) as client:
        client.ask(QueueDelete(0, queue), QueueDeleteOk)


def test_a_publisher_that_never_reads_its_returns_is_read_no_more(
    broker: Broker, connection: shardmq.Connection, gateway: psutil.Process
) -> None:
    before = settled_rss(gateway)
    returned = method_frame(1, BasicPublish(0, "", "nowhere", mandatory=True)) + content_frames(
        1, b"\0\0", bytes(100_000), 131_072
    )
    with RawClient(broker.port, receive_buffer=65_536) as client:
        sent = send_until_stuck(client, returned, 400 * MEGABYTE)
        assert sent < 100 * MEGABYTE
        assert settled_rss(gateway) - before < GROWTH_MAX
        assert serve(connection) < 5


def test_small_requests_with_answers_that_nobody_reads_are_read_no_more(
    broker: Broker, connection: shardmq.Connection, gateway: psutil.Process
) -> None:
    before = settled_rss(gateway)
    asked = method_frame(1, QueueDeclare(0, "q" * 255))
    with RawClient(broker.port, receive_buffer=65_536) as client:
        sent = send_until_stuck(client, asked * 100, 200 * MEGABYTE)
        assert sent < 200 * MEGABYTE
        assert settled_rss(gateway) - before < GROWTH_MAX
        assert serve(connection) < 5


def test_wrong_acks_in_floods_close_one_channel_alone(broker: Broker, connection: shardmq.Connection) -> None:
    with RawClient(broker.port, channels=2) as client:
        client.send(1, *[BasicAck(number) for number in range(5, 50_000)])
        assert serve(connection) < 5
        client.expect_channel_close(ReplyCode.PRECONDITION_FAILED)
        client.ask(BasicQos(0, 1), BasicQosOk, 2)


@pytest.mark.parametrize("is_global", [False, True])
def test_floods_of_qos_for_many_consumers_hold_up_nobody(
    broker: Broker, connection: shardmq.Connection, gateway: psutil.Process, is_global: bool
) -> None:
    count = 1000
    with RawClient(broker.port) as client:
        queue = client.ask(QueueDeclare(0, "", exclusive=True), QueueDeclareOk).queue
        client.send(1, *[BasicConsume(0, queue) for _ in range(count)])
        for _ in range(count):
            client.expect(BasicConsumeOk)
        memory, spent = settled_rss(gateway), sum(gateway.cpu_times()[:2])
        client.send(1, *[BasicQos(0, 1 + number % 7, is_global) for number in range(3000)])
        assert serve(connection) < 5
        for _ in range(3000):
            client.expect(BasicQosOk)
        assert sum(gateway.cpu_times()[:2]) - spent < 5
        assert settled_rss(gateway) - memory < GROWTH_MAX


def test_a_reader_of_large_headers_that_differ_costs_little(broker: Broker, gateway: psutil.Process) -> None:
    stream, count = "large-headers", 200
    entries = b"\x04nameS\0\0\0\x08a string" * 6000
    with RawClient(broker.port) as client:
        client.ask(QueueDeclare(0, stream, durable=True, arguments={"x-queue-type": "stream"}), QueueDeclareOk)
        client.ask(BasicQos(0, count), BasicQosOk)
        for number in range(count):
            headers = wrapped(b"", entries + b"\x01n" + encode_long(number))
            client.publish(BasicPublish(0, "", stream), b"x", properties=b"\x20\0" + headers)
        client.ask(QueueDeclare(0, stream, passive=True), QueueDeclareOk)  # all of them are there
        spent = sum(gateway.cpu_times()[:2])
        client.ask(BasicConsume(0, stream, arguments={"x-stream-offset": "first"}), BasicConsumeOk)
        for _ in range(count):
            client.expect(BasicDeliver)
        spent = sum(gateway.cpu_times()[:2]) - spent
        print(f"{spent:.2f} s for {count} messages")
        assert spent < 0.5
        client.ask(QueueDelete(0, stream), QueueDeleteOk)


def test_connections_that_come_and_go_leave_nothing_behind(
    broker: Broker, connection: shardmq.Connection, gateway: psutil.Process
) -> None:
    ends: list[Callable[[RawClient], object]] = [
        RawClient.hang_up,
        RawClient.reset,
        lambda client: client.socket.close(),
        lambda client: client.send(1, ChannelOpen()),
    ]

    def churn(rounds: int) -> None:
        for number in range(rounds):
            with RawClient(broker.port, channels=3) as client:
                queue = client.ask(QueueDeclare(0, "", exclusive=True), QueueDeclareOk).queue
                client.ask(ConfirmSelect(), ConfirmSelectOk, 2)
                client.ask(BasicConsume(0, queue), BasicConsumeOk, 3)
                client.publish(BasicPublish(0, "", queue), b"x", channel=2)
                ends[number % len(ends)](client)

    base = census(connection)
    churn(40)
    until(lambda: census(connection) == base, "they are all gone")
    files, memory = gateway.num_fds(), settled_rss(gateway)
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(churn, 100) for _ in range(4)]:
            done.result()
    until(lambda: census(connection) == base, "they are all gone")
    until(lambda: gateway.num_fds() <= files, "their sockets are closed")
    assert settled_rss(gateway) - memory < 16 * MEGABYTE
    until(lambda: not [row for row in connection.topology("queues") if row["exclusive"]], "their queues are gone")


def test_idle_connections_slow_nobody_cost_little_and_leave_nothing_behind(
    broker: Broker, connection: shardmq.Connection, gateway: psutil.Process
) -> None:
    files_max = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], gateway.rlimit(psutil.RLIMIT_NOFILE)[0])
    count = min(IDLE_CONNECTIONS_MAX, files_max - 500)
    base, files, memory = census(connection), gateway.num_fds(), settled_rss(gateway)
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(RawClient(broker.port, heartbeat=600))
        each = (settled_rss(gateway) - memory) / count
        print(f"{count} idle connections, {each / 1024:.1f} KB each")
        assert each < IDLE_BYTES_MAX
        assert census(connection)[0] == base[0] + count
        assert serve(connection) < 5
    until(lambda: census(connection) == base, "they are all gone", 120)
    until(lambda: gateway.num_fds() <= files, "their sockets are closed")


def test_doors_in_numbers_are_no_trouble(broker: Broker, connection: shardmq.Connection) -> None:
    silent = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(500)]
    try:
        assert serve(connection) < 5
        with RawClient(broker.port) as client:
            client.ask(ChannelOpen(), ChannelOpenOk, 2)
    finally:
        for each in silent:
            each.close()
