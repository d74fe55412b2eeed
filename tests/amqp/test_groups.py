"""Groups over AMQP: any client is a member by an argument of its consumer."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import shardmq
from shardmq.cmd.run.broker import Broker

IN_GROUP = {"x-group": "billing", "x-stream-offset": "first"}
PATIENCE_SECONDS = 60.0


class Member:
    """A consumer of a group on a connection of its own."""

    def __init__(self, url: str, topic: str, prefetch: int = 20, acks: bool = True, **arguments: Any) -> None:
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.connection.channel()
        self.channel.basic_qos(prefetch_count=prefetch)
        self.got: list[tuple[int, int, bytes]] = []  # partition, offset, body
        self.redelivered: list[bool] = []
        self.tags: list[int] = []
        self.acks = acks
        told = {**IN_GROUP, **{name.replace("_", "-"): value for name, value in arguments.items()}}
        self.tag = self.channel.basic_consume(topic, self._take, arguments=told)

    def _take(self, channel: BlockingChannel, method: Any, properties: pika.BasicProperties, body: bytes) -> None:
        self.got.append((properties.headers["x-stream-partition"], properties.headers["x-stream-offset"], body))
        self.redelivered.append(method.redelivered)
        self.tags.append(method.delivery_tag)
        if self.acks:
            channel.basic_ack(method.delivery_tag)


@pytest.fixture
def join(url: str) -> Iterator[Callable[..., Member]]:
    members: list[Member] = []

    def start(topic: str, **terms: Any) -> Member:
        members.append(Member(url, topic, **terms))
        return members[-1]

    yield start
    for member in members:
        if member.connection.is_open:
            member.connection.close()


def work_until(true: Callable[[], Any], *members: Member) -> None:
    """Have members take what comes until something is so."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < deadline, [member.got for member in members]
        for member in members:
            member.connection.process_data_events(0.01)


def declare(broker: Broker, topic: str, partitions: int, messages: int) -> None:
    with shardmq.connect(broker.url) as connection:
        connection.channel().topic_declare(topic, partitions)
        with connection.channel().publisher() as publisher:
            for number in range(messages):
                publisher.publish(topic, f"key-{number}", b"%d" % number)


def test_a_member_gets_each_message_with_its_partition_and_offset(broker: Broker, join: Callable[..., Member]) -> None:
    declare(broker, "amqp-one", 3, 90)
    member = join("amqp-one")
    work_until(lambda: len(member.got) == 90, member)
    for partition in range(3):
        offsets = [offset for number, offset, _ in member.got if number == partition]
        assert offsets == list(range(len(offsets)))
    assert len({body for _, _, body in member.got}) == 90


def test_a_second_member_takes_its_share_and_nothing_comes_twice(
    broker: Broker, join: Callable[..., Member], channel: BlockingChannel
) -> None:
    declare(broker, "amqp-two", 4, 100)
    first = join("amqp-two")
    work_until(lambda: len(first.got) == 100, first)
    second = join("amqp-two")

    def both_have_some() -> bool:
        channel.basic_publish("amqp-two", f"key-{time.monotonic()}", b"more")
        return bool(second.got)

    work_until(both_have_some, first, second)
    assert {number for number, *_ in second.got} <= {2, 3}
    places = [(number, offset) for number, offset, _ in first.got + second.got]
    assert len(set(places)) == len(places)


def test_a_partition_that_goes_to_another_waits_until_its_messages_are_acknowledged(
    broker: Broker, join: Callable[..., Member]
) -> None:
    declare(broker, "amqp-slow", 2, 20)
    first = join("amqp-slow", acks=False)
    work_until(lambda: len(first.got) == 20, first)
    second = join("amqp-slow")
    for _ in range(20):
        first.connection.process_data_events(0.01)
        second.connection.process_data_events(0.01)
    assert second.got == []
    first.acks = True
    first.channel.basic_ack(first.tags[-1], multiple=True)
    with shardmq.connect(broker.url) as connection, connection.channel().publisher() as publisher:
        for number in range(20, 60):
            publisher.publish("amqp-slow", f"key-{number}", b"%d" % number)
    work_until(lambda: len(first.got) + len(second.got) == 60, first, second)
    assert second.got
    assert not any(second.redelivered)


def test_a_member_that_acknowledges_nothing_for_too_long_has_a_partition_again_when_it_does(
    broker: Broker, join: Callable[..., Member]
) -> None:
    declare(broker, "amqp-hung", 1, 10)
    hung = join("amqp-hung", acks=False, x_consumer_timeout=300)
    work_until(lambda: len(hung.got) == 10, hung)
    second = join("amqp-hung", x_consumer_timeout=300)
    work_until(lambda: len(second.got) == 10, hung, second)
    assert all(second.redelivered)
    second.connection.close()
    hung.channel.basic_ack(hung.tags[0])
    hung.acks = True
    with shardmq.connect(broker.url) as connection:
        connection.channel().basic_publish("amqp-hung", "key", b"10")
    work_until(lambda: len(hung.got) == 11, hung)
    assert (hung.got[-1][1], hung.redelivered[-1]) == (10, False)


