"""Copies on their way to shards, which are the test's: what there is no room for, and alarms."""

from collections.abc import Callable

import pytest

from shardmq.bus.messages.base import Answer
from shardmq.bus.messages.shard import Alarm, Consume, Delivered, Publish
from shardmq.gateway.events import firehose
from shardmq.message.properties import Properties
from shardmq.message.record import pack_many
from shardmq.message.record_batch import RecordBatch
from shardmq.protocol.amqp import properties
from shardmq.protocol.amqp.methods.basic import BasicPublish as AmqpPublish
from shardmq.protocol.native.operations.basic import BasicConfirm, BasicConsume, BasicDeliver, BasicPublish
from shardmq.protocol.native.operations.connection import Ok
from shardmq.protocol.translation import to_amqp
from shardmq.topology.changes import TracingSet
from shardmq.topology.entities import TRACE_EXCHANGE, Binding
from tests.gateway.amqp.rawclient import RawClient as AmqpClient
from tests.gateway.rawclient import RawClient
from tests.gateway.stage import Stage

StartStage = Callable[..., Stage]
FOLLOWED = {
    "queues": [("copies", 0, {}), ("q", 1, {})],
    "bindings": [Binding("/", TRACE_EXCHANGE, "copies", "#")],
}

RECORD = pack_many([b"x"])


def test_copies_past_what_may_wait_are_dropped_and_publishers_go_on(
    start_stage: StartStage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(firehose, "WAITING_MAX", 2)
    stage = start_stage(**FOLLOWED)
    stage.tell(TracingSet("/", 1.0))
    with RawClient(stage).open() as client:
        client.send(BasicPublish(3, 1, "", "q", 0, 3, pack_many([b"a"] * 3)))
        assert stage.expect(0, Publish).batch.count == 2  # never confirmed
        assert stage.expect(1, Publish).batch.count == 3
        stage.confirm(1, 1)
        assert isinstance(client.receive(), BasicConfirm)
        stage.until(lambda: "1 copies of traced messages were dropped" in caplog.text)
        stage.confirm(0, 1)
        client.send(BasicPublish(4, 1, "", "q", 0, 1, pack_many([b"b"])))
        assert stage.expect(0, Publish).batch.count == 1


def test_copies_of_large_messages_are_bounded_by_their_bytes(
    start_stage: StartStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firehose, "WAITING_BYTES_MAX", 1000)
    stage = start_stage(**FOLLOWED)
    stage.tell(TracingSet("/", 1.0))
    with RawClient(stage).open() as client:
        client.send(BasicPublish(3, 1, "", "q", 0, 2, pack_many([b"a" * 1001, b"b"])))
        (copy,) = [stage.expect(0, Publish).batch]
        assert (copy.count, b"a" * 1001 in copy.records) == (1, False)


def test_nothing_is_copied_while_an_alarm_is_on(start_stage: StartStage) -> None:
    stage = start_stage(**FOLLOWED)
    stage.tell(TracingSet("/", 1.0))
    with RawClient(stage).open() as client:
        client.send(BasicConsume(3, 1, "q", "c"))
        asked = stage.expect(1, Consume)
        stage.say(1, Answer(stage.request(asked), None))
        assert isinstance(client.receive(), Ok)
        for first, is_on in ((1, True), (2, False)):
            stage.say(0, Alarm("disk", is_on, "of room on the disk"))
            stage.until(lambda: bool(stage.state.alarms.reason) is is_on)  # noqa: B023  (called at once)
            stage.say(1, Delivered(asked.consumer, first, False, RecordBatch("", "q", 0, 0, 1, first, 1, RECORD)))
            while not isinstance(client.receive(), BasicDeliver):
                pass  # blocked, unblocked
        assert stage.expect(0, Publish).batch.count == 1
        assert stage.state.firehose is not None
        assert stage.state.firehose.dropped == 1


def test_a_copy_names_the_routing_keys_alone_of_what_cc_holds(start_stage: StartStage) -> None:
    stage = start_stage(**FOLLOWED)
    stage.tell(TracingSet("/", 1.0))
    with AmqpClient(stage.port) as client:
        listed = properties.encode(Properties(headers={"CC": ["more", 5, None]}))
        client.publish(AmqpPublish(0, "", "q"), b"x", properties=listed)
        ((raw,), _) = to_amqp(stage.expect(0, Publish).batch)
    headers = properties.decode(raw).headers
    assert headers is not None
    assert headers["routing_keys"] == ["q", "more"]
    assert headers["properties"]["headers"] == {"CC": ["more", 5, None]}


def test_nothing_is_looked_at_in_gateways_where_nothing_is_traced(start_stage: StartStage) -> None:
    stage = start_stage(**FOLLOWED)
    assert stage.state.firehose is None
    stage.tell(TracingSet("/", 0.5))
    stage.until(lambda: stage.state.firehose is not None)
    stage.tell(TracingSet("/", 0.0))
    stage.until(lambda: stage.state.firehose is None)
