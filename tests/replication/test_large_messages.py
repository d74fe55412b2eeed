"""Messages that are larger than what may wait for a follower."""

import shutil
from pathlib import Path

import pytest

import shardmq
from shardmq.replication.links.outgoing import WAITING_BYTES_MAX
from tests.hosts.members import Etcd

from .moving import until
from .replicated import ReplicatedBroker

BODY = bytes(WAITING_BYTES_MAX + (8 << 20))


@pytest.mark.parametrize("is_wiped", [True, False], ids=["a join", "a rejoin"])
def test_a_replica_that_was_away_is_in_sync_again(etcd: Etcd, tmp_path: Path, is_wiped: bool) -> None:
    with (
        ReplicatedBroker(tmp_path, etcd.url, f"large-{is_wiped}", hosts=("a", "b")) as broker,
        shardmq.connect(broker.url, timeout=60) as connection,
    ):
        channel = connection.channel()
        channel.queue_declare("large", durable=True)
        primary = broker.group("shard-0").primary
        (other,) = {*broker.hosts} - {primary}
        broker.replicas[other, "shard-0"].kill()
        until(lambda: broker.group("shard-0").in_sync == (primary,))
        channel.basic_publish("", "large", BODY)
        if is_wiped:
            shutil.rmtree(tmp_path / other / "shard-0")
        broker.start(other, "shard-0")
        until(lambda: other in broker.group("shard-0").in_sync)
        term = broker.group("shard-0").term
        broker.primary("shard-0").kill()
        broker.until_led_by_another("shard-0", term)
        message = channel.basic_get("large", auto_ack=True)
        assert message is not None
        assert message.body == BODY