def test_what_was_not_acknowledged_comes_to_the_next_member(broker: Broker, join: Callable[..., Member]) -> None:
    declare(broker, "amqp-next", 1, 10)
    first = join("amqp-next", acks=False)
    work_until(lambda: len(first.got) == 10, first)
    first.channel.basic_ack(first.tags[3], multiple=True)
    first.connection.close()
    second = join("amqp-next")
    work_until(lambda: len(second.got) == 6, second)
    assert [offset for _, offset, _ in second.got] == list(range(4, 10))
    assert all(second.redelivered)


def test_members_of_a_shared_group_compete_for_one_partition(broker: Broker, join: Callable[..., Member]) -> None:
    declare(broker, "amqp-shared", 1, 60)
    members = [join("amqp-shared", prefetch=5, x_group_type="shared") for _ in range(3)]
    work_until(lambda: sum(len(member.got) for member in members) == 60, *members)
    assert all(member.got for member in members)
    bodies = [body for member in members for *_, body in member.got]
    assert len(set(bodies)) == 60


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ({"x-group": ""}, 406, "a string of 1 to 255 bytes"),
        ({**IN_GROUP, "x-group-type": "both"}, 406, "one of ordered, shared"),
        ({**IN_GROUP, "x-priority": 3}, 406, "members of a group share it evenly"),
        ({**IN_GROUP, "x-stream-offset": "then"}, 406, "x-stream-offset"),
        (
            {**IN_GROUP, "x-stream-offset": -1},
            406,
            "invalid arg 'x-stream-offset' for a consumer of topic 'amqp-wrong'",
        ),
        ({**IN_GROUP, "x-stream-offset": 1}, 406, r"not published yet: it keeps offsets \[0, 0\)"),
        ({**IN_GROUP, "x-stream-filter": [1]}, 406, "invalid arg 'x-stream-filter' .* a list of strings"),
    ],
)
def test_arguments_without_a_meaning_close_the_channel(
    broker: Broker, url: str, arguments: dict[str, Any], code: int, words: str
) -> None:
    declare(broker, "amqp-wrong", 1, 0)
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=words) as closed:
        channel.basic_consume("amqp-wrong", lambda *_: None, arguments=arguments)
    assert closed.value.reply_code == code
    connection.close()


def test_a_partition_is_not_unbound_from_its_topic_whatever_key_is_named(broker: Broker, url: str) -> None:
    declare(broker, "amqp-bound", 2, 0)
    for key in ("", "0", "1"):
        connection = pika.BlockingConnection(pika.URLParameters(url))
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="a partition of topic 'amqp-bound'") as closed:
            connection.channel().queue_unbind("amqp-bound-0", "amqp-bound", key)
        assert closed.value.reply_code == 406
        connection.close()


def test_a_queue_has_no_groups_and_a_missing_topic_has_none_either(channel: BlockingChannel, url: str) -> None:
    channel.queue_declare("amqp-plain")
    for name, code in (("amqp-plain", 406), ("amqp-nothing", 404)):
        connection = pika.BlockingConnection(pika.URLParameters(url))
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
            connection.channel().basic_consume(name, lambda *_: None, arguments=IN_GROUP)
        assert closed.value.reply_code == code
        connection.close()
    channel.queue_delete("amqp-plain")


def test_a_rejected_message_of_a_shared_group_goes_to_the_dead_letter_exchange(
    broker: Broker, join: Callable[..., Member], channel: BlockingChannel
) -> None:
    declare(broker, "amqp-dead", 2, 1)
    dead = channel.queue_declare("amqp-dead-letters").method.queue
    channel.queue_bind(dead, "amq.fanout")
    member = join("amqp-dead", acks=False, x_group_type="shared", x_dead_letter_exchange="amq.fanout")
    work_until(lambda: member.tags, member)
    member.channel.basic_reject(member.tags[0], requeue=False)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := channel.basic_get(dead, auto_ack=True))[2] is None:
        assert time.monotonic() < deadline
        member.connection.process_data_events(0.01)
    assert found[2] == b"0"
    channel.queue_delete(dead)


def test_acknowledgements_in_tx_move_the_groups_offset_with_the_commit_and_not_by_a_rollback(
    broker: Broker, join: Callable[..., Member], native: shardmq.Connection
) -> None:
    declare(broker, "tx-group", 1, 4)
    member = join("tx-group", acks=False)
    work_until(lambda: len(member.tags) == 4, member)
    channel, offsets = member.channel, native.channel()

    def offset() -> int | None:
        found: int | None = offsets.group_offsets("tx-group", "billing")[0]["offset"]
        return found

    channel.tx_select()
    channel.basic_ack(member.tags[1], multiple=True)
    assert offset() == 0
    channel.tx_rollback()
    assert offset() == 0
    channel.basic_ack(member.tags[2], multiple=True)
    channel.tx_commit()
    assert offset() == 3
    channel.basic_ack(member.tags[3])
    member.connection.close()  # what is open is forgotten
    other = join("tx-group")
    work_until(lambda: other.got, other)
    assert [message[1] for message in other.got] == [3]


def test_a_limit_for_all_consumers_of_a_channel_is_refused_before_a_member_of_a_group_and_after_it(
    broker: Broker, join: Callable[..., Member], url: str
) -> None:
    declare(broker, "amqp-global", 2, 0)
    member = join("amqp-global")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="does not support global qos") as closed:
        member.channel.basic_qos(prefetch_count=5, global_qos=True)
    assert closed.value.reply_code == 540
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=5, global_qos=True)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="does not support global qos"):
        channel.basic_consume("amqp-global", lambda *_: None, arguments=IN_GROUP)
