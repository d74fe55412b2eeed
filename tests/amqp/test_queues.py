"""Queues over AMQP: declared with everything, named by the server, exclusive, counted, bound, purged, deleted."""

from collections.abc import Iterator
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.errors import ReplyCode
from shardmq.protocol.amqp import encoder as sending
from shardmq.protocol.amqp.methods.basic import (
    BasicCancel,
    BasicCancelOk,
    BasicConsumeOk,
    BasicGetEmpty,
    BasicGetOk,
    BasicQos,
    BasicQosOk,
)
from shardmq.protocol.amqp.methods.topology import (
    QueueBindOk,
    QueueDeclareOk,
    QueueDeleteOk,
    QueuePurgeOk,
    QueueUnbindOk,
)
from tests.amqp import asking as ask
from tests.gateway.amqp.rawclient import RawClient


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.port) as client:
        yield client


MEANT: list[dict[str, Any]] = [
    {"x-message-ttl": 60_000, "x-expires": 31_536_000_000},
    {"x-max-length": 10, "x-max-length-bytes": 2**40, "x-overflow": "reject-publish"},
    {"x-max-priority": 9},
    {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves", "x-dead-letter-strategy": "at-least-once"},
    {"x-single-active-consumer": True},
    {"x-queue-type": "quorum", "x-delivery-limit": 3},
    {"x-queue-type": "classic", "x-queue-mode": "lazy", "x-queue-version": 2},
    {"x-consumer-timeout": 1000, "x-consumer-timeout-action": "dead-letter"},
]
"""Arguments that mean something."""

IDLE: list[dict[str, Any]] = [
    {"x-queue-master-locator": "min-masters"},
    {"x-queue-leader-locator": "balanced", "x-queue-type": "classic"},
    {"x-quorum-initial-group-size": 3, "x-max-in-memory-length": 5, "x-max-in-memory-bytes": 500},
    {"x-ha-policy": "all", "x-ha-nodes": ["a", "b"]},
    {"x-delivery-limit": -1},
    {"x-max-priority": 0},
    {"x-dead-letter-strategy": "at-most-once"},
    {"anything": {"at": [1, None, 2.5, True, b"\xff"]}},
]
"""Arguments that RabbitMQ takes and that say nothing here, or what holds anyhow."""


@pytest.mark.parametrize("arguments", MEANT, ids=lambda arguments: next(iter(arguments)))
def test_arguments_that_mean_something_are_kept(
    client: RawClient, native: shardmq.Connection, arguments: dict[str, Any]
) -> None:
    client.ask(ask.declare_queue("q.meant", arguments=arguments), QueueDeclareOk)
    client.ask(ask.declare_queue("q.meant", arguments=arguments), QueueDeclareOk)
    assert [row["arguments"] for row in native.topology("queues") if row["name"] == "q.meant"] == [arguments]
    client.ask(ask.delete_queue("q.meant"), QueueDeleteOk)


@pytest.mark.parametrize("arguments", IDLE, ids=lambda arguments: next(iter(arguments)))
def test_arguments_that_mean_nothing_are_no_difference(client: RawClient, arguments: dict[str, Any]) -> None:
    client.ask(ask.declare_queue("q.idle", arguments=arguments), QueueDeclareOk)
    client.ask(ask.declare_queue("q.idle"), QueueDeclareOk)
    client.ask(ask.declare_queue("q.idle", arguments=arguments), QueueDeclareOk)
    client.ask(ask.delete_queue("q.idle"), QueueDeleteOk)


def test_arguments_work(channel: BlockingChannel) -> None:
    dead = channel.queue_declare("", exclusive=True).method.queue
    arguments = {"x-max-length": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    queue = channel.queue_declare("", exclusive=True, arguments=arguments).method.queue
    channel.confirm_delivery()
    for number in range(3):
        channel.basic_publish("", queue, b"%d" % number)
    _, properties, body = next(iter(channel.consume(dead, auto_ack=True)))
    assert (body, properties.headers["x-death"][0]["reason"]) == (b"0", "maxlen")
    channel.cancel()


def test_the_server_names_queues_and_remembers_the_last(client: RawClient) -> None:
    names = [client.ask(ask.declare_queue("", exclusive=True), QueueDeclareOk).queue for _ in range(2)]
    assert len(set(names)) == 2
    assert all(name.startswith("amq.gen-") for name in names)
    client.ask(ask.bind_queue("", "amq.direct"), QueueBindOk)  # under the queue's name, as no key is said either
    client.publish(ask.publish("amq.direct", names[1]), b"by name")
    assert client.ask(ask.get("", no_ack=True), BasicGetOk).routing_key == names[1]
    client.ask(ask.unbind_queue("", "amq.direct"), QueueUnbindOk)
    client.publish(ask.publish("amq.direct", names[1]), b"unbound")
    client.ask(ask.get(names[1], no_ack=True), BasicGetEmpty)
    client.ask(ask.bind_queue(names[0], "amq.direct"), QueueBindOk)  # under "", as the queue is said
    client.publish(ask.publish("amq.direct", ""), b"no key")
    client.ask(ask.get(names[0], no_ack=True), BasicGetOk)
    client.ask(ask.consume("", "t"), BasicConsumeOk)
    client.ask(BasicCancel("t"), BasicCancelOk)
    client.publish(ask.publish("", names[1]), b"1", b"2")
    assert client.ask(ask.purge_queue(""), QueuePurgeOk).message_count == 2
    client.ask(ask.delete_queue(""), QueueDeleteOk)
    client.send(1, ask.declare_queue(names[1], passive=True))
    assert client.end()[1] == 404


def test_a_passive_declaration_is_remembered_too_and_by_its_channel_alone(broker: Broker) -> None:
    with RawClient(broker.port, channels=2) as client:
        client.ask(ask.declare_queue("q.first", exclusive=True), QueueDeclareOk)
        client.ask(ask.declare_queue("q.second", exclusive=True), QueueDeclareOk)
        client.ask(ask.declare_queue("q.first", passive=True), QueueDeclareOk)
        client.publish(ask.publish("", "q.first"), b"x")
        client.ask(ask.get("", no_ack=True), BasicGetOk)
        client.send(2, ask.get(""))
        assert client.end()[1:3] == (404, "NOT_FOUND - no previously declared queue")


def test_the_answer_counts_ready_messages_and_consumers(client: RawClient) -> None:
    ask.fill(client, "q.counted", b"1", b"2", b"3")
    client.ask(ask.get("q.counted"), BasicGetOk)
    answer = client.ask(ask.declare_queue("q.counted"), QueueDeclareOk)
    assert (answer.message_count, answer.consumer_count) == (2, 0)
    client.ask(ask.purge_queue("q.counted"), QueuePurgeOk)
    client.ask(ask.consume("q.counted", "t"), BasicConsumeOk)
    answer = client.ask(ask.declare_queue("q.counted", passive=True), QueueDeclareOk)
    assert (answer.message_count, answer.consumer_count) == (0, 1)
    client.ask(BasicCancel("t"), BasicCancelOk)
    client.ask(ask.delete_queue("q.counted"), QueueDeleteOk)


def test_an_exclusive_queue_goes_with_its_connection(broker: Broker) -> None:
    with RawClient(broker.port) as owner:
        owner.ask(ask.declare_queue("q.mine", exclusive=True, durable=True), QueueDeclareOk)
        owner.ask(ask.declare_queue("q.mine", exclusive=True), QueueDeclareOk)  # it can not be durable anyhow
        owner.hang_up()
    code = 405
    while code == 405:  # it goes soon
        with RawClient(broker.port) as client:
            client.send(1, ask.declare_queue("q.mine", passive=True))
            _, code, text, _ = client.end()
    assert (code, text) == (404, "NOT_FOUND - no queue 'q.mine' in vhost '/'")


def test_an_auto_delete_queue_goes_with_its_last_consumer(client: RawClient) -> None:
    client.ask(ask.declare_queue("q.auto", auto_delete=True), QueueDeclareOk)
    client.ask(ask.consume("q.auto", "t"), BasicConsumeOk)
    client.ask(BasicCancel("t"), BasicCancelOk)
    client.send(1, ask.declare_queue("q.auto", passive=True))
    assert "NOT_FOUND - no queue 'q.auto' in vhost '/'" in str(client.hear().method)


def test_a_queue_declared_again_right_after_it_went_is_a_new_one(client: RawClient) -> None:
    client.ask(BasicQos(0, 1), BasicQosOk)
    for _ in range(50):
        assert client.ask(ask.declare_queue("q.again", auto_delete=True), QueueDeclareOk).message_count == 0
        client.ask(ask.consume("q.again", "t"), BasicConsumeOk)
        for body in (b"held", b"left"):
            client.publish(ask.publish("", "q.again"), body)
        assert client.hear().body == b"held"
        client.ask(BasicCancel("t"), BasicCancelOk)


def test_messages_that_a_consumer_holds_are_not_counted_with_those_that_a_deleted_queue_had(
    client: RawClient,
) -> None:
    ask.fill(client, "q.held", b"1", b"2", b"3")
    assert client.ask(ask.get("q.held"), BasicGetOk).message_count == 2
    assert client.ask(ask.delete_queue("q.held"), QueueDeleteOk).message_count == 2


def test_what_is_not_there_is_deleted_already(client: RawClient) -> None:
    assert client.ask(ask.delete_queue("q.nope"), QueueDeleteOk).message_count == 0
    assert client.ask(ask.delete_queue("q.nope", if_unused=True, if_empty=True), QueueDeleteOk).message_count == 0


def test_what_was_published_just_before_keeps_a_queue_that_is_deleted_if_empty(broker: Broker) -> None:
    with RawClient(broker.port, channels=30) as client:
        for channel in range(1, 31):
            name = client.ask(ask.declare_queue("", exclusive=True), QueueDeclareOk, channel).queue
            client.publish(ask.publish("", name), b"unconfirmed", channel=channel)
            client.send(channel, ask.delete_queue(name, if_empty=True))
            client.expect_channel_close(
                ReplyCode.PRECONDITION_FAILED, f"queue '{name}' in vhost '/' not empty", channel=channel
            )


def test_deleting_and_purging_count_what_went(client: RawClient) -> None:
    ask.fill(client, "q.full", b"1", b"2", b"3")
    assert client.ask(ask.purge_queue("q.full"), QueuePurgeOk).message_count == 3
    assert client.ask(ask.purge_queue("q.full"), QueuePurgeOk).message_count == 0
    ask.fill(client, "q.full", b"1", b"2")
    assert client.ask(ask.delete_queue("q.full"), QueueDeleteOk).message_count == 2


def test_numbers_are_the_same_whatever_their_width(broker: Broker) -> None:
    declared = ask.declare_queue("q.wide", arguments={"x-max-length": 5})
    frame = sending.method_frame(1, declared)
    assert b"I\0\0\0\x05" in frame
    with RawClient(broker.port) as client:
        for kind, value in ((b"I", b"\0\0\0\x05"), (b"l", b"\0" * 7 + b"\x05"), (b"B", b"\x05"), (b"u", b"\0\x05")):
            payload = frame[7:-1].replace(b"I\0\0\0\x05", kind + value)
            at = payload.index(b"\x0cx-max-length") - 4
            table = payload[at + 4 :]
            payload = payload[:at] + len(table).to_bytes(4, "big") + table
            client.socket.sendall(sending.frame(1, 1, payload))
            client.expect(QueueDeclareOk)
        client.ask(ask.delete_queue("q.wide"), QueueDeleteOk)


def test_what_amqp_declares_is_there_for_native_clients(client: RawClient, native: shardmq.Connection) -> None:
    arguments = {"x-message-ttl": 60_000, "x-ha-policy": "all"}
    client.ask(ask.declare_queue("q.shared", durable=True, arguments=arguments), QueueDeclareOk)
    with native.channel() as channel:
        channel.queue_declare("q.shared", durable=True, arguments={"x-message-ttl": 60_000})
        channel.queue_delete("q.shared")
