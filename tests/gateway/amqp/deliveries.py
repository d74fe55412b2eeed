"""Consumers of raw clients that the test delivers to, as the shard."""

from shardmq.bus.messages.base import Answer
from shardmq.bus.messages.shard import (
    Consume,
    Delivered,
)
from shardmq.message.record import pack
from shardmq.message.record_batch import RecordBatch
from shardmq.protocol.amqp.methods.basic import (
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
)
from tests.gateway.stage import Stage

from .rawclient import RawClient


def consuming(stage: Stage, client: RawClient, deliveries: int = 0) -> int:
    client.send(1, BasicConsume(0, "q", "c"))
    asked = stage.expect(0, Consume)
    stage.say(0, Answer(stage.request(asked), None))
    client.expect(BasicConsumeOk)
    if deliveries:
        stage.say(
            0, Delivered(asked.consumer, 0, False, RecordBatch("", "q", 0, 0, 1, 1, deliveries, packed(deliveries)))
        )
        for _ in range(deliveries):
            client.expect(BasicDeliver)
    return asked.consumer


def packed(count: int) -> bytes:
    return pack(None, b"x") * count
