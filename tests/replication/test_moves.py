"""Shards and the coordinator move between hosts under clients that go on: gateways find them by etcd."""

import itertools
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import shardmq
from shardmq import errors
from shardmq.spark.connection import shared
from shardmq.spark.connection.broker import BrokerConnection
from shardmq.spark.connection.gateways import Route
from shardmq.spark.options import parse
from shardmq.spark.topics.batch import TopicReader
from tests.e2e.traffic import bodies, shard_of
from tests.faults.ledgers import Client, Consumer, Ledger, Publisher
from tests.hosts.members import Etcd
from tests.ports import free_ports
from tests.warm import warm_process

from .moving import MovingBroker, is_listening, until


@pytest.fixture(scope="module")
def moving(etcd: Etcd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MovingBroker]:
    with MovingBroker(tmp_path_factory.mktemp("moving"), etcd.url, "moving") as broker:
        yield broker


@pytest.fixture
def connection(moving: MovingBroker) -> Iterator[shardmq.Connection]:
    with shardmq.connect(moving.url, timeout=30) as connection:
        yield connection


def queue_on(connection: shardmq.Connection, shard: str, prefix: str) -> str:
    """A durable queue on a shard."""
    channel = connection.channel()
    for number in range(64):
        name = channel.queue_declare(f"{prefix}-{number}", durable=True).queue
        if shard_of(connection, name) == shard:
            return name
    raise AssertionError(f"no queue of 64 is on {shard}")


def confirm_more(ledger: Ledger, count: int = 300) -> None:
    """Wait until so many more are confirmed."""
    end = len(ledger.confirmed) + count
    until(lambda: len(ledger.confirmed) >= end)


def test_nothing_that_was_confirmed_is_lost_while_everything_moves(
    moving: MovingBroker, connection: shardmq.Connection
) -> None:
    ledger = Ledger()
    channel = connection.channel()
    channel.exchange_declare("all", "fanout", durable=True)
    queue = queue_on(connection, "shard-0", "moved")
    channel.queue_bind(queue, "all")
    publishers = [Publisher(moving.url_of(host), ledger, f"p-{host}", "all") for host in "ab"]
    clients: list[Client] = [*publishers, Consumer(moving.url_of("b"), ledger, "c", queue)]
    for client in clients:
        client.start()
    for group in ("coordinator", "shard-0", "shard-1", "shard-0"):
        confirm_more(ledger)
        deposed = moving.move(group)
        confirm_more(ledger)
        deposed.send_signal(signal.SIGCONT)
    confirm_more(ledger)
    for publisher in publishers:
        publisher.stopping.set()
        publisher.join(20)
    until(lambda: ledger.confirmed <= ledger.received.keys())
    for client in clients:
        client.stopping.set()
        client.join(20)
        assert client.crash is None
    assert not ledger.unknown, ledger.verdict()
    assert not ledger.unmarked_copies, ledger.verdict()


def test_what_a_deposed_primary_still_stores_was_never_confirmed(
    moving: MovingBroker, connection: shardmq.Connection
) -> None:
    channel = connection.channel()
    queue = queue_on(connection, "shard-1", "deposed")
    channel.basic_publish("", queue, b"before")
    refused: list[Exception] = []

    def publish() -> None:
        try:
            channel.basic_publish("", queue, b"to the frozen one")
        except errors.RequestError as error:
            refused.append(error)

    frozen = moving.freeze(moving.leads["shard-1"], "shard-1")
    publishing = threading.Thread(target=publish)
    publishing.start()
    moving.take_over("shard-1")
    publishing.join(20)
    assert [str(error) for error in refused]
    assert "publish again" in str(refused[0])
    frozen.send_signal(signal.SIGCONT)
    until(lambda: publishes(channel, queue, b"after"))
    assert bodies(channel, queue) == [b"before", b"after"]


def publishes(channel: shardmq.Channel, queue: str, body: bytes) -> bool:
    try:
        channel.basic_publish("", queue, body)
    except errors.RequestError:
        return False
    return True


def test_what_lives_with_its_clients_outlives_the_coordinators_move(
    moving: MovingBroker, connection: shardmq.Connection
) -> None:
    """The one before was asked for a queue when it froze, and does not know that another one has answered."""
    channel, own = connection.channel(), connection.channel()
    exclusive = own.queue_declare(exclusive=True).queue
    messages = own.consume(exclusive, auto_ack=True, inactivity_timeout=10)
    channel.queue_declare("transient")
    channel.topic_declare("moves", 4)
    with shardmq.connect(moving.url_of("b")) as other:
        members = [each.channel().group_consumer("moves", "g") for each in (connection, other)]

        def shares() -> list[set[int]]:
            for member in members:
                member.poll(0)
            return [set(member.offsets) for member in members]

        until(lambda: [len(share) for share in shares()] == [2, 2])
        before = shares()
        frozen = moving.freeze(moving.leads["coordinator"], "coordinator")
        declaring = threading.Thread(target=lambda: channel.queue_declare("asked of both", durable=True))
        declaring.start()
        moving.take_over("coordinator")
        declaring.join(20)
        frozen.send_signal(signal.SIGCONT)
        channel.basic_publish("", exclusive, b"found")
        assert [message.body for message in itertools.islice(messages, 1) if message] == [b"found"]
        assert channel.queue_declare("transient", passive=True).messages == 0
        assert shares() == before
        state = connection.status()
        hosts = {row["process"]: (row["host"], row.get("term")) for row in state["processes"]}
        assert hosts == {
            "a.gateway-0": ("a", None),
            "b.gateway-0": ("b", None),
            **{group: (moving.leads[group], moving.terms[group]) for group in moving.groups},
        }
        leads = {row["group"]: (row["primary"], row["term"], row["in_sync"]) for row in state["groups"]}
        assert leads == {group: (moving.leads[group], moving.terms[group], ["a", "b"]) for group in moving.groups}
        queues = [row["name"] for row in state["queues"]]
        assert queues.count("asked of both") == 1
        channel.queue_delete("asked of both")


