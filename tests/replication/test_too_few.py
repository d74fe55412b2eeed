"""Three replica processes of a shard of which all have to have what is confirmed, with a real etcd."""

import signal
import threading
from pathlib import Path

import shardmq
from shardmq import errors
from tests.hosts.members import Etcd

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
