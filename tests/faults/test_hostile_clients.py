"""Clients that do what no client should: the others are served, and the gateway keeps its memory and its sockets."""

import contextlib
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker
from shardmq.message.record import pack
from shardmq.protocol.native.operations.basic import (
    BasicAck,
    BasicConfirm,
    BasicConsume,
    BasicGet,
    BasicPublish,
    BasicRefused,
)
from shardmq.protocol.native.operations.codec import encode
from shardmq.protocol.native.operations.connection import ChannelClose, ChannelOpen, ConnectionOpen, Ok
from shardmq.protocol.native.operations.topology import QueueDeclare, TopologyList

from .saboteur import RawClient, census, open_files, queue_table, rss_bytes, send_until_stuck, until

MEGABYTE = 1 << 20
GROWTH_MAX = 64 * MEGABYTE


Open = Callable[[], RawClient]


@pytest.fixture
def raw(broker: Broker) -> Iterator[Open]:
    """Makes clients with an open channel and a small receive buffer; they are gone after the test."""
    with contextlib.ExitStack() as stack:

        def make() -> RawClient:
            client = RawClient(broker, receive_buffer=65_536)
            stack.callback(client.close)
            return client.open()

        yield make


@pytest.fixture
def connection(broker: Broker) -> Iterator[shardmq.Connection]:
    """Somebody who behaves; the gateway that serves them is the same process before and after."""
    pid = broker.pids["gateway-0"]
    with shardmq.connect(broker.url, timeout=30) as connection:
        yield connection
        serve(connection)
    assert broker.pids["gateway-0"] == pid


def serve(connection: shardmq.Connection, messages: int = 50) -> float:
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


def serve_without_declaring(connection: shardmq.Connection) -> float:
    with connection.channel() as channel:
        began = time.monotonic()
        for _ in range(20):
            channel.basic_publish("", "nowhere", b"x")
        return time.monotonic() - began


def fill(connection: shardmq.Connection, queue: str, megabytes: int) -> None:
    with connection.channel() as channel:
        channel.queue_declare(queue, durable=True)
        properties = shardmq.Properties(delivery_mode=1)
        with channel.publisher(window=16) as publisher:
            for _ in range(megabytes):
                publisher.publish("", queue, bytes(MEGABYTE), properties)


def settled_rss(pid: int) -> int:
    """The memory of a process once it no longer grows."""
    last = rss_bytes(pid)

    def is_settled() -> bool:
        nonlocal last
        time.sleep(0.3)  # between two looks
        before, last = last, rss_bytes(pid)
        return last <= before + MEGABYTE

    until(is_settled, "memory settles")
    return last


@pytest.mark.parametrize("auto_ack", [True, False], ids=["auto-ack", "unlimited-prefetch"])
def test_a_consumer_that_never_reads_costs_the_gateway_a_window_and_the_others_nothing(
    broker: Broker, connection: shardmq.Connection, raw: Open, auto_ack: bool
) -> None:
    queue = f"unread-{auto_ack}"
    fill(connection, queue, 200)
    before = settled_rss(broker.pids["gateway-0"])
    client = raw()
    client.send(BasicConsume(3, 1, queue, "deaf", auto_ack, 0))
    until(lambda: queue_table(connection, queue)["ready"] < 200, "deliveries begin")
    after = settled_rss(broker.pids["gateway-0"])
    assert after - before < GROWTH_MAX
    assert serve(connection) < 2
    assert queue_table(connection, queue)["ready"] > 150
    client.reset()
    until(lambda: queue_table(connection, queue)["consumers"] == 0, "the consumer is gone")
    with connection.channel() as channel:
        channel.queue_delete(queue)


def test_a_client_that_gets_and_never_reads_costs_the_gateway_a_bounded_amount(
    broker: Broker, connection: shardmq.Connection, raw: Open
) -> None:
    fill(connection, "got", 200)
    before = settled_rss(broker.pids["gateway-0"])
    client = raw()
    client.send(*(BasicGet(number, 1, "got", True) for number in range(3, 203)))
    until(lambda: queue_table(connection, "got")["ready"] < 195, "answers come")
    after = settled_rss(broker.pids["gateway-0"])
    assert after - before < GROWTH_MAX
    assert serve(connection) < 2
    for number in range(3, 203):  # whoever reads late gets every answer, in order
        answer = client.receive()
        assert isinstance(answer, Ok)
        assert answer.request == number
        assert answer.result is not None


