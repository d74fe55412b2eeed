"""Topics for AMQP clients: published to through their exchange, read as streams."""

from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import shardmq
from shardmq.cmd.run.broker import Broker


@pytest.fixture
def topics(broker: Broker) -> Iterator[shardmq.Channel]:
    """A channel that declares topics, which AMQP has no method for."""
    with shardmq.connect(broker.url) as connection:
        yield connection.channel()


def counts(channel: BlockingChannel, topic: str, partitions: int) -> list[int]:
    return [
        channel.queue_declare(f"{topic}-{number}", passive=True).method.message_count for number in range(partitions)
    ]


def test_messages_without_a_key_take_partitions_in_turns(channel: BlockingChannel, topics: shardmq.Channel) -> None:
    topics.topic_declare("turns", 4)
    channel.confirm_delivery()
    for number in range(40):
        channel.basic_publish("turns", "", b"%d" % number)
    assert counts(channel, "turns", 4) == [10, 10, 10, 10]
    topics.topic_delete("turns")


def test_a_key_has_one_partition_whatever_the_protocol(channel: BlockingChannel, topics: shardmq.Channel) -> None:
    topics.topic_declare("keys", 4)
    channel.confirm_delivery()
    for number in range(20):
        channel.basic_publish("keys", f"key-{number}", b"")
    before = counts(channel, "keys", 4)
    for number in range(20):
        topics.basic_publish("keys", f"key-{number}", b"")
    assert counts(channel, "keys", 4) == [2 * count for count in before]
    topics.topic_delete("keys")


def test_messages_of_many_keys_are_read_with_their_keys_in_order(
    channel: BlockingChannel, topics: shardmq.Channel
) -> None:
    topics.topic_declare("many", 2)
    sent = [(f"key-{number % 20}", b"%d" % number) for number in range(600)]
    for key, body in sent[:300]:
        channel.basic_publish("many", key, body, pika.BasicProperties(headers={"n": int(body)}))
    while sum(counts(channel, "many", 2)) < 300:
        pass
    with topics.publisher() as publisher:
        publisher.publish_keyed("many", sent[300:])
    channel.basic_qos(prefetch_count=100)
    by_amqp: list[tuple[str, bytes]] = []
    by_sdk: list[tuple[str, bytes]] = []
    for partition, count in enumerate(counts(channel, "many", 2)):
        first, queue = {"x-stream-offset": "first"}, f"many-{partition}"
        for offset, (method, properties, body) in zip(
            range(count), channel.consume(queue, arguments=first), strict=False
        ):
            by_amqp.append((method.routing_key, body))
            assert properties.headers["x-stream-offset"] == offset
            assert properties.headers.get("n", int(body)) == int(body)
            channel.basic_ack(method.delivery_tag)
        channel.cancel()
        messages = topics.consume(queue, auto_ack=True, arguments=first)
        by_sdk += [(message.routing_key, message.body) for _, message in zip(range(count), messages, strict=False)]
        messages.close()
    assert by_amqp == by_sdk
    assert sorted(by_amqp, key=lambda pair: int(pair[1])) == sent
    for key in {key for key, _ in sent}:
        own = [int(body) for found, body in by_amqp if found == key]
        assert own == sorted(own)
    topics.topic_delete("many")


def test_a_header_chooses_the_partition(channel: BlockingChannel, topics: shardmq.Channel) -> None:
    topics.topic_declare("headers", 3, partitioner="explicit")
    channel.confirm_delivery()
    for number in range(9):
        properties = pika.BasicProperties(headers={"x-partition": number % 2})
        channel.basic_publish("headers", "", b"", properties)
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("headers", "", b"", pika.BasicProperties(headers={"x-partition": 3}), mandatory=True)
    assert counts(channel, "headers", 3) == [5, 4, 0]
    topics.topic_delete("headers")


def test_transactions_take_turns_too(channel: BlockingChannel, topics: shardmq.Channel) -> None:
    topics.topic_declare("tx", 2)
    channel.tx_select()
    for number in range(100):
        channel.basic_publish("tx", "", b"%d" % number)
        if number == 49:  # what a gateway reads together takes one turn, and on a busy machine that may be all
            counts(channel, "tx", 2)
    channel.tx_commit()
    found = counts(channel, "tx", 2)
    assert sum(found) == 100
    assert all(found)
    topics.topic_delete("tx")


def test_a_partition_is_not_deleted_by_itself(channel: BlockingChannel, topics: shardmq.Channel) -> None:
    topics.topic_declare("parts", 2)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        channel.queue_delete("parts-0")
    assert refused.value.reply_code == 406
    topics.topic_delete("parts")
