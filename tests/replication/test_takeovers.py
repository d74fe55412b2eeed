"""What goes on, and what ends, when another host leads a shard: three replicas whose hosts' clocks are hours apart."""

import contextlib
import itertools
import signal
import time
from collections.abc import Callable, Iterator

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.bench.compare.rabbitmq import Absent
from tests.e2e.traffic import bodies, numbers
from tests.hosts.faults.clocks import Clock
from tests.hosts.faults.preloading import library
from tests.hosts.members import Etcd
from tests.running import without

from .moving import until
from .replicated import ReplicatedBroker
from .test_moves import publishes

AHEAD_SECONDS = {"a": 7200.0, "b": 3600.0}
"""Of host b, which leads the shard first, a is an hour ahead and c is an hour behind."""

LIFE_MS = 7500
PART_MS = 2500
COUNT = 10_000
TRANSIENT = shardmq.Properties(delivery_mode=1)


@pytest.fixture(scope="module")
def three_clocks(etcd: Etcd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicatedBroker]:
    folder = tmp_path_factory.mktemp("takeovers")
    try:
        built = str(library("clocks", folder))
    except Absent as reason:
        without(reason)
    clocks = {host: Clock(folder / f"clocks-{host}", ahead) for host, ahead in AHEAD_SECONDS.items()}
    replicated = ReplicatedBroker(folder, etcd.url, "takeovers")
    replicated.preloaded = {host: (built, str(clock.file)) for host, clock in clocks.items()}
    with replicated as broker:
        yield broker
    for clock in clocks.values():
        clock.close()


@pytest.fixture
def broker(three_clocks: ReplicatedBroker) -> Iterator[ReplicatedBroker]:
    """The broker; what a test has ended, another one finds there again."""
    yield three_clocks
    three_clocks.make_whole()


@pytest.fixture
def connection(broker: ReplicatedBroker) -> Iterator[shardmq.Connection]:
    with shardmq.connect(broker.url, timeout=60) as connection:
        yield connection


def follower(broker: ReplicatedBroker) -> str:
    """A host whose replica of the shard lives and does not lead."""
    until(lambda: len(broker.group("shard-0").in_sync) > 1)
    return next(host for host in broker.group("shard-0").in_sync if host != broker.group("shard-0").primary)


def transfer(broker: ReplicatedBroker, host: str) -> None:
    """Have a host lead the shard that another one leads. On a busy machine an election may come before that."""
    while broker.group("shard-0").primary != host:
        until(lambda: host in broker.group("shard-0").in_sync)
        term = broker.group("shard-0").term
        broker.wish("shard-0", host)
        broker.until_led_by_another("shard-0", term)


def publish_due(channel: shardmq.Channel, at: float, name: str) -> None:
    """Publish what comes by its delay, and what comes by its time to live, at a time of this process's clock."""

    def put(kind: str, queue: str) -> bool:
        left_ms = max(round((at - time.monotonic()) * 1000), 1000)
        delay_ms, life = (left_ms, None) if kind == "delayed" else (0, shardmq.Properties(expiration=str(left_ms)))
        with contextlib.suppress(errors.RequestError):
            channel.basic_publish("", queue, f"{kind} {name}".encode(), life, delay_ms=delay_ms)
            return True
        return False

    until(lambda: put("delayed", "delayed"))
    until(lambda: put("expiring", f"expiring {name}"))


def test_delays_and_times_to_live_go_on_by_the_groups_clock(
    broker: ReplicatedBroker, connection: shardmq.Connection
) -> None:
    """What is published by the last primary for a later time comes later; by hosts' clocks, all is an hour off."""
    channel = connection.channel()
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "expired"}
    for queue in ("delayed", "expired"):
        channel.queue_declare(queue, durable=True)
    for name in ("first", "last"):
        channel.queue_declare(f"expiring {name}", durable=True, arguments=letters)
    came: dict[str, float] = {}

    def note(message: shardmq.Message) -> None:
        came.setdefault(message.body.decode(), time.monotonic())
        message.ack()

    for queue in ("delayed", "expired"):
        connection.channel().basic_consume(queue, note)
    began = time.monotonic()
    publish_due(channel, began + LIFE_MS / 1000, "first")
    published = time.monotonic()
    channel.basic_publish("", "delayed", b"a part of the time is over", delay_ms=PART_MS)
    until(lambda: came)

    killed, term = broker.primary("shard-0"), broker.group("shard-0").term
    led_first = broker.group("shard-0").primary
    killed_at = time.monotonic()
    killed.kill()
    broker.until_led_by_another("shard-0", term)
    [led_last] = {*broker.hosts} - {led_first, broker.group("shard-0").primary}
    transfer(broker, led_last)
    publish_due(channel, published + LIFE_MS / 1000 + (killed_at - published) / 2, "last")

    expected = [f"{kind} {name}" for name in ("first", "last") for kind in ("delayed", "expiring")]
    until(lambda: came.keys() >= {*expected})
    for kind in ("delayed", "expiring"):
        assert came[f"{kind} first"] >= began + LIFE_MS / 1000, "at once"
        assert came[f"{kind} first"] < came[f"{kind} last"], "its time began anew"


