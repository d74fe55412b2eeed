"""Prefetch over AMQP: of each consumer, of all of a channel together, changed while they run."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.protocol.amqp.methods.basic import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsumeOk,
    BasicGetOk,
    BasicNack,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverOk,
)
from shardmq.protocol.amqp.methods.connection import ChannelClose, ChannelCloseOk, ChannelOpen, ChannelOpenOk
from shardmq.protocol.amqp.methods.topology import QueueDeclareOk
from tests.amqp import asking as ask
from tests.gateway.amqp.rawclient import SECONDS, RawClient

BODIES = [b"%d" % number for number in range(20)]


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.port, channels=2) as client:
        yield client


def limit_each(client: RawClient, count: int) -> None:
    client.ask(BasicQos(0, count), BasicQosOk)


def limit_all(client: RawClient, count: int) -> None:
    client.ask(BasicQos(0, count, is_global=True), BasicQosOk)


def by_consumer(came: list[tuple[str, int, bool, bytes]]) -> dict[str, int]:
    return dict(Counter([consumer for consumer, *_ in came]))


def test_a_consumer_holds_no_more_than_its_prefetch(client: RawClient) -> None:
    queue = ask.fill(client, "", *BODIES)
    limit_each(client, 2)
    client.send(1, ask.consume(queue, "a", nowait=True), ask.consume(queue, "b", nowait=True))
    assert by_consumer(ask.settled(client, queue)) == {"a": 2, "b": 2}
    client.send(1, BasicAck(1))
    assert [(tag, body) for _, tag, _, body in ask.settled(client, queue)] == [(5, b"4")]


def test_a_consumer_without_acknowledgements_has_no_limit(client: RawClient) -> None:
    queue = ask.fill(client, "", *BODIES)
    limit_each(client, 2)
    client.send(1, ask.consume(queue, "a", no_ack=True, nowait=True))
    assert by_consumer(ask.settled(client, queue)) == {"a": 20}


def test_what_is_said_of_each_holds_for_those_that_run(client: RawClient) -> None:
    queue = ask.fill(client, "", *BODIES)
    limit_each(client, 1)
    client.send(1, ask.consume(queue, "a", nowait=True))
    assert by_consumer(ask.settled(client, queue)) == {"a": 1}
    limit_each(client, 4)
    assert by_consumer(ask.settled(client, queue)) == {"a": 3}
    limit_each(client, 2)
    client.send(1, BasicAck(2, multiple=True))
    assert ask.settled(client, queue) == []
    client.send(1, BasicAck(3))
    assert by_consumer(ask.settled(client, queue)) == {"a": 1}
    limit_each(client, 0)
    assert by_consumer(ask.settled(client, queue)) == {"a": 15}


def test_another_channel_has_its_own_prefetch(client: RawClient) -> None:
    queue = ask.fill(client, "", *BODIES)
    limit_each(client, 1)
    client.send(2, ask.consume(queue, "free", nowait=True))
    assert by_consumer(ask.settled(client, queue)) == {"free": 20}


def test_all_consumers_of_a_channel_hold_no_more_than_its_limit(client: RawClient) -> None:
    queues = [ask.fill(client, "", *BODIES) for _ in range(3)]
    limit_all(client, 5)
    client.send(1, *[ask.consume(queue, str(place), nowait=True) for place, queue in enumerate(queues)])
    assert [tag for _, tag, *_ in ask.settled(client, *queues)] == [1, 2, 3, 4, 5]
    assert client.ask(ask.get(queues[0], no_ack=True), BasicGetOk)  # no delivery of a consumer, so it does not count
    client.send(1, BasicAck(2), BasicAck(4))
    assert len(ask.settled(client, *queues)) == 2


def test_the_limit_is_exact_whatever_is_acknowledged_and_nothing_is_lost(client: RawClient) -> None:
    queues = [ask.fill(client, "", *BODIES) for _ in range(3)]
    limit_all(client, 4)
    client.send(1, *[ask.consume(queue, str(place), nowait=True) for place, queue in enumerate(queues)])
    chance = random.Random(1)
    outstanding: set[int] = set()
    seen: dict[str, list[bytes]] = {}

    def left() -> int:
        return 60 - sum(map(len, seen.values()))

    while left():
        deadline = time.monotonic() + SECONDS
        while len(outstanding) < min(4, len(outstanding) + left()):  # what went back for want of room comes again soon
            assert time.monotonic() < deadline, f"{len(outstanding)} of 4 are out"
            for consumer, tag, redelivered, body in ask.settled(client, *queues):
                assert not redelivered
                outstanding.add(tag)
                seen.setdefault(consumer, []).append(body)
        assert len(outstanding) <= 4
        for tag in chance.sample(sorted(outstanding), chance.randint(1, len(outstanding))):
            client.send(1, BasicAck(tag))
            outstanding.remove(tag)
    assert all(bodies == BODIES for bodies in seen.values())


def test_each_consumer_keeps_its_own_limit_below_that_of_all(client: RawClient) -> None:
    queues = [ask.fill(client, "", *BODIES) for _ in range(2)]
    limit_each(client, 2)
    limit_all(client, 3)
    client.ask(ask.consume(queues[0], "a"), BasicConsumeOk)
    assert by_consumer(ask.settled(client, *queues)) == {"a": 2}
    client.ask(ask.consume(queues[1], "b"), BasicConsumeOk)
    assert by_consumer(ask.settled(client, *queues)) == {"b": 1}
    client.send(1, BasicAck(1))
    ask.settled(client, *queues)


def test_what_is_said_of_each_lifts_what_was_said_of_all(client: RawClient) -> None:
    queue = ask.fill(client, "", *BODIES)
    limit_all(client, 3)
    limit_each(client, 2)
    client.send(1, ask.consume(queue, "a", nowait=True), ask.consume(queue, "b", nowait=True))
    assert by_consumer(ask.settled(client, queue)) == {"a": 2, "b": 2}


def test_the_limit_of_all_may_change_while_they_run(client: RawClient) -> None:
    queues = [ask.fill(client, "", *BODIES) for _ in range(2)]
    client.send(1, *[ask.consume(queue, queue, nowait=True) for queue in queues])
    assert len(ask.settled(client, *queues)) == 40
    client.ask(BasicRecover(requeue=True), BasicRecoverOk)
    ask.settled(client, *queues)
    limit_all(client, 2)  # they hold forty
    client.send(1, BasicAck(79, multiple=True))
    for queue in queues:
        client.publish(ask.publish("", queue), *BODIES)
    assert [tag for _, tag, *_ in ask.settled(client, *queues)] == [81]
    limit_all(client, 7)
    assert [tag for _, tag, *_ in ask.settled(client, *queues)] == [82, 83, 84, 85, 86]
    limit_all(client, 1)
    client.send(1, BasicAck(85, multiple=True))
    assert ask.settled(client, *queues) == []
    limit_all(client, 0)
    assert len(ask.settled(client, *queues)) == 40 - 6


def test_consumers_without_acknowledgements_get_nothing_while_the_limit_of_all_is_used_up(client: RawClient) -> None:
    queues = [ask.fill(client, "", *BODIES) for _ in range(2)]
    limit_all(client, 1)
    client.ask(ask.consume(queues[0], "a"), BasicConsumeOk)
    assert by_consumer(ask.settled(client, *queues)) == {"a": 1}
    client.ask(ask.consume(queues[1], "b", no_ack=True), BasicConsumeOk)
    assert ask.settled(client, *queues) == []
    client.send(1, BasicCancel("a", nowait=True), BasicAck(1))
    assert by_consumer(ask.settled(client, *queues)) == {"b": 20}
    client.publish(ask.publish("", queues[1]), *BODIES)
    assert [body for *_, body in ask.deliveries(client, 20)] == BODIES


def test_consumers_without_acknowledgements_take_no_room(client: RawClient) -> None:
    queues = [ask.fill(client, "", *BODIES) for _ in range(2)]
    limit_all(client, 2)
    client.ask(ask.consume(queues[0], "a", no_ack=True), BasicConsumeOk)
    assert by_consumer(ask.settled(client, *queues)) == {"a": 20}
    client.ask(ask.consume(queues[1], "b"), BasicConsumeOk)
    assert by_consumer(ask.settled(client, *queues)) == {"b": 2}
    limit_all(client, 0)
    assert by_consumer(ask.settled(client, *queues)) == {"b": 18}
    client.publish(ask.publish("", queues[0]), *BODIES)
    assert by_consumer(ask.settled(client, queues[0])) == {"a": 20}


def test_consumers_without_acknowledgements_that_run_are_held_up_by_a_limit_that_comes_later(
    client: RawClient,
) -> None:
    queues = [ask.fill(client, "", *BODIES), ask.fill(client, "")]
    client.ask(ask.consume(queues[1], "a", no_ack=True), BasicConsumeOk)
    limit_all(client, 1)
    client.ask(ask.consume(queues[0], "b"), BasicConsumeOk)
    assert by_consumer(ask.settled(client, *queues)) == {"b": 1}
    client.publish(ask.publish("", queues[1]), *BODIES)
    assert ask.settled(client, *queues) == []
    limit_each(client, 1)  # lifts it
    assert by_consumer(ask.settled(client, *queues)) == {"a": 20}


@pytest.mark.parametrize("end", ["cancel", "close"])
def test_what_waited_for_a_consumer_without_acknowledgements_is_not_lost(client: RawClient, end: str) -> None:
    queues = [ask.fill(client, "", *BODIES) for _ in range(2)]
    limit_all(client, 1)
    client.ask(ask.consume(queues[0], "a"), BasicConsumeOk)
    assert by_consumer(ask.settled(client, *queues)) == {"a": 1}
    client.ask(ask.consume(queues[1], "b", no_ack=True), BasicConsumeOk)
    assert ask.settled(client, *queues) == []
    if end == "cancel":
        client.ask(BasicCancel("b"), BasicCancelOk)
    else:
        client.ask(ChannelClose(200, "", 0, 0), ChannelCloseOk)
    client.send(2, ask.consume(queues[1], "c", nowait=True))
    assert sorted(body for consumer, _, _, body in ask.deliveries(client, 20) if consumer == "c") == sorted(BODIES)


def test_what_returns_makes_room(client: RawClient) -> None:
    queues = [ask.fill(client, "", *BODIES) for _ in range(2)]
    limit_all(client, 2)
    client.send(1, *[ask.consume(queue, queue, nowait=True) for queue in queues])
    assert len(ask.settled(client, *queues)) == 2
    client.send(1, BasicNack(1))
    assert len(ask.settled(client, *queues)) == 1
    client.ask(BasicRecover(requeue=True), BasicRecoverOk)
    assert len(ask.settled(client, *queues)) == 2
    client.send(1, BasicNack(0, multiple=True, requeue=False))
    assert len(ask.settled(client, *queues)) == 2


def test_what_waited_for_a_consumer_that_is_cancelled_goes_to_others(client: RawClient) -> None:
    first, second = [ask.fill(client, "", *BODIES) for _ in range(2)]
    limit_all(client, 3)
    client.ask(ask.consume(first, "a"), BasicConsumeOk)
    assert by_consumer(ask.settled(client, first, second)) == {"a": 3}
    client.ask(ask.consume(second, "b"), BasicConsumeOk)
    assert ask.settled(client, first, second) == []
    client.ask(BasicCancel("b"), BasicCancelOk)
    client.send(2, ask.consume(second, "c", nowait=True))
    assert by_consumer(ask.settled(client, first, second)) == {"c": 20}
    client.send(1, BasicAck(3, multiple=True))
    assert by_consumer(ask.settled(client, first, second)) == {"a": 3}


def test_what_a_cancelled_consumer_holds_counts_until_it_is_settled(client: RawClient) -> None:
    first, second = [ask.fill(client, "", *BODIES) for _ in range(2)]
    limit_all(client, 2)
    client.ask(ask.consume(first, "a"), BasicConsumeOk)
    assert by_consumer(ask.settled(client, first)) == {"a": 2}
    client.ask(BasicCancel("a"), BasicCancelOk)
    client.ask(ask.consume(second, "b"), BasicConsumeOk)
    assert ask.settled(client, first, second) == []
    client.send(1, BasicAck(1))
    assert by_consumer(ask.settled(client, first, second)) == {"b": 1}


def test_a_queue_that_is_deleted_makes_room(client: RawClient) -> None:
    first, second = [ask.fill(client, "", *BODIES) for _ in range(2)]
    limit_all(client, 2)
    client.ask(ask.consume(first, "a"), BasicConsumeOk)
    assert by_consumer(ask.settled(client, first)) == {"a": 2}
    client.ask(ask.consume(second, "b"), BasicConsumeOk)
    client.send(2, ask.delete_queue(first, nowait=True))
    assert client.expect(BasicCancel).consumer_tag == "a"
    assert by_consumer(ask.settled(client, second)) == {"b": 2}


def test_what_waited_returns_when_the_channel_closes(client: RawClient) -> None:
    queues = [ask.fill(client, "", *BODIES) for _ in range(2)]
    limit_all(client, 1)
    client.send(1, *[ask.consume(queue, queue, nowait=True) for queue in queues])
    assert len(ask.settled(client, *queues)) == 1
    client.ask(ChannelClose(200, "", 0, 0), ChannelCloseOk)
    client.send(2, *[ask.consume(queue, queue, nowait=True) for queue in queues])
    bodies = [body for _, _, _, body in ask.deliveries(client, 40)]
    assert sorted(bodies) == sorted(BODIES * 2)


def test_a_channel_without_room_leaves_what_comes_to_others(
    broker: Broker, client: RawClient, native: shardmq.Connection
) -> None:
    mine, common = ask.fill(client, "", *BODIES), ask.fill(client, "s.common")
    limit_all(client, 1)
    client.send(1, ask.consume(mine, "a", nowait=True), ask.consume(common, "b", nowait=True))
    assert by_consumer(ask.settled(client, mine, common)) == {"a": 1}
    while any(consumer["prefetch"] >= 0 for consumer in consumers(native, common)):
        pass  # it is paused soon
    with RawClient(broker.port) as other:
        other.ask(ask.consume(common, "c", no_ack=True), BasicConsumeOk)
        client.publish(ask.publish("", common), *BODIES)
        assert [body for *_, body in ask.deliveries(other, 20)] == BODIES
        other.ask(BasicCancel("c"), BasicCancelOk)
    client.publish(ask.publish("", common), b"for b")
    client.send(1, BasicCancel("a", nowait=True), BasicAck(1))
    assert [(consumer, body) for consumer, _, _, body in ask.deliveries(client, 1)] == [("b", b"for b")]
    client.send(2, ask.delete_queue(common, nowait=True))


def limited_deliveries(client: RawClient, *bodies: bytes) -> str:
    """A queue of this connection with these messages, of which each may be delivered in vain once."""
    declare = ask.declare_queue("", exclusive=True, arguments={"x-delivery-limit": 1})
    name = client.ask(declare, QueueDeclareOk).queue
    client.publish(ask.publish("", name), *bodies)
    return name


def wait_in_vain(client: RawClient, busy: str, rare: str, *, exclusive: bool) -> None:
    """Have the first message of a queue wait for room that another queue's message takes."""
    limit_all(client, 1)
    client.ask(ask.consume(busy, "a"), BasicConsumeOk)
    assert by_consumer(ask.settled(client, busy, rare)) == {"a": 1}
    client.ask(ask.consume(rare, "b", exclusive=exclusive), BasicConsumeOk)
    assert ask.settled(client, busy, rare) == []


