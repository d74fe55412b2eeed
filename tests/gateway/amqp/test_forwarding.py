"""Messages that go to their consumer on their way to the shard, which the test plays: when they do, and as what."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shardmq.bus.messages.base import Answer, Reset
from shardmq.bus.messages.columns import FORWARDED, TELL, MayForward
from shardmq.bus.messages.shard import (
    Ack,
    Cancel,
    Confirmed,
    Consume,
    Delivered,
    Gateways,
    Get,
    Nack,
    Publish,
    PublishRefusal,
    Release,
)
from shardmq.errors import ReplyCode
from shardmq.message.properties import Properties
from shardmq.message.record import pack
from shardmq.message.record_batch import RecordBatch
from shardmq.protocol.amqp import encoder as sending
from shardmq.protocol.amqp import properties
from shardmq.protocol.amqp.methods.basic import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    BasicReject,
)
from shardmq.protocol.amqp.methods.connection import ChannelClose, ChannelCloseOk
from shardmq.protocol.amqp.methods.transaction import ConfirmSelect, ConfirmSelectOk
from shardmq.topology.entities import Binding, Exchange
from tests.gateway.amqp.deliveries import consuming
from tests.gateway.amqp.rawclient import NO_PROPERTIES, RawClient, Said
from tests.gateway.stage import Stage

StartStage = Callable[..., Any]
"""See `gateway/conftest.py`."""

FIRST = 40
"""The number that the queue's next message has, when the shard says that it may be forwarded."""


@pytest.fixture
def stage(start_stage: StartStage) -> Stage:
    both = [Binding("/", "both", name, "") for name in ("q", "other")]
    stage = start_stage([("q", 0, {}), ("other", 0, {})], [Exchange("/", "both", "fanout", True)], both)
    stage.say(0, Gateways(1))
    return stage


@pytest.fixture
def client(stage: Stage) -> Iterator[RawClient]:
    with RawClient(stage.port) as client:
        yield client


def publish(
    client: RawClient, body: bytes = b"m", key: str = "q", exchange: str = "", raw: bytes = NO_PROPERTIES
) -> None:
    client.publish(BasicPublish(0, exchange, key, mandatory=False, immediate=False), body, properties=raw)


def asked(stage: Stage, client: RawClient, consumer: int, body: bytes = b"first") -> int:
    """Publish what the shard is to deliver; returns the number of the publish."""
    publish(client, body)
    sent = stage.expect(0, Publish)
    assert (sent.forwarded, sent.forwarded_as) == (TELL, 0)
    stage.say(0, Delivered(consumer, FIRST - 1, False, RecordBatch("", "q", 0, 0, 1, 1, 1, pack(None, body))))
    return stage.shards[0].publishes


def begin(stage: Stage, client: RawClient) -> int:
    """Have a consumer, and say that what comes may be forwarded to it; returns its number."""
    consumer = consuming(stage, client)
    asked(stage, client, consumer)
    stage.say(0, MayForward([consumer], [FIRST], 1))
    assert client.hear().method == BasicDeliver("c", 1, False, "", "q")
    return consumer


def is_forwarded(stage: Stage, client: RawClient, consumer: int, tag: int, first: int = FIRST) -> None:
    """A message is published; the client has it, though the shard says nothing, which is told whose it is."""
    publish(client, b"body %d" % tag)
    said = client.hear()
    assert (said.method, said.body) == (BasicDeliver("c", tag, False, "", "q"), b"body %d" % tag)
    sent = stage.expect(0, Publish)
    assert (sent.forwarded, sent.forwarded_as) == (consumer, first)


def goes_by_the_shard(stage: Stage, client: RawClient, forwarded: int = TELL) -> None:
    publish(client)
    assert stage.expect(0, Publish).forwarded == forwarded


def test_what_is_published_goes_to_the_consumer_at_once(stage: Stage, client: RawClient) -> None:
    consumer = begin(stage, client)
    is_forwarded(stage, client, consumer, 2)
    is_forwarded(stage, client, consumer, 3, FIRST + 1)
    client.send(1, BasicAck(2))
    assert stage.expect(0, Ack) == Ack(consumer, [(FORWARDED + FIRST, FORWARDED + FIRST + 1)])
    client.send(1, BasicAck(3))
    assert stage.expect(0, Ack) == Ack(consumer, [(FORWARDED + FIRST + 1, FORWARDED + FIRST + 2)])


