"""Events on their way to shards, which are the test's: what there is no room for, and alarms."""

from collections.abc import Callable

import pytest

from shardmq.bus.messages.coordinator import TellEvents
from shardmq.bus.messages.shard import Alarm, Publish
from shardmq.gateway.events import exchange
from shardmq.message.record import unpack
from shardmq.topology.changes import QueueRemoved
from shardmq.topology.entities import EVENT_EXCHANGE, Binding
from tests.gateway.stage import Stage

StartStage = Callable[..., Stage]
LISTENING = {
    "queues": [("told", 0, {}), ("x", 1, {}), ("y", 1, {})],
    "bindings": [Binding("/", EVENT_EXCHANGE, "told", "#")],
}


def test_alarms_of_shards_are_told_by_the_gateway_that_is_to_tell(start_stage: StartStage) -> None:
    stage = start_stage(**LISTENING)
    stage.say(0, Alarm("disk", True, "nobody tells this"))
    stage.until(lambda: bool(stage.state.alarms.reason))
    stage.say_as_coordinator(TellEvents())
    stage.until(lambda: stage.state.coordinator.is_teller)
    stage.say(0, Alarm("disk", False, "there is room"), Alarm("disk", False, "there is room"))
    batch = stage.expect(0, Publish).batch
    (record,) = unpack(batch.records, 1)
    assert (batch.exchange, batch.routing_key, record.body) == (EVENT_EXCHANGE, "alarm.cleared", b"")
    assert record.properties is not None
    assert record.properties.headers is not None
    told = {key: value for key, value in record.properties.headers.items() if key != "timestamp_in_ms"}
    assert told == {"name": "disk", "node": "shard-0", "description": "there is room"}


def test_alarms_of_a_shard_that_went_away_are_told_as_cleared(start_stage: StartStage) -> None:
    stage = start_stage(**LISTENING)
    stage.say_as_coordinator(TellEvents())
    stage.until(lambda: stage.state.coordinator.is_teller)
    stage.say(1, Alarm("disk", True, "no room"))
    assert stage.expect(0, Publish).batch.routing_key == "alarm.set"
    stage.shards.pop().listener.close()
    batch = stage.expect(0, Publish).batch
    assert batch.routing_key == "alarm.cleared"
    assert b"shard-1 went away while its disk alarm was on" in batch.records


def test_events_past_what_may_wait_are_dropped_and_counted(
    start_stage: StartStage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exchange, "EVENTS_WAITING_MAX", 1)
    stage = start_stage(**LISTENING)
    stage.say_as_coordinator(TellEvents())
    stage.tell(QueueRemoved("/", "x"), QueueRemoved("/", "y"))
    assert stage.expect(0, Publish).batch.routing_key == "queue.deleted"
    stage.until(lambda: "1 events were dropped" in caplog.text)


def test_a_gateway_that_is_not_to_tell_says_nothing_of_the_topology(start_stage: StartStage) -> None:
    stage = start_stage(**LISTENING)
    stage.tell(QueueRemoved("/", "x"))
    stage.say_as_coordinator(TellEvents())
    stage.tell(QueueRemoved("/", "y"))
    batch = stage.expect(0, Publish).batch
    (record,) = unpack(batch.records, 1)
    assert record.properties is not None
    assert record.properties.headers is not None
    assert record.properties.headers["name"] == "y"
