"""Consumers over AMQP: started, served in order, cancelled by either side; and getting one by one."""

from collections.abc import Iterator

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.protocol.amqp.methods.basic import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsumeOk,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicQos,
    BasicQosOk,
)
from shardmq.protocol.amqp.methods.connection import AccessRequest, AccessRequestOk, ChannelFlow, ChannelFlowOk
from shardmq.protocol.amqp.methods.topology import QueueDeclareOk, QueueDeleteOk
from shardmq.protocol.amqp.methods.transaction import ConfirmSelect, ConfirmSelectOk
from tests.amqp import asking as ask
from tests.conftest import StartBroker
from tests.gateway.amqp.rawclient import RawClient


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.port) as client:
        yield client


@pytest.fixture
def queue(client: RawClient) -> str:
    """A queue of this test's, with five messages."""
    name = client.ask(ask.declare_queue("", exclusive=True), QueueDeclareOk).queue
    client.publish(ask.publish("", name), *[b"%d" % number for number in range(5)])
    return name


def test_deliveries_follow_the_answer_and_come_in_order(client: RawClient, queue: str) -> None:
    tag = client.ask(ask.consume(queue), BasicConsumeOk).consumer_tag
    assert tag.startswith("amq.ctag-")
    assert list(ask.deliveries(client, 5)) == [(tag, number + 1, False, b"%d" % number) for number in range(5)]


def test_consumers_without_answer_are_served(client: RawClient, queue: str) -> None:
    client.send(1, ask.consume(queue, "quiet", nowait=True))
    assert [tag for tag, *_ in ask.deliveries(client, 5)] == ["quiet"] * 5


def test_unknown_arguments_and_no_local_are_ignored(client: RawClient, queue: str) -> None:
    arguments = {"x-cancel-on-ha-failover": True, "x-stream-offset": "first", "x-priority": 3, "more": [1]}
    client.ask(ask.consume(queue, "t", no_local=True, arguments=arguments), BasicConsumeOk)
    assert len(list(ask.deliveries(client, 5))) == 5


def test_the_higher_priority_is_served_first(client: RawClient, queue: str) -> None:
    client.ask(ask.get(queue), BasicGetOk)  # so that what is published has come
    client.ask(BasicQos(0, 2), BasicQosOk)
    client.ask(ask.consume(queue, "low", arguments={"x-priority": -1}), BasicConsumeOk)
    assert [tag for tag, *_ in ask.deliveries(client, 2)] == ["low", "low"]
    client.ask(ask.consume(queue, "high", arguments={"x-priority": 1}), BasicConsumeOk)
    assert [tag for tag, *_ in ask.deliveries(client, 2)] == ["high", "high"]
    client.publish(ask.publish("", queue), b"more", b"and more")
    client.send(1, BasicAck(2, multiple=False), BasicAck(4), BasicAck(5))
    assert [tag for tag, *_ in ask.deliveries(client, 2)] == ["high", "high"]


def test_nothing_comes_after_a_consumer_was_cancelled(client: RawClient, queue: str) -> None:
    client.send(1, ask.consume(queue, "t", nowait=True), BasicCancel("t"))
    while not isinstance(client.hear().method, BasicCancelOk):
        pass
    client.publish(ask.publish("", queue), b"late")
    assert ask.answers(client, ask.declare_queue(queue, passive=True))[0] == QueueDeclareOk(queue, 1, 0)


def test_what_a_cancelled_consumer_holds_can_be_acknowledged(client: RawClient, queue: str) -> None:
    client.ask(ask.consume(queue, "t"), BasicConsumeOk)
    list(ask.deliveries(client, 5))
    client.ask(BasicCancel("t"), BasicCancelOk)
    client.send(1, BasicAck(4, multiple=True), BasicNack(5))
    assert client.ask(ask.get(queue), BasicGetOk).message_count == 0


def test_a_tag_may_be_used_again_once_its_consumer_is_cancelled(client: RawClient, queue: str) -> None:
    client.send(1, *[each for _ in range(3) for each in (ask.consume(queue, "t", no_ack=True), BasicCancel("t"))])
    answers = [said.method for said in (client.hear() for _ in range(11)) if not said.body]
    assert answers == [BasicConsumeOk("t"), BasicCancelOk("t")] * 3


def test_cancelling_what_is_not_there_is_answered(client: RawClient) -> None:
    assert client.ask(BasicCancel("nobody"), BasicCancelOk).consumer_tag == "nobody"
    assert ask.answers(client, BasicCancel("nobody", nowait=True)) == []


def test_many_cancels_that_wait_for_an_answer_before_them_are_answered(client: RawClient) -> None:
    client.send(1, ask.declare_queue("", exclusive=True), *[BasicCancel(str(number)) for number in range(3000)])
    client.expect(QueueDeclareOk)
    assert [client.expect(BasicCancelOk).consumer_tag for _ in range(3000)] == [str(number) for number in range(3000)]


