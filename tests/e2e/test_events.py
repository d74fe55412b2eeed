"""The event exchange: what two gateways, clients and the topology do, told once each with RabbitMQ's names."""

from collections.abc import Iterator
from typing import Any

import pika
import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker

EVENTS = "amq.rabbitmq.event"

RABBITMQ_FACTS = {
    "binding.created": "vhost arguments routing_key destination_kind destination_name source_kind source_name "
    "user_who_performed_action",
    "binding.deleted": "vhost arguments routing_key destination_kind destination_name source_kind source_name "
    "user_who_performed_action",
    "channel.closed": "pid user_who_performed_action",
    "channel.created": "pid name connection number user vhost user_who_performed_action",
    "connection.closed": "pid name node client_properties user_provided_name",
    "connection.created": "pid name node type user vhost protocol peer_host peer_port ssl connected_at "
    "client_properties user_provided_name auth_mechanism host port channel_max frame_max timeout ssl_protocol "
    "ssl_key_exchange ssl_cipher ssl_hash peer_cert_subject peer_cert_issuer peer_cert_validity "
    "user_who_performed_action",
    "consumer.created": "consumer_tag exclusive ack_required channel queue vhost prefetch_count arguments "
    "user_who_performed_action",
    "consumer.deleted": "consumer_tag channel queue vhost user_who_performed_action",
    "exchange.created": "name vhost type durable auto_delete internal arguments user_who_performed_action",
    "exchange.deleted": "name vhost user_who_performed_action",
    "queue.created": "name vhost durable auto_delete exclusive owner_pid arguments user_who_performed_action",
    "queue.deleted": "name vhost user_who_performed_action",
    "user.authentication.failure": "name error peer_host connection_type auth_mechanism host peer_port protocol ssl",
    "user.authentication.success": "name peer_host connection_type auth_mechanism host peer_port protocol ssl",
}
"""Headers of RabbitMQ 3.10.8's events, recorded from it, that events here have, too; all have timestamp_in_ms."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with two gateways."""
    broker = Broker(tmp_path_factory.mktemp("pair") / "data", shards=2, gateways=2)
    try:
        yield broker.start()
    finally:
        broker.close()
        print(broker.last_words())


@pytest.fixture
def channel(pair: Broker) -> Iterator[shardmq.Channel]:
    with shardmq.connect(pair.url) as connection:
        yield connection.channel()


def listening(channel: shardmq.Channel, key: str = "#") -> str:
    queue = channel.queue_declare("", exclusive=True).queue
    channel.queue_bind(queue, EVENTS, key)
    return queue


def told(channel: shardmq.Channel, queue: str, last: str) -> list[tuple[str, dict[str, Any]]]:
    """What a queue has been told, up to the first event of that name, but that somebody consumes it here."""
    events = []
    for message in channel.consume(queue, auto_ack=True):
        assert message.properties is not None
        assert message.properties.headers is not None
        assert message.body == b""
        if message.properties.headers.get("queue") != queue:
            events.append((message.routing_key, message.properties.headers))
        if message.routing_key == last:
            return events
    raise AssertionError(events)


def connected(broker: Broker) -> pika.BlockingConnection:
    given = {"connection_name": "mine"}
    return pika.BlockingConnection(pika.ConnectionParameters(broker.host, broker.port, client_properties=given))


def test_what_amqp_clients_do_is_told_with_rabbitmqs_headers(pair: Broker, channel: shardmq.Channel) -> None:
    queue = listening(channel)
    with pytest.raises(errors.AuthenticationFailed):
        shardmq.connect(pair.url.replace("guest:guest", "nobody:x"), recovery=None)
    connection = connected(pair)
    doing = connection.channel()
    doing.queue_declare("evq", durable=True, arguments={"x-max-length": 5})
    doing.exchange_declare("evx", "topic", durable=True)
    doing.queue_bind("evq", "evx", "k.#")
    doing.basic_qos(prefetch_count=7)
    doing.basic_consume("evq", lambda *_: None, consumer_tag="ct", arguments={"x-priority": 3})
    doing.basic_cancel("ct")
    doing.queue_unbind("evq", "evx", "k.#")
    doing.queue_delete("evq")
    doing.exchange_delete("evx")
    connection.close()
    events = told(channel, queue, "connection.closed")
    assert [name for name, _ in events][-2:] == ["channel.closed", "connection.closed"]
    by_name = dict(events)
    assert set(by_name) == set(RABBITMQ_FACTS)
    for name, facts in RABBITMQ_FACTS.items():
        assert {*facts.split(), "timestamp_in_ms"} - by_name[name].keys() == set(), name
    assert by_name["queue.created"]["arguments"] == {"x-max-length": 5}
    assert (by_name["consumer.created"]["queue"], by_name["consumer.created"]["prefetch_count"]) == ("evq", 7)
    assert by_name["consumer.created"]["arguments"] == {"x-priority": 3}
    created, failed = by_name["connection.created"], by_name["user.authentication.failure"]
    assert (created["host"], created["port"], created["auth_mechanism"]) == (pair.host, pair.port, "PLAIN")
    assert (created["channel_max"], created["frame_max"], created["timeout"]) == (2047, 131_072, 60)
    assert (failed["name"], failed["protocol"], failed["auth_mechanism"]) == ("nobody", "shardmq", "PLAIN")
    assert by_name["user.authentication.success"]["peer_port"] == created["peer_port"]
    assert by_name["connection.closed"]["user_provided_name"] == "mine"
    assert by_name["connection.closed"]["pid"] == by_name["connection.created"]["pid"]