def test_publishes_behind_a_request_that_waits_cost_the_gateway_a_bounded_amount(
    broker: Broker, connection: shardmq.Connection, raw: Open
) -> None:
    """Requests of a channel are carried out in order: what follows one that waits is held, but not without end."""
    before = settled_rss(broker.pids["gateway-0"])
    client = raw()
    big = encode(BasicPublish(4, 1, "", "nowhere", 0, 1, pack(None, bytes(4 * MEGABYTE))))
    broker.kill("coordinator", signal.SIGSTOP)
    try:
        client.send(QueueDeclare(3, 1, "waits"))
        sent = send_until_stuck(client, big, 400 * MEGABYTE, patience=0.5)
        grown = rss_bytes(broker.pids["gateway-0"]) - before
        assert serve_without_declaring(connection) < 2
    finally:
        broker.kill("coordinator", signal.SIGCONT)
    assert sent < GROWTH_MAX
    assert grown < GROWTH_MAX
    rest = -sent % len(big)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(client.socket.sendall, big[len(big) - rest :] + encode(QueueDeclare(5, 1, "waits")))
        assert isinstance(client.receive(), Ok)  # it waits no longer, and everything behind it is carried out
        confirms = 0
        while isinstance(answer := client.receive(), BasicConfirm):  # of publishes of one number: of several, one tells
            confirms += 1
        assert isinstance(answer, Ok)
        assert answer.request == 5
        assert confirms
        done.result()


@pytest.mark.usefixtures("connection")
def test_a_channel_that_closes_with_much_behind_it_leaves_its_connection_readable(raw: Open) -> None:
    client = raw()
    client.send(ChannelOpen(3, 2))
    assert isinstance(client.receive(), Ok)
    behind = b"".join(encode(BasicPublish(6, 1, "", "nowhere", 0, 1, pack(None, bytes(50_000)))) for _ in range(400))
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(
            client.socket.sendall,
            encode(QueueDeclare(4, 1, "closing"))
            + encode(BasicAck(1, [(7, 7)]))
            + behind
            + encode(TopologyList(9, 2, "queues")),
        )
        answers = [client.receive()]
        while not (isinstance(answers[-1], Ok) and answers[-1].request == 9):
            answers.append(client.receive())
        sending.result()
    assert any(isinstance(answer, ChannelClose) for answer in answers)


def test_small_requests_with_large_answers_are_carried_out_no_faster_than_these_are_read(
    broker: Broker, connection: shardmq.Connection, raw: Open
) -> None:
    with connection.channel() as channel:
        channel.queue_declare("q" * 200)
        for number in range(300):
            channel.queue_bind("q" * 200, "amq.topic", f"{number}." + "k" * 200)
    before = settled_rss(broker.pids["gateway-0"])
    client = raw()
    requests = range(3, 2003)
    client.send(*(TopologyList(number, 1, "bindings") for number in requests))  # 130 kB each
    time.sleep(0.5)  # it may take its time to take too much
    assert settled_rss(broker.pids["gateway-0"]) - before < GROWTH_MAX
    assert serve(connection) < 2
    for number in requests:
        answer = client.receive()
        assert isinstance(answer, Ok)
        assert answer.request == number
    with connection.channel() as channel:
        channel.queue_delete("q" * 200)


