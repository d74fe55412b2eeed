"""Messages that return: renewals, delays, and tags of what came back by itself; the shards are the test's."""

import gc
from collections.abc import Callable

import pytest

from shardmq.bus.messages.base import Answer, BusMessage, Reset
from shardmq.bus.messages.columns import Deliveries
from shardmq.bus.messages.shard import (
    Ack,
    Cancelled,
    Consume,
    Delivered,
    Get,
    Got,
    Nack,
    Release,
    Renew,
)
from shardmq.gateway.links.consumer import Consumer
from shardmq.gateway.native.connection import NativeConnection
from shardmq.gateway.session.channel import Channel
from shardmq.gateway.session.session import Session
from shardmq.gateway.state.permissions import Permissions
from shardmq.limits import DELIVERY_WINDOW_BYTES, DELIVERY_WINDOWS_BYTES, LEAST_WINDOW_BYTES, LEAST_WINDOWS
from shardmq.message.record import pack
from shardmq.message.record_batch import RecordBatch
from shardmq.protocol.native.operations.basic import (
    BasicAck,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicNack,
    BasicRenew,
)
from shardmq.protocol.native.operations.connection import ChannelClose, Ok
from shardmq.protocol.native.operations.topology import TopologyList
from shardmq.topology.changes import PolicyPut, PolicyRemoved
from shardmq.topology.entities import Policy
from tests.gateway.rawclient import RawClient
from tests.gateway.stage import Stage

StartStage = Callable[..., Stage]


def run_of(count: int) -> RecordBatch:
    return RecordBatch("", "q", 0, 0, 1, 1, count, pack(None, b"x") * count)


def consuming(stage: Stage, client: RawClient, arguments: dict[str, int] | None = None) -> int:
    client.send(BasicConsume(3, 1, "q", "c", arguments=arguments or {}))
    asked = stage.expect(0, Consume)
    stage.say(0, Answer(stage.request(asked), None))
    assert isinstance(client.receive(), Ok)
    return asked.consumer


def deliver(stage: Stage, client: RawClient, *deliveries: Delivered) -> list[BasicDeliver]:
    stage.say(0, *deliveries)
    delivered = [client.receive() for _ in deliveries]
    return [said for said in delivered if isinstance(said, BasicDeliver)]


def said_by(stage: Stage, client: RawClient, *kinds: type[BusMessage]) -> list[BusMessage]:
    """What the gateway has told the shard of these kinds, once it has carried out all that the client sent."""
    client.ask(TopologyList, "queues")
    stage.work()
    return [said for said in stage.shards[0].heard if isinstance(said, kinds)]


def test_consumers_tell_the_shard_of_their_terms(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, {})])
    with RawClient(stage).open() as client:
        client.send(BasicConsume(3, 1, "q", "c", False, 5, {"x-priority": -7, "x-consumer-timeout": 900}, True))
        asked = stage.expect(0, Consume)
        assert (asked.prefetch, asked.priority, asked.exclusive, asked.timeout_ms) == (5, -7, True, 900)


def test_each_of_a_thousand_consumers_has_a_window_for_a_batch_and_of_more_all_share_one(
    start_stage: StartStage,
) -> None:
    stage = start_stage([("q", 0, {})])
    windows = []
    with RawClient(stage).open() as client:
        for number in range(LEAST_WINDOWS + 1):
            client.send(BasicConsume(3 + number, 1, "q", f"c{number}"))
            asked = stage.expect(0, Consume)
            stage.say(0, Answer(stage.request(asked), None))
            assert isinstance(client.receive(), Ok), number
            windows.append(asked.window)
    assert windows[0] == DELIVERY_WINDOW_BYTES
    assert windows[LEAST_WINDOWS - 1] == LEAST_WINDOW_BYTES == min(windows[:-1])
    assert windows[LEAST_WINDOWS] == DELIVERY_WINDOWS_BYTES // (LEAST_WINDOWS + 1) + 1


def test_what_a_get_holds_outlives_a_consumer_of_the_queue(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, {})])
    with RawClient(stage).open() as client:
        consumer = consuming(stage, client)
        client.send(BasicGet(4, 1, "q", False))
        asked = stage.expect(0, Get)
        stage.say(0, Got(stage.request(asked), 0, False, run_of(1), 0))
        assert isinstance(client.receive(), Ok)
        stage.say(0, Cancelled(consumer, "out of service"))
        client.receive()
        client.send(ChannelClose(5, 1))
        assert isinstance(client.receive(), Ok)
        stage.until(lambda: Release(asked.consumer) in stage.shards[0].heard)