def test_consumers_hear_that_their_queue_is_gone(broker: Broker) -> None:
    with RawClient(broker.port, channels=2) as client, RawClient(broker.port, capabilities={}) as deaf:
        client.ask(ask.declare_queue("c.gone"), QueueDeclareOk)
        client.ask(ask.consume("c.gone", "t"), BasicConsumeOk)
        deaf.ask(ask.consume("c.gone", "u"), BasicConsumeOk)
        client.send(2, ask.delete_queue("c.gone", nowait=True))
        assert client.expect(BasicCancel) == BasicCancel("t", nowait=True)
        client.ask(ask.delete_queue("c.gone"), QueueDeleteOk, channel=2)
        deaf.ask(BasicCancel("u"), BasicCancelOk)  # and nothing before
        client.ask(BasicCancel("t"), BasicCancelOk)


def test_exclusive_consumers_give_way_when_they_are_cancelled(client: RawClient, queue: str) -> None:
    client.ask(ask.consume(queue, "alone", exclusive=True, no_ack=True), BasicConsumeOk)
    list(ask.deliveries(client, 5))
    client.ask(BasicCancel("alone"), BasicCancelOk)
    client.ask(ask.consume(queue, "other"), BasicConsumeOk)


def test_get_says_how_many_are_left(client: RawClient, queue: str) -> None:
    client.send(1, *[ask.get(queue, no_ack=number % 2 == 1) for number in range(6)])
    for number in range(5):
        said = client.hear()
        assert said.method == BasicGetOk(number + 1, False, "", queue, 4 - number)
        assert said.body == b"%d" % number
    client.expect(BasicGetEmpty)
    client.send(1, BasicNack(0, multiple=True))
    assert client.ask(ask.get(queue), BasicGetOk) == BasicGetOk(6, True, "", queue, 2)


def test_get_finds_bodies_of_several_frames(client: RawClient, queue: str) -> None:
    body = bytes(range(256)) * 2000
    client.publish(ask.publish("", queue), body, properties=b"\x80\x00\x01t")
    client.send(1, ask.purge_queue(queue))  # the five, and it: what comes now is alone
    client.hear()
    client.publish(ask.publish("", queue), body, properties=b"\x80\x00\x01t")
    client.send(1, ask.get(queue, no_ack=True))
    said = client.hear()
    assert (said.properties, said.body) == (b"\x80\x00\x01t", body)


def test_get_finds_what_native_clients_published(client: RawClient, native: shardmq.Connection) -> None:
    client.ask(ask.declare_queue("c.native"), QueueDeclareOk)
    with native.channel() as channel:
        channel.basic_publish("", "c.native", b"x", shardmq.Properties(content_type="t", delivery_mode=1))
    client.send(1, ask.get("c.native", no_ack=True))
    said = client.hear()
    assert (said.properties, said.body) == (b"\x90\x00\x01t\x01", b"x")
    client.ask(ask.delete_queue("c.native"), QueueDeleteOk)


def test_flow_and_access_are_answered(client: RawClient) -> None:
    assert client.ask(ChannelFlow(active=True), ChannelFlowOk).active
    assert client.ask(AccessRequest("/data"), AccessRequestOk).ticket == 1


def test_confirms_count_from_confirm_select_and_asking_again_changes_nothing(client: RawClient, queue: str) -> None:
    client.publish(ask.publish("", queue), b"5", b"6")  # the five before, and these, are not confirmed
    client.ask(ConfirmSelect(), ConfirmSelectOk)
    client.publish(ask.publish("", queue), b"7")
    assert client.expect(BasicAck).delivery_tag == 1
    assert ask.answers(client, ConfirmSelect(nowait=True)) == []
    client.publish(ask.publish("", queue), b"8")
    assert client.expect(BasicAck).delivery_tag == 2


def test_a_consumer_goes_on_when_its_shard_is_back(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    with RawClient(broker.port) as client:
        client.ask(ask.declare_queue("c.durable", durable=True), QueueDeclareOk)
        client.ask(BasicQos(0, 10), BasicQosOk)
        client.ask(ask.consume("c.durable", "t"), BasicConsumeOk)
        client.ask(ConfirmSelect(), ConfirmSelectOk)
        client.publish(ask.publish("", "c.durable"), b"x", properties=b"\x10\x00\x02")
        said = [client.hear(), client.hear()]
        assert sorted(each.body for each in said) == [b"", b"x"]
        broker.kill("shard-0")
        assert list(ask.deliveries(client, 1)) == [("t", 2, True, b"x")]
        client.send(1, BasicAck(1), BasicAck(2))  # the first is of no consequence any more
        client.ask(BasicCancel("t"), BasicCancelOk)
        client.ask(ask.get("c.durable"), BasicGetEmpty)