def test_it_is_confirmed_when_the_shard_has_it(stage: Stage, client: RawClient) -> None:
    client.ask(ConfirmSelect(), ConfirmSelectOk)
    consumer = begin(stage, client)
    is_forwarded(stage, client, consumer, 2)
    stage.confirm(0, 2)
    assert client.hear() == Said(1, BasicAck(2, multiple=True))


def test_nothing_is_before_the_shard_has_taken_in_what_went_there(stage: Stage, client: RawClient) -> None:
    consumer = consuming(stage, client)
    asked(stage, client, consumer)
    goes_by_the_shard(stage, client)
    stage.say(0, MayForward([consumer], [FIRST], 1))  # it does not know of the second
    client.expect(BasicDeliver)
    goes_by_the_shard(stage, client)
    stage.say(0, MayForward([consumer], [FIRST + 2], 3))
    stage.until(lambda: stage.state.links[0].forwarding.is_any)
    is_forwarded(stage, client, consumer, 2, FIRST + 2)


def test_nothing_is_where_there_are_other_gateways(stage: Stage, client: RawClient) -> None:
    consumer = begin(stage, client)
    is_forwarded(stage, client, consumer, 2)
    stage.say(0, Gateways(2))
    stage.until(lambda: not stage.state.links[0].forwarding.may_begin)
    goes_by_the_shard(stage, client, 0)
    stage.say(0, MayForward([consumer], [FIRST + 2], 3))
    goes_by_the_shard(stage, client, 0)


def returned(stage: Stage, client: RawClient, _consumer: int) -> None:
    client.send(1, BasicReject(1, requeue=True))
    stage.expect(0, Nack)


def joined(stage: Stage, client: RawClient, _consumer: int) -> None:
    client.send(1, BasicConsume(0, "q", "second"))
    stage.say(0, Answer(stage.request(stage.expect(0, Consume)), None))
    client.expect(BasicConsumeOk)


def got(stage: Stage, client: RawClient, _consumer: int) -> None:
    client.send(1, BasicGet(0, "q", no_ack=False))
    stage.say(0, Answer(stage.request(stage.expect(0, Get)), None))


def taken_back(stage: Stage, _client: RawClient, consumer: int) -> None:
    stage.say(0, MayForward([consumer], [0], 1))
    stage.until(lambda: not stage.state.links[0].forwarding.is_any)


def to_several(stage: Stage, client: RawClient, _consumer: int) -> None:
    publish(client, exchange="both", key="")
    assert stage.expect(0, Publish).forwarded == 0


def with_a_time_to_live(stage: Stage, client: RawClient, _consumer: int) -> None:
    publish(client, raw=properties.encode(Properties(expiration="60000")))
    assert stage.expect(0, Publish).forwarded == TELL


def too_large(stage: Stage, client: RawClient, _consumer: int) -> None:
    publish(client, b"x" * 70_000)
    assert stage.expect(0, Publish).forwarded == TELL


def refused(stage: Stage, _client: RawClient, _consumer: int) -> None:
    stage.say(0, PublishRefusal(2, ReplyCode.RESOURCE_ERROR, "no room"), Confirmed(2))
    stage.until(lambda: not stage.state.links[0].forwarding.is_any)


@pytest.mark.parametrize(
    ("happens", "then"),
    [
        (returned, TELL),
        (joined, 0),
        (got, TELL),
        (taken_back, TELL),
        (refused, TELL),
        (to_several, TELL),
        (with_a_time_to_live, TELL),
        (too_large, TELL),
    ],
)
def test_it_ends_when(
    stage: Stage, client: RawClient, happens: Callable[[Stage, RawClient, int], None], then: int
) -> None:
    consumer = begin(stage, client)
    is_forwarded(stage, client, consumer, 2)
    happens(stage, client, consumer)
    goes_by_the_shard(stage, client, then)


def test_it_ends_with_the_consumer(stage: Stage, client: RawClient) -> None:
    consumer = begin(stage, client)
    is_forwarded(stage, client, consumer, 2)
    client.send(1, BasicCancel("c"))
    stage.say(0, Answer(stage.request(stage.expect(0, Cancel)), None))
    client.expect(BasicCancelOk)
    goes_by_the_shard(stage, client, 0)


