"""Ordered groups by real processes: members share a topic, go on where the group was, and survive every loss."""

import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.conftest import StartBroker

from .traffic import publish_all, until

IN_GROUP = {"x-group": "billing", "x-stream-offset": "first"}
Seen = tuple[str, int, bool]


class Member:
    """A consumer of the group on a connection of its own, which acknowledges what it gets.

    Args:
        url: of the broker.
        topic: to consume from.
        prefetch: of the consumer.
        arguments: of the consumer, beside the group.
    """

    def __init__(self, url: str, topic: str, prefetch: int = 20, **arguments: object) -> None:
        self.got: list[tuple[str, int, bytes, bool]] = []
        self.connection = shardmq.connect(url)
        told = {**IN_GROUP, **{name.replace("_", "-"): value for name, value in arguments.items()}}
        self.connection.channel().basic_consume(topic, self._take, prefetch=prefetch, arguments=told)

    def _take(self, message: shardmq.Message) -> None:
        self.got.append((message.routing_key, message.offset or 0, message.body, message.redelivered))
        message.ack()

    def stop(self) -> None:
        """Leave the group."""
        self.connection.close()


@pytest.fixture
def members() -> Iterator[Callable[..., Member]]:
    """Starts members; those that are still there leave at the end."""
    started: list[Member] = []

    def start(url: str, topic: str, **terms: object) -> Member:
        started.append(Member(url, topic, **terms))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for each in started:
        each.stop()


def publish(url: str, topic: str, first: int, end: int) -> None:
    """Publish numbers, each to the partition of the rest it leaves."""
    with shardmq.connect(url) as connection, connection.channel().publisher() as publisher:
        for number in range(first, end):
            publisher.publish(topic, f"key-{number % 50}", b"%d" % number)


def is_published(url: str, topic: str, first: int, end: int) -> bool:
    """Whether all of it is, at the first try or again; what was stored before is stored twice."""
    try:
        publish(url, topic, first, end)
    except shardmq.errors.ShardmqError:
        return False
    return True


def publish_until_confirmed(url: str, topic: str, first: int, end: int) -> None:
    until(lambda: is_published(url, topic, first, end), "everything is published")


def declare(url: str, topic: str, partitions: int) -> None:
    with shardmq.connect(url) as connection:
        connection.channel().topic_declare(topic, partitions)


def all_of(*members: Member) -> list[int]:
    return [int(body) for member in members for _, _, body, _ in member.got]


def wait_for(count: int, *members: Member) -> None:
    """Wait until so many different messages came."""
    until(lambda: len(set(all_of(*members))) >= count, f"{count} messages")


def test_members_share_the_partitions_and_each_message_comes_once(
    broker: Broker, members: Callable[..., Member]
) -> None:
    declare(broker.url, "shared-out", 6)
    first, second = members(broker.url, "shared-out"), members(broker.url, "shared-out")
    publish(broker.url, "shared-out", 0, 600)
    wait_for(600, first, second)
    late = members(broker.url, "shared-out")
    publish(broker.url, "shared-out", 600, 1200)
    wait_for(1200, first, second, late)
    assert first.got
    assert second.got
    until(lambda: late.got or publish(broker.url, "shared-out", 1200, 1250), "the late member has a partition")
    keys = Counter(key for member in (first, second, late) for key in {key for key, *_ in member.got})
    assert max(keys.values()) <= 3
    in_order(first, second, late)


def in_order(*members: Member) -> None:
    """Each key's numbers rise at each member: one that comes again is said to."""
    for member in members:
        last: dict[str, int] = {}
        for key, _, body, redelivered in member.got:
            assert redelivered or int(body) > last.get(key, -1)
            last[key] = max(int(body), last.get(key, -1))


