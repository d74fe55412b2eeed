"""Replica processes of groups of which all have to have what is confirmed, with a real etcd."""

import signal
import threading
from pathlib import Path

import shardmq
from shardmq import errors
from tests.hosts.members import Etcd

from .moving import until
from .replicated import ReplicatedBroker


def test_what_a_transfer_finds_under_way_is_not_confirmed_by_too_few(etcd: Etcd, tmp_path: Path) -> None:
    """A replica goes silent, and is out of the set while the primary hands over: the rest are too few for a confirm."""
    with (
        ReplicatedBroker(tmp_path, etcd.url, "handing", min_in_sync=3) as broker,
        shardmq.connect(broker.url, timeout=30) as connection,
    ):
        channel = connection.channel()
        channel.queue_declare("handing", durable=True)
        channel.basic_publish("", "handing", b"all have it")
        primary = broker.group("shard-0").primary
        heir, silent = [host for host in broker.hosts if host != primary]
        said: list[str] = []

        def publish() -> None:
            try:
                channel.basic_publish("", "handing", b"two have it")
                said.append("confirmed")
            except errors.ShardmqError as refused:
                said.append(str(refused))

        publisher = threading.Thread(target=publish)
        broker.replicas[silent, "shard-0"].process.send_signal(signal.SIGSTOP)
        publisher.start()
        broker.wish("shard-0", heir)
        publisher.join(20)
        assert len(said) == 1
        assert "publish again" in said[0], said


def test_with_too_few_replicas_of_the_coordinator_in_sync_what_adds_is_refused_and_what_removes_is_not(
    etcd: Etcd, tmp_path: Path
) -> None:
    with (
        ReplicatedBroker(tmp_path, etcd.url, "coordinating", min_in_sync=2, hosts=("a", "b")) as broker,
        shardmq.connect(broker.url, timeout=30) as connection,
    ):
        connection.channel().exchange_declare("both", "fanout", durable=True)
        group = broker.group("coordinator")
        other = broker.replicas[next(host for host in group.in_sync if host != group.primary), "coordinator"]
        other.kill()
        until(lambda: len(broker.group("coordinator").in_sync) == 1)
        refused = [declared(connection, f"one-{number}") for number in range(20)]  # the primary may know it later
        assert "too few replicas of coordinator are in sync: " in refused[-1], refused
        assert "of at least 2" in refused[-1]
        assert all(refused), "a declaration was answered that one replica has"
        connection.channel().exchange_delete("both")
        other.restart()
        until(lambda: not declared(connection, "both again"))


def test_what_was_under_way_is_not_found_done_while_too_few_replicas_of_the_coordinator_are_in_sync(
    etcd: Etcd, tmp_path: Path
) -> None:
    """The primary has it alone, and its gateway asks again: neither answers by what is there."""
    with (
        ReplicatedBroker(tmp_path, etcd.url, "doubting", min_in_sync=2, hosts=("a", "b")) as broker,
        shardmq.connect(broker.url, timeout=30) as connection,
    ):
        assert not declared(connection, "both")
        group = broker.group("coordinator")
        other = broker.replicas[next(host for host in group.in_sync if host != group.primary), "coordinator"]
        other.process.send_signal(signal.SIGSTOP)
        under_way = declared(connection, "one")
        assert "too few replicas of coordinator are in sync: " in under_way
        with shardmq.connect(broker.url, timeout=30) as another:
            assert declared(another, "one") == under_way, "its gateway has heard of it"
            assert not declared(another, "both")
        other.process.send_signal(signal.SIGCONT)
        until(lambda: not declared(connection, "one"))


def declared(connection: shardmq.Connection, name: str) -> str:
    """Declare an exchange; returns why it was refused, "" where it was not."""
    try:
        connection.channel().exchange_declare(name, "fanout", durable=True)
    except errors.ShardmqError as refused:
        return str(refused)
    return ""