def test_nothing_goes_to_a_channel_that_is_being_closed(stage: Stage, client: RawClient) -> None:
    """Its consumers end one after the other, and what the client said before goes before each end."""
    client.send(1, BasicConsume(0, "other", "first", no_ack=True))
    stage.say(0, Answer(stage.request(stage.expect(0, Consume)), None))
    client.expect(BasicConsumeOk)
    begin(stage, client)
    method = sending.method_frame(1, BasicPublish(0, "", "q", mandatory=False, immediate=False))
    content = sending.content_frames(1, NO_PROPERTIES, b"m", 131_072)
    client.socket.sendall(method + content + sending.method_frame(1, ChannelClose(200, "", 0, 0)))
    assert stage.expect(0, Publish).forwarded <= 0
    assert client.hear().method == ChannelCloseOk()


def test_what_a_closed_connection_had_goes_back_behind_its_publish(stage: Stage, client: RawClient) -> None:
    with RawClient(stage.port) as other:
        consumer = begin(stage, other)
        publish(client, b"body")
        other.expect(BasicDeliver)
        sent = stage.expect(0, Publish)
        assert sent.forwarded == consumer
    assert stage.expect(0, Release).consumer == consumer


@pytest.mark.parametrize("is_global", [False, True])
def test_a_consumer_gets_no_more_than_its_prefetch(stage: Stage, client: RawClient, is_global: bool) -> None:
    client.ask(BasicQos(0, 3, is_global), BasicQosOk)
    consumer = begin(stage, client)
    is_forwarded(stage, client, consumer, 2)
    if not is_global:  # which is full with the next one, and would have to be looked after
        is_forwarded(stage, client, consumer, 3, FIRST + 1)
    goes_by_the_shard(stage, client)


def test_it_may_go_on_when_the_shard_says_so(stage: Stage, client: RawClient) -> None:
    consumer = begin(stage, client)
    is_forwarded(stage, client, consumer, 2)
    returned(stage, client, consumer)
    goes_by_the_shard(stage, client)
    stage.say(0, MayForward([consumer], [FIRST + 2], 3))
    stage.until(lambda: stage.state.links[0].forwarding.is_any)
    is_forwarded(stage, client, consumer, 3, FIRST + 2)


def test_a_number_is_given_once_though_messages_were_refused(stage: Stage, client: RawClient) -> None:
    consumer = begin(stage, client)
    is_forwarded(stage, client, consumer, 2)
    returned(stage, client, consumer)
    goes_by_the_shard(stage, client)
    stage.say(0, MayForward([consumer], [FIRST], 3))  # it has not taken what was forwarded
    stage.until(lambda: stage.state.links[0].forwarding.is_any)
    is_forwarded(stage, client, consumer, 3, FIRST + 1)


def test_without_acknowledgements_it_is_the_same(stage: Stage, client: RawClient) -> None:
    client.send(1, BasicConsume(0, "q", "c", no_ack=True))
    start = stage.expect(0, Consume)
    stage.say(0, Answer(stage.request(start), None))
    client.expect(BasicConsumeOk)
    asked(stage, client, start.consumer)
    stage.say(0, MayForward([start.consumer], [FIRST], 1))
    client.expect(BasicDeliver)
    is_forwarded(stage, client, start.consumer, 2)


def test_a_new_session_begins_anew(stage: Stage, client: RawClient) -> None:
    """What was forwarded in the old one is its shard's; its acknowledgement is not sent."""
    consumer = begin(stage, client)
    is_forwarded(stage, client, consumer, 2)
    stage.say(0, Reset("an envelope was lost"))
    start = stage.expect(0, Consume)
    stage.say(0, Gateways(1), Answer(stage.request(start), None))
    stage.until(lambda: stage.state.links[0].forwarding.may_begin)
    client.send(1, BasicAck(2))
    goes_by_the_shard(stage, client)
    assert not [message for message in stage.shards[0].heard if isinstance(message, Ack)]
    stage.say(0, MayForward([consumer], [5], 1))
    stage.until(lambda: stage.state.links[0].forwarding.is_any)
    is_forwarded(stage, client, consumer, 3, FIRST + 1)


def test_nothing_is_where_many_messages_come_together(stage: Stage, client: RawClient) -> None:
    begin(stage, client)
    forwarding = stage.state.links[0].forwarding
    method = BasicPublish(0, "", "q", mandatory=False, immediate=False)
    deadline = time.monotonic() + 60
    while not forwarding.is_crowded:
        assert time.monotonic() < deadline
        client.publish(method, *[b"m"] * 50)
        stage.work()
        stage.confirm(0, stage.state.links[0].forwarding.published)
    client.publish(method, *[b"m"] * 50)
    stage.until(lambda: stage.shards[0].heard[-1].forwarded == 0)