def test_what_only_waited_was_never_delivered_when_the_channel_closes(client: RawClient) -> None:
    busy, rare = ask.fill(client, "", *BODIES), limited_deliveries(client, b"1", b"2")
    for _ in range(3):
        wait_in_vain(client, busy, rare, exclusive=False)
        client.ask(ChannelClose(200, "", 0, 0), ChannelCloseOk)
        client.ask(ChannelOpen(), ChannelOpenOk)
    client.send(2, ask.consume(rare, "c", nowait=True))
    assert [each[2:] for each in ask.deliveries(client, 2)] == [(False, b"1"), (False, b"2")]


def cancel_in_vain(client: RawClient, *, exclusive: bool) -> None:
    busy, rare = ask.fill(client, "", *BODIES), limited_deliveries(client, b"1", b"2")
    for _ in range(3):
        wait_in_vain(client, busy, rare, exclusive=exclusive)
        for tag in ("b", "a"):
            client.ask(BasicCancel(tag), BasicCancelOk)
        client.send(1, BasicNack(0, multiple=True))
    client.send(2, ask.consume(rare, "c", nowait=True))
    assert [each[2:] for each in ask.deliveries(client, 2)] == [(False, b"1"), (False, b"2")]


def test_what_only_waited_was_never_delivered_when_an_exclusive_consumer_is_cancelled(client: RawClient) -> None:
    cancel_in_vain(client, exclusive=True)


