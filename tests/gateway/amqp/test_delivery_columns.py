"""Deliveries that a shard sends column by column, to AMQP clients; the shard is the test's."""

from collections.abc import Callable

import pytest

from shardmq.bus.messages.base import Answer
from shardmq.bus.messages.columns import Deliveries
from shardmq.bus.messages.shard import Ack, Consume
from shardmq.message.record import pack_raw
from shardmq.message.record_batch import AMQP, PERSISTENT, RecordBatch
from shardmq.protocol.amqp.methods.basic import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicQos,
    BasicQosOk,
)
from tests.gateway.stage import Stage

from .rawclient import RawClient

StartStage = Callable[..., Stage]
PROPERTIES = b"\x10\x00\x02"


def run_of(*bodies: bytes) -> RecordBatch:
    records = b"".join([pack_raw(PROPERTIES, body) for body in bodies])
    return RecordBatch("ex", "key", AMQP | PERSISTENT, 0, 1, 1, len(bodies), records)


def consuming(stage: Stage, client: RawClient, tag: str) -> int:
    client.send(1, BasicConsume(0, "q", tag))
    asked = stage.expect(0, Consume)
    stage.say(0, Answer(stage.request(asked), None))
    client.expect(BasicConsumeOk)
    return asked.consumer


def delivered(client: RawClient) -> tuple[str, int, bytes]:
    said = client.hear()
    method = said.method
    assert isinstance(method, BasicDeliver)
    assert (method.exchange, method.routing_key, method.redelivered) == ("ex", "key", False)
    return method.consumer_tag, method.delivery_tag, said.body


@pytest.mark.parametrize("size", [0, 1, 4088, 4089, 200_000])
def test_bodies_of_all_sizes_come_whole(start_stage: StartStage, size: int) -> None:
    stage = start_stage([("q", 0, {})])
    with RawClient(stage.port) as client:
        one, other = (consuming(stage, client, tag) for tag in ("one", "other"))
        body = bytes(size)
        stage.say(0, Deliveries([one, other], [0, 7], [run_of(body), run_of(b"a", body)]))
        assert [delivered(client) for _ in range(3)] == [("one", 1, body), ("other", 2, b"a"), ("other", 3, body)]


def test_what_exceeds_the_prefetch_of_the_channel_waits_for_acks(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, {})])
    with RawClient(stage.port) as client:
        client.send(1, BasicQos(0, 3, is_global=True))
        client.expect(BasicQosOk)
        one, other = (consuming(stage, client, tag) for tag in ("one", "other"))
        stage.say(0, Deliveries([one, other, one], [0, 0, 2], [run_of(b"0", b"1"), run_of(b"2", b"3"), run_of(b"4")]))
        assert [delivered(client) for _ in range(3)] == [("one", 1, b"0"), ("one", 2, b"1"), ("other", 3, b"2")]
        client.send(1, BasicAck(3, multiple=True))
        assert [delivered(client) for _ in range(2)] == [("other", 4, b"3"), ("one", 5, b"4")]
        acked = [stage.expect(0, Ack) for _ in range(2)]
        assert sorted(acked, key=lambda ack: ack.consumer) == [Ack(one, [(0, 2)]), Ack(other, [(0, 1)])]