def test_without_etcd_all_goes_on_as_it_was(connection: shardmq.Connection, etcd: Etcd) -> None:
    channel = connection.channel()
    channel.queue_declare("etcd away", durable=True)
    etcd.members[0].freeze()
    try:
        channel.basic_publish("", "etcd away", b"one")
        channel.queue_declare("declared without", durable=True)
        assert bodies(channel, "etcd away") == [b"one"]
    finally:
        etcd.members[0].thaw()


def test_a_client_goes_on_at_the_gateway_of_another_host(moving: MovingBroker, connection: shardmq.Connection) -> None:
    channel = connection.channel()
    channel.queue_declare("rides through", durable=True)
    [host] = [host for host, port in moving.ports.items() if f":{port}" in repr(connection)]
    with channel.publisher() as publisher:
        for number in range(300):
            publisher.publish("", "rides through", b"%d" % number)
            if number == 150:
                killed = moving.processes.pop((host, "gateway"))
                killed.kill()
                killed.wait()
    assert f":{moving.ports[host]}" not in repr(connection)
    assert sorted(map(int, bodies(channel, "rides through"))) == list(range(300))
    moving.start_gateway(host)
    until(lambda: is_listening(moving.ports[host]))


def test_a_gateway_that_waits_for_its_broker_ends_when_it_is_told_to(etcd: Etcd) -> None:
    [port] = free_ports(1)
    waiting = warm_process.run("tests.replication.moving:gateway", "c.gateway-0", str(port), f"{etcd.url}/nobody")
    try:
        until(lambda: len(list(Path(f"/proc/{waiting.pid}/task").iterdir())) > 1)  # it asks etcd
        assert not is_listening(port)
        waiting.send_signal(signal.SIGTERM)
        assert waiting.wait(10) == 0
    finally:
        waiting.kill()
        waiting.wait()


def test_clients_hear_where_a_queue_is_led_and_spark_reads_it_there(
    moving: MovingBroker, connection: shardmq.Connection
) -> None:
    channel = connection.channel()
    queue = queue_on(connection, "shard-1", "placed")

    def place() -> tuple[str, str]:
        (found,) = channel.queue_places(queue)
        assert (found.partition, found.queue, found.shard) == (0, queue, 1)
        return found.host, found.gateway

    def expected() -> tuple[str, str]:
        host = moving.leads["shard-1"]
        return host, f"127.0.0.1:{moving.ports[host]}"

    for _ in range(2):
        until(lambda: place() == expected())
        ours = BrokerConnection(moving.url)
        (wanted,) = ours.gateways(queue)
        ours.close()
        for turn in range(2):
            reading = BrokerConnection(moving.url, route=Route(turn, wanted=wanted))
            assert reading.address == expected()[1]
            reading.close()
        moving.move("shard-1", is_frozen=False)
    channel.topic_declare("parts", 2)
    assert {(found.queue, found.shard) for found in channel.queue_places("parts")} == {
        ("parts-0", 0),
        ("parts-1", 1),
    }
    with pytest.raises(errors.NotFound, match="no queue, stream or topic 'nowhere'"):
        channel.queue_places("nowhere")


def test_sparks_tasks_read_each_partition_by_the_gateway_of_the_host_that_leads_it(
    moving: MovingBroker, connection: shardmq.Connection
) -> None:
    channel = connection.channel()
    channel.topic_declare("led", 2)
    with channel.publisher() as publisher:
        publisher.publish_keyed("led", [(f"key-{number % 20}", b"%d" % number) for number in range(500)])
    if moving.leads["shard-0"] == moving.leads["shard-1"]:
        moving.move("shard-0", is_frozen=False)
    until(lambda: len({place.gateway for place in channel.queue_places("led")}) == 2)
    options = {"url": moving.url, "subscribe": "led"}
    reader = TopicReader(parse(options, "topic"), StructType([StructField("value", BinaryType())]))
    parts = reader.ranges()
    led_by = [moving.leads[f"shard-{place.shard}"] for place in channel.queue_places("led")]
    assert sorted(led_by) == ["a", "b"]
    assert [part.gateway for part in parts] == [f"127.0.0.1:{moving.ports[host]}" for host in led_by]
    values = []
    for part in parts:
        values += [int(value) for batch in reader.read(part) for value in batch.column("value").to_pylist()]
        ours = shared._connections[os.getpid(), moving.url, part.gateway]
        assert ours.address == part.gateway
        ours.close()
    assert sorted(values) == [*range(500)]
