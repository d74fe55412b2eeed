"""Alarms: publishers that are blocked and told so, and what goes on meanwhile; the shards are the test's."""

from collections.abc import Callable

from shardmq.bus.messages.base import Answer
from shardmq.bus.messages.shard import (
    Ack,
    Alarm,
    Consume,
    Delivered,
    Nack,
    Publish,
    Renew,
)
from shardmq.gateway.state.alarms import Alarms
from shardmq.message.properties import Properties
from shardmq.message.record import pack, unpack
from shardmq.message.record_batch import RecordBatch
from shardmq.protocol.native.operations.basic import (
    BasicAck,
    BasicConfirm,
    BasicConsume,
    BasicDeliver,
    BasicNack,
    BasicPublish,
    BasicRefused,
    BasicRenew,
)
from shardmq.protocol.native.operations.connection import ChannelClose, ConnectionBlocked, ConnectionUnblocked, Ok
from shardmq.protocol.native.operations.topology import TopologyList
from tests.gateway.rawclient import RawClient
from tests.gateway.stage import Stage

StartStage = Callable[..., Stage]
FULL = Alarm("disk", True, "disk alarm on shard-0 set")
EMPTY = Alarm("disk", False, "disk alarm on shard-0 cleared")


def publish(request: int, body: bytes = b"x", queue: str = "a") -> BasicPublish:
    return BasicPublish(request, 1, "", queue, 0, 1, pack(None, body))


def published(stage: Stage) -> list[bytes]:
    return [
        record.body
        for said in stage.shards[0].heard
        if isinstance(said, Publish)
        for record in unpack(said.batch.records, said.batch.count)
    ]


def test_publishes_wait_for_the_alarm_to_go_off_and_keep_their_order(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, {})])
    with RawClient(stage).open() as client:
        stage.say(0, FULL)
        said = client.receive()
        assert isinstance(said, ConnectionBlocked)
        assert said.reason == "low on disk: disk alarm on shard-0 set"
        client.send(publish(3, b"1"), publish(4, b"2"))
        assert client.ask(TopologyList, "queues")
        client.send(publish(5, b"3"))
        assert client.ask(TopologyList, "queues")
        stage.work()
        assert published(stage) == []
        stage.say(0, EMPTY)
        assert client.receive() == ConnectionUnblocked()
        client.send(publish(7, b"4"))
        stage.until(lambda: len(published(stage)) == 4)
        assert published(stage) == [b"1", b"2", b"3", b"4"]
        stage.confirm(0, 2)
        assert client.receive() == BasicConfirm(1, [(3, 5), (7, 7)])


def test_what_is_checked_in_slices_is_not_overtaken_when_the_alarm_is_over(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, {})])
    count = 20_000

    def large(request: int, body: bytes) -> BasicPublish:
        return BasicPublish(request, 1, "", "a", 0, count, pack(Properties(headers={"n": 1}), body) * count)

    with RawClient(stage).open() as client:
        stage.say(0, FULL)
        assert isinstance(client.receive(), ConnectionBlocked)
        client.send(large(3, b"1"), publish(4, b"2"), large(5, b"3"), publish(6, b"4"))
        assert client.ask(TopologyList, "queues")
        stage.say(0, EMPTY)
        assert client.receive() == ConnectionUnblocked()
        client.send(publish(8, b"5"))
        said: list[Publish] = []
        while sum(each.batch.count for each in said) < 2 * count + 3:
            said.append(stage.expect(0, Publish))
        bodies = [record.body for each in said for record in unpack(each.batch.records, each.batch.count)]
        assert list(dict.fromkeys(bodies)) == [b"1", b"2", b"3", b"4", b"5"]
        assert bodies == sorted(bodies)


def test_consuming_goes_on_under_an_alarm(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, {})])
    with RawClient(stage).open() as client:
        stage.say(0, FULL)
        assert isinstance(client.receive(), ConnectionBlocked)
        client.send(publish(3), BasicConsume(4, 1, "a", "c"))
        asked = stage.expect(0, Consume)
        batch = RecordBatch("", "a", 0, 0, 1, 1, 3, pack(None, b"x") * 3)
        stage.say(0, Answer(stage.request(asked), None), Delivered(asked.consumer, 0, False, batch))
        assert isinstance(client.receive(), Ok)
        assert isinstance(client.receive(), BasicDeliver)
        client.send(BasicAck(1, [(1, 1)]), BasicNack(1, [(2, 2)]), BasicRenew(1, [(3, 3)]))
        assert stage.expect(0, Ack).ranges == [(0, 1)]
        assert stage.expect(0, Nack).ranges == [(1, 2)]
        assert stage.expect(0, Renew).ranges == [(2, 3)]


def test_who_connects_under_an_alarm_is_told_at_once(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, {})])
    stage.say(0, FULL)
    with RawClient(stage).open() as first:
        assert isinstance(first.receive(), ConnectionBlocked)
        with RawClient(stage).open() as client:
            assert isinstance(client.receive(), ConnectionBlocked)


def reason_for_a_newcomer(stage: Stage) -> str:
    with RawClient(stage).open() as client:
        said = client.receive()
        assert isinstance(said, ConnectionBlocked)
        return said.reason


def test_publishing_goes_on_when_the_last_alarm_is_off(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, {})])
    with RawClient(stage).open() as client:
        stage.say(0, FULL)
        assert isinstance(client.receive(), ConnectionBlocked)
        stage.say(1, Alarm("memory", True, "memory alarm on shard-1 set"))
        stage.until(lambda: "memory" in reason_for_a_newcomer(stage))
        stage.say(0, EMPTY)
        stage.until(lambda: "disk" not in reason_for_a_newcomer(stage))
        client.send(publish(3))
        assert client.ask(TopologyList, "queues")
        stage.work()
        assert published(stage) == []
        stage.say(1, Alarm("memory", False, ""))
        assert client.receive() == ConnectionUnblocked()
        stage.until(lambda: published(stage) == [b"x"])


def test_a_channel_closed_under_an_alarm_has_its_publishes_refused(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, {})])
    with RawClient(stage).open() as client:
        stage.say(0, FULL)
        assert isinstance(client.receive(), ConnectionBlocked)
        client.send(publish(3), ChannelClose(4, 1))
        refused = client.receive()
        assert isinstance(refused, BasicRefused)
        assert (refused.requests, refused.code) == ([(3, 3)], 506)
        assert client.receive() == Ok(4, 1)
        stage.say(0, EMPTY)
        assert client.receive() == ConnectionUnblocked()


class Recorder:
    """A connection that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def block(self, reason: str) -> None:
        self.told.append(reason)

    def unblock(self) -> None:
        self.told.append("")


def test_connections_are_told_once_however_many_alarms_there_are() -> None:
    alarms, before, late, gone = Alarms(), Recorder(), Recorder(), Recorder()
    alarms.join(before)
    alarms.join(gone)
    alarms.turn("shard-0", "disk", True, "d")
    alarms.leave(gone)
    alarms.turn("shard-1", "memory", True, "m")
    alarms.join(late)
    alarms.turn("shard-1", "memory", True, "m")
    alarms.forget("shard-1")
    alarms.turn("shard-0", "disk", False, "")
    assert (before.told, late.told, gone.told) == (
        ["low on disk: d", ""],
        ["low on disk & memory: d; m", ""],
        ["low on disk: d"],
    )


def test_a_gateway_over_its_own_limit_blocks_publishers(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, {})], rss_bytes_max=1)
    with RawClient(stage).open() as client:
        said = client.receive()
        assert isinstance(said, ConnectionBlocked)
        assert "memory alarm on gateway-0 set" in said.reason