def test_deliveries_in_vain_are_passed_on(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, {"x-delivery-limit": 5})])
    with RawClient(stage).open() as client:
        consumer = consuming(stage, client)
        [delivered] = deliver(stage, client, Delivered(consumer, 0, True, run_of(1), 3))
        assert (delivered.redelivered, delivered.deliveries) == (True, 3)
        client.send(BasicGet(4, 1, "q"))
        asked = stage.expect(0, Get)
        stage.say(0, Got(stage.request(asked), 1, True, run_of(1), 0, 2))
        answer = client.receive()
        assert isinstance(answer, Ok)
        assert answer.result["deliveries"] == 2


def test_deliveries_in_columns_are_as_each_by_itself(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, {})])
    with RawClient(stage).open() as client:
        consumer = consuming(stage, client)
        stage.say(0, Deliveries([consumer, 999, consumer], [10, 0, 20], [run_of(2), run_of(1), run_of(3)]))
        found = [client.receive() for _ in range(2)]
        assert [(each.tag, each.redelivered, each.count) for each in found if isinstance(each, BasicDeliver)] == [
            (1, False, 2),
            (3, False, 3),
        ]
        client.send(BasicAck(1, [(2, 4)]))
        assert stage.expect(0, Ack).ranges == [(11, 12), (20, 22)]


def test_a_nack_may_delay_the_return(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, {})])
    with RawClient(stage).open() as client:
        consumer = consuming(stage, client)
        deliver(stage, client, Delivered(consumer, 0, False, run_of(3)))
        client.send(BasicNack(1, [(1, 2)], True, 750), BasicNack(1, [(3, 3)], False))
        assert stage.expect(0, Nack) == Nack(consumer, [(0, 2)], True, 750)
        assert stage.expect(0, Nack) == Nack(consumer, [(2, 3)], False)


def test_a_delay_of_what_does_not_return_closes_the_channel_and_settles_nothing(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, {})])
    with RawClient(stage).open() as client:
        consumer = consuming(stage, client)
        deliver(stage, client, Delivered(consumer, 0, False, run_of(1)))
        client.send(BasicNack(1, [(1, 1)], False, 750))
        closed = client.receive()
        assert isinstance(closed, ChannelClose)
        assert closed.code == 406
        assert stage.expect(0, Release) == Release(consumer)
        assert not [said for said in stage.shards[0].heard if isinstance(said, Nack)]


def test_a_renewal_names_what_is_held_and_leaves_it_held(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, {})])
    with RawClient(stage).open() as client:
        consumer = consuming(stage, client, {"x-consumer-timeout": 1000})
        deliver(stage, client, Delivered(consumer, 10, False, run_of(3)), Delivered(consumer, 20, False, run_of(2)))
        client.send(BasicRenew(1, [(2, 4)]), BasicAck(1, [(1, 5)]))
        assert [stage.expect(0, Renew).ranges for _ in range(2)] == [[(11, 13)], [(20, 21)]]
        assert stage.expect(0, Ack).ranges == [(10, 13), (20, 22)]


def test_renewing_what_is_not_held_closes_the_channel(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, {})])
    with RawClient(stage).open() as client:
        client.send(BasicRenew(1, [(1, 1)]))
        closed = client.receive()
        assert isinstance(closed, ChannelClose)
        assert (closed.code, "delivery tag 1" in closed.text) == (406, True)