def test_each_change_is_told_once_whichever_gateway_was_asked(pair: Broker, channel: shardmq.Channel) -> None:
    queue = listening(channel, "queue.created")
    names = [f"once-{number}" for number in range(8)]
    for name in names:
        with shardmq.connect(pair.url) as connection:
            connection.channel().queue_declare(name)
    with shardmq.connect(pair.url) as connection:
        connection.channel().queue_declare("last")
    found = []
    for message in channel.consume(queue, auto_ack=True):
        assert message.properties is not None
        assert message.properties.headers is not None
        found.append(message.properties.headers["name"])
        if found[-1] == "last":
            break
    assert found == [*names, "last"]


def test_what_administrators_change_is_told(pair: Broker, channel: shardmq.Channel) -> None:
    queue = listening(channel)
    with shardmq.connect(pair.url) as admin:
        admin.vhost_put("told", "for events")
        admin.user_put("teller", "secret", tags=["management"])
        admin.permission_put("teller", "told", "a", "b", "c")
        admin.permission_delete("teller", "told")
        admin.user_delete("teller")
        admin.vhost_delete("told")
    events = [event for event in told(channel, queue, "vhost.deleted") if not event[0].startswith(NOISE)]
    assert [name for name, _ in events] == [
        "vhost.created",
        "user.created",
        "user.tags.set",
        "permission.created",
        "permission.deleted",
        "user.deleted",
        "vhost.deleted",
    ]
    assert "secret" not in repr(events)
    assert events[3][1]["configure"] == "a"


def test_changes_tell_who_made_them_and_those_of_the_broker_itself_are_rabbitmqs_internal_user(
    pair: Broker, channel: shardmq.Channel
) -> None:
    with shardmq.connect(pair.url) as admin:
        admin.user_put("anna", "secret", tags=["administrator"])
        admin.permission_put("anna", "/", ".*", ".*", ".*")
    queue = listening(channel)
    with shardmq.connect(pair.url.replace("guest:guest", "anna:secret")) as connection:
        annas = connection.channel()
        annas.queue_declare("hers")
        annas.queue_declare("gone with her", exclusive=True)
        annas.exchange_declare("hers", "fanout", auto_delete=True)
        annas.queue_bind("hers", "hers", "")
        annas.queue_unbind("hers", "hers", "")
        annas.exchange_declare("last", "fanout", auto_delete=True)
        annas.queue_bind("hers", "last", "")
        annas.queue_delete("hers")
        connection.policy_put("/", "hers", {"pattern": "^x", "definition": {"max-length": 1}})
        connection.policy_delete("/", "hers")
        annas.queue_declare("unused", auto_delete=True)
        consumer = annas.basic_consume("unused", lambda _: None)
        annas.basic_cancel(consumer)
    own = {
        ("binding.deleted", "last"),
        ("exchange.deleted", "last"),
        ("queue.deleted", "gone with her"),
        ("queue.deleted", "unused"),
    }
    performed: dict[tuple[str, str], str] = {}
    for message in channel.consume(queue, auto_ack=True):
        assert message.properties is not None
        assert message.properties.headers is not None
        headers = message.properties.headers
        if not message.routing_key.startswith(("binding", "exchange", "queue", "policy")):
            continue
        name = headers.get("name", headers.get("source_name"))
        performed[message.routing_key, name] = headers["user_who_performed_action"]
        if own <= performed.keys():
            break
    assert {made for made, user in performed.items() if user == "rmq-internal"} == own
    assert {made for made, user in performed.items() if user == "anna"} == {
        ("queue.created", "hers"),
        ("queue.created", "gone with her"),
        ("queue.created", "unused"),
        ("queue.deleted", "hers"),
        ("exchange.created", "hers"),
        ("exchange.deleted", "hers"),
        ("exchange.created", "last"),
        ("binding.created", "hers"),
        ("binding.created", "last"),
        ("binding.deleted", "hers"),
        ("policy.set", "hers"),
        ("policy.cleared", "hers"),
    }


NOISE = ("binding", "channel", "connection", "consumer", "exchange", "queue", "user.authentication")
"""What else happens meanwhile."""


def test_nobody_publishes_to_the_event_exchange_but_the_broker(channel: shardmq.Channel) -> None:
    with pytest.raises(errors.AccessRefused):
        channel.basic_publish(EVENTS, "queue.created", b"forged")


def test_a_queue_that_refuses_events_holds_nothing_up(channel: shardmq.Channel) -> None:
    channel.queue_declare("full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.queue_bind("full", EVENTS, "#")
    for number in range(20):
        channel.queue_declare(f"beside-{number}")
    assert channel.queue_declare("full", passive=True).messages == 1
    channel.queue_delete("full")
