"""Acknowledgements over AMQP: single, multiple, with gaps, twice; what returns, in which order, marked how."""

from collections.abc import Iterator

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from shardmq.cmd.run.broker import Broker
from shardmq.protocol.amqp.methods.basic import (
    BasicAck,
    BasicCancel,
    BasicConsumeOk,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicRecover,
    BasicRecoverAsync,
    BasicRecoverOk,
    BasicReject,
)
from shardmq.protocol.amqp.methods.fields import Method
from shardmq.protocol.amqp.methods.topology import QueueDeclareOk, QueuePurgeOk
from tests.amqp import asking as ask
from tests.gateway.amqp.rawclient import RawClient


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.port) as client:
        yield client


@pytest.fixture
def queue(client: RawClient) -> str:
    """A queue of this test's, whose six messages a consumer holds under the tags 1 to 6."""
    name = client.ask(ask.declare_queue("", exclusive=True), QueueDeclareOk).queue
    client.publish(ask.publish("", name), *[b"%d" % number for number in range(1, 7)])
    client.ask(ask.consume(name, "t"), BasicConsumeOk)
    assert [tag for _, tag, *_ in ask.deliveries(client, 6)] == [1, 2, 3, 4, 5, 6]
    return name


def left(client: RawClient, queue: str) -> list[bytes]:
    """What of its messages is not done with: they return when the channel closes, and are got on another one."""
    client.send(1, BasicCancel("t", nowait=True), BasicRecover(requeue=True))
    client.expect(BasicRecoverOk)
    bodies = []
    while True:
        client.send(1, ask.get(queue))
        said = client.hear()
        if isinstance(said.method, BasicGetEmpty):
            return bodies
        assert isinstance(said.method, BasicGetOk)
        assert said.method.redelivered
        bodies.append(said.body)


@pytest.mark.parametrize(
    ("said", "remaining"),
    [
        ([], b"123456"),
        ([BasicAck(3)], b"12456"),
        ([BasicAck(3, multiple=True)], b"456"),
        ([BasicAck(0, multiple=True)], b""),
        ([BasicAck(0, multiple=True), BasicAck(0, multiple=True)], b""),
        ([BasicAck(2), BasicAck(4, multiple=True)], b"56"),
        ([BasicAck(1), BasicAck(3), BasicAck(5), BasicAck(0, multiple=True)], b""),
        ([BasicAck(5), BasicAck(1), BasicAck(3)], b"246"),
        ([BasicNack(2, multiple=True, requeue=False), BasicReject(4, requeue=False)], b"356"),
        ([BasicAck(2), BasicNack(4, multiple=True, requeue=False)], b"56"),
        ([BasicNack(0, multiple=True, requeue=False)], b""),
        ([BasicAck(tag) for tag in range(1, 7)], b""),
    ],
)
def test_what_is_acknowledged_is_done_with(client: RawClient, queue: str, said: list[Method], remaining: bytes) -> None:
    client.send(1, *said)
    assert b"".join(left(client, queue)) == remaining


@pytest.mark.parametrize(
    ("said", "tag", "remaining"),
    [
        ([BasicAck(2), BasicAck(2)], 2, b"13456"),
        ([BasicAck(2), BasicAck(2, multiple=True)], 2, b"13456"),
        ([BasicAck(3, multiple=True), BasicAck(1)], 1, b"456"),
        ([BasicAck(1), BasicAck(2), BasicAck(7), BasicAck(3)], 7, b"3456"),
        ([BasicAck(tag) for tag in range(4, 8)], 7, b"123"),
        ([BasicAck(7, multiple=True)], 7, b"123456"),
        ([BasicNack(1), BasicReject(1)], 1, b"123456"),
        ([BasicAck(2**64 - 1)], 2**64 - 1, b"123456"),
    ],
)
def test_acknowledging_what_is_not_outstanding_closes_the_channel_and_the_rest_returns(
    broker: Broker, said: list[Method], tag: int, remaining: bytes
) -> None:
    with RawClient(broker.port, channels=2) as client:
        name = client.ask(ask.declare_queue("", exclusive=True), QueueDeclareOk).queue
        client.publish(ask.publish("", name), *[b"%d" % number for number in range(1, 7)])
        client.send(1, *[ask.get(name)] * 6)
        for _ in range(6):
            client.expect(BasicGetOk)
        client.send(1, *said)
        assert client.end()[:3] == ("channel", 406, f"PRECONDITION_FAILED - unknown delivery tag {tag}")
        bodies = b""
        while len(bodies) < len(remaining):
            client.send(2, ask.get(name, no_ack=True))
            bodies += client.hear().body
        assert bodies == remaining
        client.ask(ask.get(name), BasicGetEmpty, channel=2)