def test_a_group_goes_on_where_it_was_whoever_its_members_are(broker: Broker, members: Callable[..., Member]) -> None:
    declare(broker.url, "durable", 3)
    publish(broker.url, "durable", 0, 300)
    early = members(broker.url, "durable")
    wait_for(300, early)
    early.stop()
    publish(broker.url, "durable", 300, 400)
    late = members(broker.url, "durable")
    wait_for(100, late)
    assert sorted(all_of(late)) == list(range(300, 400))


def test_two_groups_read_the_same_topic_each_for_itself(broker: Broker, members: Callable[..., Member]) -> None:
    declare(broker.url, "twice", 2)
    publish(broker.url, "twice", 0, 100)
    one, other = members(broker.url, "twice"), members(broker.url, "twice", x_group="audit")
    wait_for(100, one)
    wait_for(100, other)
    assert sorted(all_of(one)) == sorted(all_of(other)) == list(range(100))


def test_a_stream_is_a_topic_of_one_partition(broker: Broker, members: Callable[..., Member]) -> None:
    with shardmq.connect(broker.url) as connection:
        connection.channel().queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
        with connection.channel().publisher() as publisher:
            publisher.publish_many("", "log", [b"%d" % number for number in range(50)])
    first, second = members(broker.url, "log"), members(broker.url, "log")
    wait_for(50, first, second)
    assert not (first.got and second.got)
    owner, other = (first, second) if first.got else (second, first)
    owner.stop()
    with shardmq.connect(broker.url) as connection:
        connection.channel().basic_publish("", "log", b"50")
    wait_for(1, other)
    assert all_of(other) == [50]


def test_partitions_that_a_topic_gets_are_consumed_from_too(broker: Broker, members: Callable[..., Member]) -> None:
    declare(broker.url, "grows", 1)
    first, second = members(broker.url, "grows"), members(broker.url, "grows")
    with shardmq.connect(broker.url) as connection:
        connection.channel().topic_extend("grows", 4)
    publish(broker.url, "grows", 0, 400)
    wait_for(400, first, second)
    assert first.got
    assert second.got


def test_a_deleted_topic_ends_its_consumers(broker: Broker, connection: shardmq.Connection) -> None:
    channel, other = connection.channel(), connection.channel()
    channel.topic_declare("goes", 2)
    consumed = other.consume("goes", prefetch=10, arguments=IN_GROUP)
    publish(broker.url, "goes", 0, 1)
    next(consumed).ack()
    channel.topic_delete("goes")
    with pytest.raises(shardmq.errors.NotFound):
        next(consumed)


def test_a_group_has_one_kind(connection: shardmq.Connection) -> None:
    one, other = connection.channel(), connection.channel()
    one.topic_declare("kinds", 1)
    arguments = {**IN_GROUP, "x-group-type": "shared"}
    held = one.consume("kinds", prefetch=10, arguments=arguments)
    one.basic_publish("kinds", "k", b"0")
    next(held)
    with pytest.raises(shardmq.errors.PreconditionFailed, match="has kind shared, and a member asks for ordered"):
        next(other.consume("kinds", prefetch=10, arguments=IN_GROUP))


def test_the_first_messages_of_a_shared_group_come_as_fresh_ones_from_all_partitions(
    broker: Broker, connection: shardmq.Connection
) -> None:
    declare(broker.url, "fresh", 4)
    publish(broker.url, "fresh", 0, 200)
    for turn in range(5):
        arguments = {**IN_GROUP, "x-group": f"fresh-{turn}", "x-group-type": "shared"}
        got = []
        for message in connection.channel().consume("fresh", arguments=arguments):
            got.append((message.body, message.redelivered))
            message.ack()
            if len(got) == 200:
                break
        assert sorted(got) == sorted((b"%d" % number, False) for number in range(200))


def test_what_a_lost_connection_held_comes_to_another_member_soon(
    broker: Broker, members: Callable[..., Member]
) -> None:
    declare(broker.url, "broken", 2)
    with shardmq.connect(broker.url, recovery=None) as connection:
        held = connection.channel().consume("broken", prefetch=5, arguments=IN_GROUP)
        publish(broker.url, "broken", 0, 20)
        next(held)
        other = members(broker.url, "broken")
        connection.close()
        wait_for(20, other)
    assert sorted(set(all_of(other))) == list(range(20))


