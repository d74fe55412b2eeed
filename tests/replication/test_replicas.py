"""Three replica processes of each group, with a real etcd: primaries are killed, frozen and deposed under clients."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.bench.compare.rabbitmq import Absent
from shardmq.runtime.notify import REPLICA_ENDED
from tests.e2e.traffic import bodies
from tests.faults.ledgers import Client, Consumer, Ledger, Publisher
from tests.hosts.members import Etcd
from tests.running import without

from .moving import until
from .replicated import ReplicatedBroker
from .test_moves import publishes


@pytest.fixture(scope="module")
def etcd() -> Iterator[Etcd]:
    try:
        with Etcd(size=1) as etcd:
            yield etcd
    except Absent as reason:
        without(reason)


@pytest.fixture(scope="module")
def broker(etcd: Etcd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicatedBroker]:
    with ReplicatedBroker(tmp_path_factory.mktemp("replicated"), etcd.url, "replicated") as broker:
        yield broker


def confirm_more(ledger: Ledger, count: int = 300) -> None:
    end = len(ledger.confirmed) + count
    until(lambda: len(ledger.confirmed) >= end)


def test_nothing_confirmed_is_lost_as_primaries_are_killed_frozen_and_moved(broker: ReplicatedBroker) -> None:
    ledger = Ledger()
    with shardmq.connect(broker.url, timeout=30) as connection:
        channel = connection.channel()
        channel.exchange_declare("all", "fanout", durable=True)
        channel.queue_declare("kept", durable=True)
        channel.queue_bind("kept", "all")
    publishers = [Publisher(broker.url, ledger, f"p-{number}", "all") for number in range(2)]
    clients: list[Client] = [*publishers, Consumer(broker.url, ledger, "c", "kept")]
    for client in clients:
        client.start()
    confirm_more(ledger)

    killed, term = broker.primary("shard-0"), broker.group("shard-0").term
    killed.kill()
    broker.until_led_by_another("shard-0", term)
    confirm_more(ledger)
    killed.restart()
    until(lambda: len(broker.group("shard-0").in_sync) == 3)

    frozen, term = broker.primary("shard-0"), broker.group("shard-0").term
    frozen.process.send_signal(signal.SIGSTOP)
    broker.until_led_by_another("shard-0", term)
    confirm_more(ledger)
    frozen.process.send_signal(signal.SIGCONT)
    until(lambda: frozen.exits[-1:] == [REPLICA_ENDED])
    until(lambda: len(broker.group("shard-0").in_sync) == 3)

    term = broker.group("shard-0").term
    other = next(host for host in broker.hosts if host != broker.group("shard-0").primary)
    broker.wish("shard-0", other)
    broker.until_led_by_another("shard-0", term)
    assert broker.group("shard-0").primary == other
    confirm_more(ledger)

    for client in publishers:
        client.stopping.set()
        client.join(20)
    until(lambda: ledger.confirmed <= ledger.received.keys())
    for each in clients:
        each.stopping.set()
        each.join(20)
        assert each.crash is None
    assert not ledger.unknown, ledger.verdict()
    assert not ledger.unmarked_copies, ledger.verdict()


@pytest.mark.parametrize("is_primary", [True, False], ids=["primary", "follower"])
def test_a_replica_that_is_told_to_stop_is_waited_for_by_nobody(broker: ReplicatedBroker, is_primary: bool) -> None:
    group = broker.group("shard-0")
    stopped = next(host for host in group.in_sync if (host == group.primary) == is_primary)
    with shardmq.connect(broker.url, timeout=30) as connection:
        channel = connection.channel()
        channel.queue_declare("stopping", durable=True)
        channel.basic_publish("", "stopping", b"before")
        replica = broker.replicas[stopped, "shard-0"]
        replica.stop()
        assert replica.exits[-1] == 0
        group = broker.group("shard-0")
        assert group.primary != stopped
        assert stopped not in group.in_sync
        until(lambda: publishes(channel, "stopping", b"after"))
        assert bodies(channel, "stopping") == [b"before", b"after"]
        channel.queue_delete("stopping")
    replica.restart()
    until(lambda: len(broker.group("shard-0").in_sync) == 3)


def test_what_is_declared_outlives_the_coordinators_primary(broker: ReplicatedBroker) -> None:
    with shardmq.connect(broker.url, timeout=30) as connection:
        channel = connection.channel()
        channel.queue_declare("declared", durable=True)
        exclusive = connection.channel().queue_declare(exclusive=True).queue
        killed, term = broker.primary("coordinator"), broker.group("coordinator").term
        killed.kill()
        broker.until_led_by_another("coordinator", term)
        channel.queue_declare("declared later", durable=True)
        for queue in ("declared", "declared later", exclusive):
            channel.basic_publish("", queue, b"there")
            assert next(channel.consume(queue, auto_ack=True, inactivity_timeout=10)).body == b"there"
        killed.restart()
        until(lambda: len(broker.group("coordinator").in_sync) == 3)


def refusal(channel: shardmq.Channel, queue: str) -> str:
    """Publish a message, and return why it was refused; "" where it was confirmed."""
    try:
        channel.basic_publish("", queue, b"one has it")
    except errors.RequestError as refused:
        return str(refused)
    return ""


def test_what_is_under_way_when_too_few_are_left_is_not_confirmed(etcd: Etcd, tmp_path: Path) -> None:
    """The primary waits for a replica that died; when that is out of the set, one copy is too few for a confirm."""
    with (
        ReplicatedBroker(tmp_path, etcd.url, "waiting", min_in_sync=2, hosts=("a", "b")) as broker,
        shardmq.connect(broker.url, timeout=30) as connection,
    ):
        channel = connection.channel()
        channel.queue_declare("waiting", durable=True)
        channel.basic_publish("", "waiting", b"both have it")
        group = broker.group("shard-0")
        broker.replicas[next(host for host in group.in_sync if host != group.primary), "shard-0"].kill()
        assert "publish again" in refusal(channel, "waiting"), "a publish was confirmed that one replica has"
        assert len(broker.group("shard-0").in_sync) == 1
        until(lambda: "too few replicas of shard-0" in refusal(channel, "waiting"))


def test_with_too_few_replicas_in_sync_publishes_are_refused_and_acknowledgements_are_not(
    etcd: Etcd, tmp_path: Path
) -> None:
    with (
        ReplicatedBroker(tmp_path, etcd.url, "few", min_in_sync=2, hosts=("a", "b")) as broker,
        shardmq.connect(broker.url, timeout=30) as connection,
    ):
        channel = connection.channel()
        channel.queue_declare("few", durable=True)
        channel.basic_publish("", "few", b"both have it")
        group = broker.group("shard-0")
        other = broker.replicas[next(host for host in group.in_sync if host != group.primary), "shard-0"]
        other.kill()
        until(lambda: len(broker.group("shard-0").in_sync) == 1)
        refused = refusal(channel, "few")
        while "too few replicas of shard-0 are in sync" not in refused:  # etcd may know it before the primary does
            assert "publish again" in refused, "a publish was confirmed that one replica has"
            refused = refusal(channel, "few")
        assert "of at least 2" in refused
        next(channel.consume("few", inactivity_timeout=10)).ack()
        other.restart()
        until(lambda: len(broker.group("shard-0").in_sync) == 2)
        channel.queue_purge("few")  # what was refused while the primary did not know may be there
        until(lambda: publishes(channel, "few", b"both have it again"))  # etcd may know it before the primary does
        assert next(channel.consume("few", inactivity_timeout=10)).body == b"both have it again"
