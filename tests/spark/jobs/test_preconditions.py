"""What a job asks the broker without Spark."""

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.spark.jobs.preconditions import queues_behind


def test_queues_behind_an_exchange_are_counted_those_of_one_connection_alone_too(
    broker: Broker, channel: shardmq.Channel, queue: str, exchange: str
) -> None:
    inner = f"{exchange}-inner"
    channel.exchange_declare(inner, "fanout", durable=True)
    channel.exchange_bind(inner, exchange, "#")
    alone = channel.queue_declare(exclusive=True).queue
    channel.queue_bind(alone, exchange, "#")
    channel.queue_bind(queue, inner)
    channel.basic_publish(exchange, "a.b", b"1", mandatory=True)
    assert queues_behind(broker.url, [exchange]) == {alone: 1, queue: 1}
    assert queues_behind(broker.url, [""]) == {}
    channel.exchange_delete(inner)
