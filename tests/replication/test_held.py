"""What a primary says does not leave before its followers have what it is about, or count no more."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import shardmq
from shardmq.replication.core.group import Group
from shardmq.replication.etcd.register import Entry, Register
from shardmq.replication.etcd.url import parse
from shardmq.replication.etcd.values import GROUPS
from shardmq.runtime.clock import boottime
from tests.hosts.members import Etcd

from .etcd.loop import SECONDS, Asker
from .moving import until
from .replicated import ReplicatedBroker

SHARDS = 2


@pytest.fixture(scope="module")
def broker(etcd: Etcd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicatedBroker]:
    with ReplicatedBroker(tmp_path_factory.mktemp("held"), etcd.url, "held", SHARDS) as broker:
        yield broker


@pytest.fixture
def connection(broker: ReplicatedBroker) -> Iterator[shardmq.Connection]:
    with shardmq.connect(broker.url, timeout=60) as connection:
        yield connection


@pytest.fixture
def queues(connection: shardmq.Connection) -> list[str]:
    """A queue of each shard."""
    channel = connection.channel()
    found: dict[int, str] = {}
    for number in range(1000):
        channel.queue_declare(f"q{number}", durable=True)
        found |= {row["shard"]: row["name"] for row in connection.topology("queues")}
        if len(found) == SHARDS:
            return [found[shard] for shard in range(SHARDS)]
    raise AssertionError("one shard has all queues")


@contextmanager
def frozen_followers(broker: ReplicatedBroker, group: str) -> Iterator[set[str]]:
    """Freeze both followers of a group; yields their hosts. They are in sync again afterwards."""
    until(lambda: len(broker.group(group).in_sync) == len(broker.hosts))
    followers = {*broker.hosts} - {broker.group(group).primary}
    processes = [broker.replicas[host, group].process for host in followers]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield followers
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)
        until(lambda: len(broker.group(group).in_sync) == len(broker.hosts))


def as_etcd_has_it(broker: ReplicatedBroker, group: str) -> Group:
    """A group as a majority of etcd has it, now."""
    with Asker(broker.join) as asker:
        register = Register(asker.client, parse(broker.join).prefix, "test-held")
        entry = asker.outcome(lambda done: register.read(GROUPS, group, boottime() + SECONDS, done))
    assert isinstance(entry, Entry)
    assert isinstance(entry.value, Group)
    return entry.value


def check_held(broker: ReplicatedBroker, group: str, act: Callable[[], object], is_seen: Callable[[], object]) -> None:
    """Do something that a group's primary is to answer for, while its followers are frozen, until that is seen.

    They are taken out of the set after a while. What is seen before that was said too early.
    """
    with frozen_followers(broker, group) as followers:
        actor = threading.Thread(target=act)
        actor.start()
        until(is_seen)
        early = followers & {*as_etcd_has_it(broker, group).in_sync}
        assert not early, f"{', '.join(sorted(early))} may lead, and never heard of it"
        actor.join()


def test_a_confirm_is_held(broker: ReplicatedBroker, connection: shardmq.Connection, queues: list[str]) -> None:
    channel, confirmed = connection.channel(), threading.Event()

    def publish() -> None:
        channel.basic_publish("", queues[0], b"held")
        confirmed.set()

    check_held(broker, "shard-0", publish, confirmed.is_set)


def test_the_answer_to_a_declaration_is_held(broker: ReplicatedBroker, connection: shardmq.Connection) -> None:
    channel, declared = connection.channel(), threading.Event()

    def declare() -> None:
        channel.exchange_declare("held", durable=True)
        declared.set()

    check_held(broker, "coordinator", declare, declared.is_set)


def test_a_decision_about_a_transaction_is_held(
    broker: ReplicatedBroker, connection: shardmq.Connection, queues: list[str]
) -> None:
    """Shards follow it at once: one that another coordinator never heard of would leave a transaction half done."""
    channel, looking = connection.channel(), connection.channel()
    for queue in queues:
        looking.queue_purge(queue)
    transaction = channel.transaction("held")
    for queue in queues:
        transaction.publish("", queue, b"together")
    sealed = transaction.seal()
    check_held(
        broker,
        "coordinator",
        lambda: transaction.commit([sealed]),
        lambda: any(looking.basic_get(queue) is not None for queue in queues),
    )