def test_a_tag_of_another_channel_is_unknown(broker: Broker) -> None:
    with RawClient(broker.port, channels=2) as client:
        ask.fill(client, "a.two", b"x")
        client.ask(ask.get("a.two"), BasicGetOk)
        client.send(2, BasicAck(1))
        assert client.end()[2] == "PRECONDITION_FAILED - unknown delivery tag 1"
        client.send(1, BasicAck(1), ask.purge_queue("a.two"), ask.delete_queue("a.two"))
        assert client.expect(QueuePurgeOk).message_count == 0


def test_auto_acknowledged_deliveries_take_tags_that_are_not_outstanding(client: RawClient) -> None:
    ask.fill(client, "a.auto", b"1", b"2", b"3")
    client.send(1, *[ask.get("a.auto", no_ack=no_ack) for no_ack in (False, True, False)])
    assert [client.expect(BasicGetOk).delivery_tag for _ in range(3)] == [1, 2, 3]
    client.send(1, BasicAck(3, multiple=True), ask.delete_queue("a.auto", nowait=True), BasicAck(2))
    assert client.end()[2] == "PRECONDITION_FAILED - unknown delivery tag 2"


def test_what_returns_comes_again_at_its_place_and_is_marked(client: RawClient) -> None:
    ask.fill(client, "a.back", b"1", b"2", b"3", b"4")
    client.send(1, *[ask.get("a.back")] * 3)
    for _ in range(3):
        client.expect(BasicGetOk)
    client.send(1, BasicNack(2), BasicReject(1), ask.get("a.back"), ask.get("a.back"), ask.get("a.back"))
    said = [client.hear() for _ in range(3)]
    got = [(each.method.delivery_tag, each.method.redelivered, each.body) for each in said]  # type: ignore[attr-defined]
    assert got == [(4, True, b"1"), (5, True, b"2"), (6, False, b"4")]
    client.send(1, ask.delete_queue("a.back"))


def test_recovering_returns_everything_to_anybody(broker: Broker) -> None:
    with RawClient(broker.port, channels=2) as client:
        name = client.ask(ask.declare_queue("", exclusive=True), QueueDeclareOk).queue
        client.publish(ask.publish("", name), b"1", b"2", b"3")
        client.send(1, *[ask.get(name)] * 3)
        for _ in range(3):
            client.expect(BasicGetOk)
        client.send(1, BasicAck(2))
        client.ask(BasicRecover(requeue=True), BasicRecoverOk)
        client.send(2, ask.get(name), ask.get(name), ask.get(name))
        assert [client.hear().body for _ in range(3)] == [b"1", b"3", b""]
        client.send(2, BasicRecoverAsync(requeue=True), ask.get(name))
        assert client.hear().body == b"1"  # and no recover-ok before it
        client.ask(BasicRecover(requeue=True), BasicRecoverOk)


def test_a_consumer_gets_again_what_it_recovers(client: RawClient, queue: str) -> None:
    client.ask(BasicRecover(requeue=True), BasicRecoverOk)
    assert list(ask.deliveries(client, 6)) == [("t", tag + 6, True, b"%d" % tag) for tag in range(1, 7)]
    client.send(1, BasicAck(12, multiple=True))
    assert left(client, queue) == []


def test_what_is_rejected_becomes_a_dead_letter(channel: BlockingChannel) -> None:
    dead = channel.queue_declare("", exclusive=True).method.queue
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    queue = channel.queue_declare("", exclusive=True, arguments=arguments).method.queue
    for number in range(4):
        channel.basic_publish("", queue, b"%d" % number)
    for _ in range(4):
        channel.basic_get(queue)
    channel.basic_reject(1, requeue=False)
    channel.basic_ack(2)
    channel.basic_nack(4, multiple=True, requeue=False)
    bodies = [body for _, (_, _, body) in zip(range(3), channel.consume(dead, auto_ack=True), strict=False)]
    assert bodies == [b"0", b"2", b"3"]
    channel.cancel()


def test_what_a_connection_holds_returns_when_it_ends(broker: Broker, client: RawClient) -> None:
    ask.fill(client, "a.ends", b"1", b"2", b"3")
    with RawClient(broker.port) as other:
        other.ask(ask.consume("a.ends", "t"), BasicConsumeOk)
        list(ask.deliveries(other, 3))
        other.send(1, BasicAck(1), BasicCancel("t"))  # nobody hears the answer
    client.ask(ask.consume("a.ends", "u"), BasicConsumeOk)
    assert [body for *_, body in ask.deliveries(client, 2)] == [b"2", b"3"]
    client.send(1, ask.delete_queue("a.ends", nowait=True))