def test_a_publisher_that_never_reads_its_answers_is_read_no_more_and_loses_none_of_them(
    broker: Broker, connection: shardmq.Connection, raw: Open
) -> None:
    before = settled_rss(broker.pids["gateway-0"])
    client = raw()
    exchange = "x" * 255  # is not there: the answers are longer than what is asked
    refused = encode(BasicPublish(3, 1, exchange, "k", 0, 1, pack(None, b"")))
    sent = send_until_stuck(client, refused, 200 * MEGABYTE)
    assert sent < 200 * MEGABYTE, "the gateway reads on though it can not answer"
    assert settled_rss(broker.pids["gateway-0"]) - before < GROWTH_MAX
    assert serve(connection) < 2
    with ThreadPoolExecutor(1) as pool:
        rest = pool.submit(client.socket.sendall, refused[sent % len(refused) :] if sent % len(refused) else b"")
        for _ in range(-(-sent // len(refused))):
            assert isinstance(client.receive(), BasicRefused)
        rest.result()


def test_a_publisher_that_reads_its_confirms_late_gets_all_of_them(connection: shardmq.Connection, raw: Open) -> None:
    with connection.channel() as channel:
        channel.queue_declare("late", durable=True)
    client = raw()
    record = pack(None, b"x" * 100)
    publishes = 50_000
    client.socket.sendall(
        b"".join(encode(BasicPublish(number, 1, "", "late", 1, 1, record)) for number in range(3, 3 + publishes))
    )
    until(lambda: queue_table(connection, "late")["ready"] == publishes, "all are stored")
    confirmed: set[int] = set()
    while len(confirmed) < publishes:
        answer = client.receive()
        assert isinstance(answer, BasicConfirm)
        for first, last in answer.requests:
            confirmed.update(range(first, last + 1))
    assert confirmed == set(range(3, 3 + publishes))


def test_clients_that_reset_in_the_middle_of_a_frame_harm_nobody(connection: shardmq.Connection, raw: Open) -> None:
    with connection.channel() as channel:
        channel.queue_declare("torn", durable=True)
        whole = encode(BasicPublish(4, 1, "", "torn", 1, 1, pack(None, bytes(100_000))))
        declare = encode(QueueDeclare(5, 1, "torn", True))
        base = census(connection)
        stored = 0
        for cut in (1, 7, 8, 9, 100, 50_000, 65_536, len(whole) - 1) * 5:
            client = raw()
            client.send(BasicPublish(3, 1, "", "torn", 1, 1, pack(None, b"whole")), BasicConsume(6, 1, "torn"))
            assert isinstance(client.receive(), BasicConfirm | Ok)
            stored += 1
            client.socket.sendall(declare + whole[:cut])
            client.reset()
            channel.basic_publish("", "torn", b"mine")
            stored += 1
        until(lambda: census(connection) == base, "they are all gone")
        until(lambda: queue_table(connection, "torn")["unacked"] == 0, "what they held returns")
        table = queue_table(connection, "torn")
        assert table["consumers"] == 0
        assert table["ready"] == stored
        assert channel.queue_purge("torn") == stored


def test_a_gateway_takes_more_clients_than_its_shell_would_let_it(start_broker: Callable[..., Broker]) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, limits[1]))
    try:
        broker = start_broker(shards=1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            client = RawClient(broker)
            stack.callback(client.close)
            client.open()


def test_a_gateway_out_of_file_descriptors_serves_whom_it_has_and_later_others(
    start_broker: Callable[..., Broker],
) -> None:
    broker = start_broker(shards=1)
    pid = broker.pids["gateway-0"]
    with shardmq.connect(broker.url) as connection:
        serve(connection)
        most = open_files(pid) + 10
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, most))
        with contextlib.ExitStack() as stack:
            for _ in range(60):
                stack.enter_context(socket.create_connection(("127.0.0.1", broker.port)))
            assert serve(connection) < 2
            ticked = connection.status()["processes"]
            until(lambda: connection.status()["processes"] != ticked, "time passes")
            assert serve(connection) < 2

        def another() -> bool:
            with contextlib.suppress(errors.ConnectionLost), shardmq.connect(broker.url) as other:
                serve(other)
                return True
            return False

        until(another, "there is room again")
    assert broker.pids["gateway-0"] == pid


def test_two_thousand_idle_connections_slow_nobody_and_leave_nothing_behind(
    broker: Broker, connection: shardmq.Connection
) -> None:
    pid = broker.pids["gateway-0"]
    serve(connection)
    base, files, memory = census(connection), open_files(pid), rss_bytes(pid)
    clients = [RawClient(broker) for _ in range(2000)]
    for client in clients:
        client.send(ConnectionOpen(1, 1, "guest", "guest", "/", 60))
    for client in clients:
        assert isinstance(client.receive(), Ok)
    assert census(connection)[0] == base[0] + 2000
    assert serve(connection, 200) < 1
    assert rss_bytes(pid) - memory < GROWTH_MAX
    for client in clients[::2]:
        client.reset()
    for client in clients[1::2]:
        client.close()
    until(lambda: census(connection) == base, "they are all gone")
    until(lambda: open_files(pid) <= files, "their sockets are closed")


def test_connections_channels_and_consumers_that_come_and_go_leave_nothing_behind(
    broker: Broker, connection: shardmq.Connection
) -> None:
    pid = broker.pids["gateway-0"]
    with connection.channel() as channel:
        channel.queue_declare("churned", durable=True)
        with channel.publisher() as publisher:
            publisher.publish_many("", "churned", [b"x"] * 1000)

    def churn(rounds: int) -> None:
        for number in range(rounds):
            client = shardmq.connect(broker.url)
            channels = [client.channel() for _ in range(4)]
            for channel in channels:
                channel.basic_consume("churned", lambda _: None, prefetch=7)
            message = channels[0].basic_get("churned")
            if message is not None:
                message.nack()
            channels[1].close()
            if number % 3 == 0:
                client._abort()
            else:
                client.close()

    churn(20)
    until(lambda: census(connection)[0] == 0, "they are all gone")
    files, memory, base = open_files(pid), rss_bytes(pid), census(connection)
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(churn, 60) for _ in range(4)]:
            done.result()
    until(lambda: census(connection) == base == (0, 0, 0), "they are all gone")
    until(lambda: open_files(pid) <= files, "their sockets are closed")
    assert rss_bytes(pid) - memory < 16 * MEGABYTE
    table = queue_table(connection, "churned")
    assert [table[name] for name in ("ready", "unacked", "consumers")] == [1000, 0, 0]


def test_a_channel_flooded_with_wrong_acks_closes_alone(connection: shardmq.Connection, raw: Open) -> None:
    client = raw()
    client.send(*(BasicAck(1, [(number, number + 10**9)]) for number in range(1, 20_000)), TopologyList(4, 1, "queues"))
    assert serve(connection) < 2
    client.close()