@pytest.mark.parametrize("process", ["coordinator", "shard-0", "gateway-0", "gateway-1"])
def test_a_group_survives_the_death_of_any_process(
    start_broker: StartBroker, members: Callable[..., Member], process: str
) -> None:
    broker = start_broker(shards=2, gateways=2)
    declare(broker.url, "survives", 4)
    there = [members(broker.url, "survives") for _ in range(4)]
    publish(broker.url, "survives", 0, 400)
    wait_for(400, *there)
    before = [{key for key, *_ in member.got} for member in there]
    broker.kill_and_wait(process)
    publish_until_confirmed(broker.url, "survives", 400, 800)
    wait_for(800, *there)
    if process in ("coordinator", "shard-0"):  # nothing has moved
        assert [{key for key, *_ in member.got} for member in there] == before
    else:
        until(lambda: not time.sleep(0.1) and all(member.got for member in there), "everybody is back")


def test_a_dead_coordinator_stops_no_consumer_and_new_members_wait_for_it(
    start_broker: StartBroker, members: Callable[..., Member]
) -> None:
    broker = start_broker(shards=1, gateways=1)
    declare(broker.url, "alone", 2)
    first = members(broker.url, "alone")
    publish(broker.url, "alone", 0, 10)
    wait_for(10, first)
    with shardmq.connect(broker.url) as connection:  # it declares nothing from here on
        publisher = connection.channel().publisher()
        broker.kill("coordinator")
        for number in range(10, 20):
            publisher.publish("alone", f"key-{number}", b"%d" % number)
        publisher.flush()
        wait_for(20, first)
        second = members(broker.url, "alone")
        until(lambda: _publish_until_both_have_some(publisher, second), "the second member has a partition")


def _publish_until_both_have_some(publisher: shardmq.Publisher, member: Member) -> bool:
    for number in range(20):
        publisher.publish("alone", f"key-{number}", b"99")
    publisher.flush()
    return bool(member.got)


@pytest.mark.parametrize("name", ["ä/ö%20 ", "💥" * 63, "amq.group", "a.b.*.#"])
def test_any_name_of_up_to_255_bytes_is_a_groups(connection: shardmq.Connection, name: str) -> None:
    channel = connection.channel()
    channel.topic_declare("names", 1)
    publish_all(channel, "k", [b"0", b"1"], exchange="names")
    for expected in (b"0", b"1"):
        consumed = channel.consume("names", prefetch=1, arguments={**IN_GROUP, "x-group": name})
        message = next(consumed)
        message.ack()
        consumed.close()
        assert message.body == expected
    channel.topic_delete("names")


def test_nothing_is_lost_and_what_comes_twice_says_so_while_processes_and_members_go(
    start_broker: StartBroker, members: Callable[..., Member]
) -> None:
    broker = start_broker(shards=2, gateways=2)
    declare(broker.url, "faults", 6)
    there = [members(broker.url, "faults") for _ in range(4)]
    for number, process in enumerate(["shard-0", "", "gateway-1", "coordinator", "", "shard-1", "gateway-0", ""]):
        publish_until_confirmed(broker.url, "faults", number * 200, number * 200 + 200)
        if process:
            broker.kill_and_wait(process)
        else:
            there[number % 4].stop()
            there.append(members(broker.url, "faults"))
    wait_for(1600, *there)
    bodies: dict[tuple[str, int], bytes] = {}
    for key, offset, body, _ in (got for member in there for got in member.got):
        assert bodies.setdefault((key, offset), body) == body
    seen = Counter((key, offset) for member in there for key, offset, _, _ in member.got)
    again = Counter((key, offset) for member in there for key, offset, _, marked in member.got if marked)
    assert [place for place, times in seen.items() if times > 1 + again[place]] == []