def end_both(broker: ReplicatedBroker, gateway: str) -> None:
    """Have another host lead the shard, while a gateway is frozen that is then killed.

    What the gateway has passed on is stored, and its clients have no confirms for that.
    """
    group = broker.group("shard-0")
    broker.gateways[gateway].send_signal(signal.SIGSTOP)
    with shardmq.connect(broker.url_of(next(host for host in broker.hosts if host != gateway)), timeout=60) as other:
        channel = other.channel()
        channel.queue_declare("behind it", durable=True)
        until(lambda: publishes(channel, "behind it", b""))
    broker.replicas[group.primary, "shard-0"].kill()
    broker.until_led_by_another("shard-0", group.term)
    broker.kill_gateway(gateway)


def publish_numbered(
    channel: shardmq.Channel, queue: str, producer: str | None, in_between: Callable[[], None] | None = None
) -> bool:
    """Publish all numbers; returns whether nothing was refused."""
    with contextlib.suppress(errors.RequestError), channel.publisher(producer=producer) as publisher:
        for number in range(COUNT):
            sequence = None if producer is None else number + 1
            publisher.publish("", queue, b"%d" % number, sequence=sequence)
            if in_between is not None and number == COUNT // 2:
                in_between()
        return True
    return False


@pytest.mark.parametrize("producer", ["loader", None], ids=["the program", "the connection"])
def test_what_is_sent_again_to_another_primary_is_stored_once(
    broker: ReplicatedBroker, connection: shardmq.Connection, producer: str | None
) -> None:
    channel = connection.channel()
    queue = channel.queue_declare(str(producer), durable=True).queue
    [gateway] = [host for host, port in broker.ports.items() if f":{port}" in repr(connection)]
    is_all_in = publish_numbered(channel, queue, producer, lambda: end_both(broker, gateway))
    assert f":{broker.ports[gateway]}" not in repr(connection), "it goes on at another gateway"
    if producer is not None:
        until(lambda: publish_numbered(channel, queue, producer))
        transfer(broker, follower(broker))
        until(lambda: publish_numbered(channel, queue, producer))
    stored = bodies(channel, queue)
    assert len(stored) == len({*stored})
    if is_all_in or producer is not None:
        assert {*stored} == {*numbers(0, COUNT)}
    channel.queue_delete(queue)


def fill(channel: shardmq.Channel, name: str) -> None:
    """Put messages into the queues, of which those in `kept` last that are persistent."""
    until(lambda: publishes(channel, "kept", f"kept {name}".encode()))
    for queue, properties in (("kept", TRANSIENT), ("passing", None), ("passing", TRANSIENT)):
        channel.basic_publish("", queue, f"old {name}".encode(), properties)
        channel.basic_publish("", queue, f"old {name}, delayed".encode(), properties, delay_ms=PART_MS)


def until_end(channel: shardmq.Channel, queue: str) -> list[bytes]:
    """What is in a queue before the end."""
    return [*itertools.takewhile(b"end".__ne__, (message.body for message in channel.consume(queue, auto_ack=True)))]


def test_what_does_not_last_ends_with_the_term_also_where_it_began(
    broker: ReplicatedBroker, connection: shardmq.Connection
) -> None:
    """A host leads, another, the first again in the same process, and another one when that was killed."""
    channel = connection.channel()
    channel.queue_declare("kept", durable=True)
    for queue in ("passing", "heard"):
        channel.queue_declare(queue)
    heard: list[bytes] = []
    connection.channel().basic_consume("heard", lambda message: heard.append(message.body), auto_ack=True)
    home, away = broker.group("shard-0").primary, follower(broker)
    process, exits = broker.primary("shard-0").process, [*broker.primary("shard-0").exits]
    for number, leads in enumerate((away, home, "")):
        fill(channel, f"{number}")
        if leads:
            transfer(broker, leads)
        else:
            term = broker.group("shard-0").term
            broker.primary("shard-0").kill()
            broker.until_led_by_another("shard-0", term)
        until(lambda number=number: publishes(channel, "heard", b"%d" % number))  # type: ignore[misc]
        until(lambda number=number: b"%d" % number in heard)  # type: ignore[misc]
        assert channel.queue_declare("passing", passive=True).messages == 0
        if leads:
            replica = broker.replicas[home, "shard-0"]
            assert (replica.process, replica.exits) == (process, exits), "it goes on in its own process"
    for queue in ("passing", "kept"):
        channel.basic_publish("", queue, b"end", delay_ms=PART_MS)
    assert until_end(channel, "passing") == []
    assert [*dict.fromkeys(until_end(channel, "kept"))] == [f"kept {number}".encode() for number in range(3)]


def test_a_transactions_name_stands_for_it_under_the_next_coordinator_too(
    broker: ReplicatedBroker, connection: shardmq.Connection
) -> None:
    """One is committed before, and one that was sealed before is committed after; neither is published again."""
    channel = connection.channel()
    channel.queue_declare("paid", durable=True)
    with channel.transaction("paid before") as before:
        before.publish("", "paid", b"before")
    after = channel.transaction("paid after")
    after.publish("", "paid", b"after")
    sealed = after.seal()
    killed, term = broker.primary("coordinator"), broker.group("coordinator").term
    killed.kill()
    broker.until_led_by_another("coordinator", term)
    until(lambda: is_committed(after, sealed))
    for name in ("before", "after"):
        again = channel.transaction(f"paid {name}")
        assert again.is_committed
        again.publish("", "paid", b"twice")
        again.commit()
    assert sorted(bodies(channel, "paid")) == [b"after", b"before"]


def is_committed(transaction: shardmq.Transaction, sealed: tuple[int, int]) -> bool:
    with contextlib.suppress(errors.Unavailable, errors.Timeout):
        return transaction.commit([sealed])
    return False