def test_what_only_waited_was_never_delivered_when_its_consumer_is_cancelled_at_one_of_two_gateways(
    start_broker: Callable[..., Broker],
) -> None:
    with RawClient(start_broker(shards=1, gateways=2).port, channels=2) as client:
        cancel_in_vain(client, exclusive=False)


def test_what_finds_no_room_for_a_while_goes_to_others(broker: Broker, client: RawClient) -> None:
    mine, common = ask.fill(client, "", *BODIES), ask.fill(client, "s.offered", *BODIES)
    wait_in_vain(client, mine, common, exclusive=False)
    with RawClient(broker.port) as other:
        other.ask(ask.consume(common, "c", no_ack=True), BasicConsumeOk)
        assert sorted(body for *_, body in ask.deliveries(other, 20)) == sorted(BODIES)
    client.send(2, ask.delete_queue(common, nowait=True))


def test_who_has_waited_comes_first_after_a_pause(client: RawClient, native: shardmq.Connection) -> None:
    queues = [ask.fill(client, "", *BODIES) for _ in range(3)]
    limit_all(client, 1)
    client.send(1, *[ask.consume(queue, queue, nowait=True) for queue in queues])
    came = []
    for _ in range(9):
        came += ask.deliveries(client, 1)
        deadline = time.monotonic() + SECONDS
        while not is_paused(native, queues):
            assert time.monotonic() < deadline, "what finds no room does not go back"
        client.send(1, BasicAck(came[-1][1]))
    assert by_consumer(came) == dict.fromkeys(queues, 3)
    assert not any(redelivered for _, _, redelivered, _ in came)


def is_paused(native: shardmq.Connection, queues: list[str]) -> bool:
    """Whether the consumers of these queues get nothing, and have one message together."""
    rows = [row for queue in queues for row in consumers(native, queue)]
    return all(row["prefetch"] < 0 for row in rows) and sum([row["unacked"] for row in rows]) == 1


def test_the_limit_of_all_is_listed_with_the_channel(client: RawClient, native: shardmq.Connection) -> None:
    queue = ask.fill(client, "")
    for limit in (7, 3, 0):
        limit_all(client, limit)
        client.ask(ask.consume(queue, f"until {limit}"), BasicConsumeOk)
        (owner,) = {row["connection"] for row in native.topology("consumers") if row["queue"] == queue}
        channels = [row for row in native.topology("channels") if row["connection"] == owner]
        assert {row["number"]: row["global_prefetch"] for row in channels} == {1: limit, 2: 0}


def consumers(native: shardmq.Connection, queue: str) -> list[dict[str, Any]]:
    """A queue's consumers, as its shard knows them."""
    tables: list[dict[str, Any]] = native.status()["queues"]
    return [consumer for table in tables if table["name"] == queue for consumer in table["consumer_list"]]
