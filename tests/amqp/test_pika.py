"""pika, the client most Python programs have: what its users do every day, against shardmq."""

import pika
from pika.adapters.blocking_connection import BlockingChannel


def test_what_is_published_arrives_with_its_properties(channel: BlockingChannel, queue: str) -> None:
    channel.confirm_delivery()
    headers = {"a": 1, "b": [1, "x"]}
    properties = pika.BasicProperties(delivery_mode=2, headers=headers, message_id="m-1")
    channel.basic_publish("", queue, b"hello", properties, mandatory=True)
    method, got, body = next(iter(channel.consume(queue)))
    assert (body, got.headers, got.message_id, got.delivery_mode) == (b"hello", headers, "m-1", 2)
    channel.basic_ack(method.delivery_tag)
