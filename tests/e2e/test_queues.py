"""What a queue says of itself, purging and deleting it, and the identity of its messages."""

import pytest

import shardmq
from shardmq import errors

from .traffic import bodies, counts, numbers, publish_all, take, until


def test_the_status_counts_what_a_queue_holds(
    connection: shardmq.Connection, channel: shardmq.Channel, queue: str
) -> None:
    empty = counts(connection, queue)
    publish_all(channel, queue, [b"x" * 100] * 10)
    full = counts(connection, queue)
    held = [channel.basic_get(queue) for _ in range(4)]
    messages = channel.consume(queue, prefetch=1)
    next(messages)
    some = counts(connection, queue)
    names = ("total", "valid", "ready", "unacked", "consumers")
    assert [empty[name] for name in names] == [0, 0, 0, 0, 0]
    assert [full[name] for name in names] == [10, 10, 10, 0, 0]
    assert [some[name] for name in names] == [10, 10, 5, 5, 1]
    assert empty["bytes"] == 0
    assert 1000 < full["bytes"] == some["bytes"] < 1100
    assert (some["vhost"], some["durable"]) == ("/", True)
    messages.close()  # type: ignore[attr-defined]
    for message in held:
        assert message is not None
        message.ack()
    channel.basic_ack(multiple=True)
    until(lambda: counts(connection, queue)["valid"] == 5, "acks are counted")
    assert len(take(channel, queue)) == 5
    drained = counts(connection, queue)
    assert [drained[name] for name in (*names, "bytes")] == [0, 0, 0, 0, 0, 0]


def test_a_declaration_tells_how_many_messages_are_ready_and_consumers_there_are(
    channel: shardmq.Channel, queue: str
) -> None:
    publish_all(channel, queue, numbers(0, 7))
    channel.basic_get(queue)
    channel.basic_consume(queue, lambda _: None, prefetch=2)
    until(lambda: channel.queue_declare(queue, durable=True).messages == 4, "the consumer has its two")
    assert channel.queue_declare(queue, durable=True) == shardmq.QueueDeclared(queue, 4, 1)


def test_a_purge_removes_what_is_ready_and_leaves_what_is_unacked(channel: shardmq.Channel, queue: str) -> None:
    publish_all(channel, queue, numbers(0, 10))
    held = channel.basic_get(queue)
    assert held is not None
    assert channel.queue_purge(queue) == 9
    assert channel.queue_purge(queue) == 0
    publish_all(channel, queue, [b"after"])
    held.nack()
    assert bodies(channel, queue) == [b"0", b"after"]


@pytest.mark.parametrize("persistent", [True, False])
def test_a_message_has_one_id_in_all_queues_and_another_than_all_other_messages(
    channel: shardmq.Channel, persistent: bool
) -> None:
    queues = [f"ids.{persistent}.{number}" for number in range(6)]
    properties = shardmq.Properties(delivery_mode=2 if persistent else 1)
    exchange = f"ids.{persistent}"
    channel.exchange_declare(exchange, "fanout")
    for queue in queues:
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, exchange)
    channel.basic_publish(exchange, "", b"0", properties)
    with channel.publisher() as publisher:
        publisher.publish_many(exchange, "", numbers(1, 50), properties)
        for body in numbers(50, 60):
            publisher.publish(exchange, "", body)
    ids = [{message.body: message.message_id for message in take(channel, queue)} for queue in queues]
    assert all(each == ids[0] for each in ids)
    assert sorted(ids[0], key=int) == numbers(0, 60)
    assert len(set(ids[0].values())) == 60


def test_a_publishers_own_id_is_kept(channel: shardmq.Channel, queue: str) -> None:
    channel.basic_publish("", queue, b"1", shardmq.Properties(message_id="order-7"))
    channel.basic_publish("", queue, b"2", shardmq.Properties(message_id=""))
    first = channel.basic_get(queue)
    assert first is not None
    first.nack()
    again, second = take(channel, queue)
    assert (first.message_id, again.message_id, again.redelivered) == ("order-7", "order-7", True)
    assert second.message_id == ""


def test_a_queue_deleted_while_it_is_consumed_ends_its_consumers(
    connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    channel.queue_declare("pulled.away", durable=True)
    publish_all(channel, "pulled.away", numbers(0, 5))
    other = connection.channel()
    messages = other.consume("pulled.away", prefetch=2)
    held = next(messages)
    assert channel.queue_delete("pulled.away") == 3, "what consumers hold is not counted"
    held.ack()
    with pytest.raises(errors.NotFound, match="queue"):
        list(messages)
    assert other.is_open
    assert other.queue_declare("pulled.away", durable=True) == shardmq.QueueDeclared("pulled.away", 0, 0)
    channel.basic_publish("", "pulled.away", b"anew")
    assert bodies(other, "pulled.away") == [b"anew"]
    other.close()


def test_a_large_backlog_comes_out_as_it_went_in(channel: shardmq.Channel, queue: str) -> None:
    sent = [b"%d " % number + bytes(20_000) for number in range(2000)]  # 40 MB: more than a shard keeps in memory
    publish_all(channel, queue, sent)
    place = 0
    for batch in channel.consume_batches(queue, prefetch=100):
        for body in batch.bodies:
            assert body == sent[place]
            place += 1
        batch.ack()
        if place == len(sent):
            break
    assert channel.queue_declare(queue, durable=True).messages == 0