@pytest.mark.parametrize("where", ["consumer", "queue"])
def test_an_ack_that_comes_too_late_does_not_settle_the_next_delivery(start_stage: StartStage, where: str) -> None:
    stage = start_stage([("q", 0, {"x-consumer-timeout": 1000} if where == "queue" else {})])
    with RawClient(stage).open() as client:
        consumer = consuming(stage, client, {"x-consumer-timeout": 1000} if where == "consumer" else {})
        deliver(stage, client, Delivered(consumer, 0, False, run_of(4)), Delivered(consumer, 1, True, run_of(2)))
        client.send(BasicAck(1, [(1, 3)]))  # tags 2 and 3 came again as 5 and 6
        assert [said.ranges for said in said_by(stage, client, Ack)] == [[(0, 1)]]  # type: ignore[attr-defined]
        client.send(BasicNack(1, [(4, 5)]), BasicAck(1, [(6, 6)]))
        assert [said.ranges for said in said_by(stage, client, Nack)] == [[(3, 4)], [(1, 2)]]  # type: ignore[attr-defined]
        assert stage.expect(0, Ack).ranges == [(0, 1)]
        assert stage.expect(0, Ack).ranges == [(2, 3)]


def test_an_ack_that_comes_too_late_is_ignored_also_where_a_policy_set_the_time_later(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, {})])
    policy = Policy("/", "timed", "^q$", {"consumer-timeout": 1000}, 0, "queues", False)
    with RawClient(stage).open() as client:
        consuming(stage, client)
        stage.tell(PolicyPut(policy))
        stage.tell(PolicyRemoved("/", "timed", False))
        stage.say(0, Reset("an envelope was lost"))  # the shard may have begun anew while the policy was there
        asked = stage.expect(0, Consume)
        stage.say(0, Answer(stage.request(asked), None))
        again = [Delivered(asked.consumer, 5, False, run_of(1)), Delivered(asked.consumer, 5, True, run_of(1))]
        assert [said.tag for said in deliver(stage, client, *again)] == [1, 2]
        client.send(BasicAck(1, [(1, 1)]))
        assert said_by(stage, client, Ack) == []
        client.send(BasicAck(1, [(2, 2)]))
        assert stage.expect(0, Ack).ranges == [(5, 6)]


def test_what_was_got_and_came_back_overdue_is_not_settled_by_its_old_tag(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, {"x-consumer-timeout": 1000})])
    with RawClient(stage).open() as client:
        for request in (4, 5):
            client.send(BasicGet(request, 1, "q"))
            asked = stage.expect(0, Get)
            stage.say(0, Got(stage.request(asked), 7, request == 5, run_of(1), 0))
            assert isinstance(client.receive(), Ok)
        client.send(BasicAck(1, [(1, 1)]))
        assert said_by(stage, client, Ack) == []
        client.send(BasicAck(1, [(2, 2)]))
        assert stage.expect(0, Ack).ranges == [(7, 8)]


def test_getting_from_many_queues_is_forgotten_where_nothing_is_held(start_stage: StartStage) -> None:
    queues = [(f"q{number}", 0, {}) for number in range(40)]
    stage = start_stage(queues)
    with RawClient(stage).open() as client:
        for number in range(40):
            client.send(BasicGet(number + 3, 1, f"q{number}"))
            asked = stage.expect(0, Get)
            stage.say(
                0,
                Got(stage.request(asked), 0, False, run_of(1), 0)
                if number == 0
                else Answer(stage.request(asked), None),
            )
            assert isinstance(client.receive(), Ok)
        released = [said.consumer for said in said_by(stage, client, Release)]  # type: ignore[attr-defined]
        assert len(released) == 30
        client.send(BasicAck(1, [(1, 1)]))
        assert stage.expect(0, Ack).consumer not in released


def test_a_connection_that_ends_is_gone_at_once_and_not_when_the_collector_comes(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, {})])
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            with RawClient(stage).open() as client:
                consumer = consuming(stage, client)
                deliver(stage, client, Delivered(consumer, 0, False, run_of(4)))
                client.send(BasicAck(1, [(1, 1)]), BasicNack(1, [(2, 2)]))
            assert stage.expect(0, Release) == Release(consumer)
        left = (NativeConnection, Session, Channel, Consumer, Permissions)
        stage.until(lambda: not [each for each in gc.get_objects() if isinstance(each, left)])
    finally:
        gc.enable()


def test_a_queue_that_goes_takes_its_consumer_along(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, {})])
    with RawClient(stage).open() as client:
        consumer = consuming(stage, client)
        deliver(stage, client, Delivered(consumer, 0, False, run_of(1)))
        stage.say(0, Cancelled(consumer))
        assert client.receive() is not None
        client.send(BasicAck(1, [(1, 1)]))
        assert client.ask(TopologyList, "queues")
