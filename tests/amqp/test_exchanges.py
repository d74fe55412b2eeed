"""Exchanges and bindings over AMQP: declared, found, bound, unbound, gone."""

from collections.abc import Iterator
from typing import Any

import pytest
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.protocol.amqp.methods.topology import (
    ExchangeBindOk,
    ExchangeDeclareOk,
    ExchangeDeleteOk,
    ExchangeUnbindOk,
    QueueBindOk,
    QueueUnbindOk,
)
from shardmq.topology.entities import PARTITION_EXCHANGE
from shardmq.topology.exchanges import TYPES
from tests.amqp import asking as ask
from tests.gateway.amqp.rawclient import RawClient


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.port) as client:
        yield client


def bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    """What is in a queue, taken out."""
    taken = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        taken.append(got[2])
    return taken


def own_queue(channel: BlockingChannel) -> str:
    """A queue of this test's."""
    return str(channel.queue_declare("", exclusive=True).method.queue)


@pytest.mark.parametrize("kind", sorted(set(TYPES) - {PARTITION_EXCHANGE}))
def test_every_type_is_declared_found_and_deleted(client: RawClient, kind: str) -> None:
    name = f"x.{kind}"
    client.ask(ask.declare_exchange(name, kind, durable=True, arguments={"x-whatever": [1]}), ExchangeDeclareOk)
    client.ask(ask.declare_exchange(name, kind, durable=True), ExchangeDeclareOk)
    client.ask(ask.declare_exchange(name, passive=True), ExchangeDeclareOk)  # whatever type is said
    client.ask(ask.delete_exchange(name), ExchangeDeleteOk)
    client.send(1, ask.declare_exchange(name, passive=True))
    assert client.end()[1] == 404


def test_exchanges_of_topics_are_declared_with_their_topics_alone(client: RawClient) -> None:
    client.send(1, ask.declare_exchange("x.partition", PARTITION_EXCHANGE, durable=True))
    assert client.end()[1] == 406


@pytest.mark.parametrize(
    ("name", "kind"),
    [("amq.direct", "direct"), ("amq.fanout", "fanout"), ("amq.topic", "topic"), ("amq.headers", "headers")],
)
def test_predeclared_exchanges_may_be_declared_as_they_are(client: RawClient, name: str, kind: str) -> None:
    client.ask(ask.declare_exchange(name, kind, durable=True), ExchangeDeclareOk)


def test_what_is_said_with_nowait_has_no_answer(client: RawClient) -> None:
    said = [
        ask.declare_exchange("x.quiet", nowait=True),
        ask.declare_exchange("x.quiet2", "fanout", nowait=True),
        ask.bind_exchange("x.quiet2", "x.quiet", "k", nowait=True),
        ask.declare_queue("x.quiet", nowait=True),
        ask.bind_queue("x.quiet", "x.quiet2", "", nowait=True),
        ask.unbind_exchange("x.quiet2", "x.quiet", "k", nowait=True),
        ask.delete_exchange("x.quiet", nowait=True),
        ask.delete_exchange("x.quiet2", nowait=True),
        ask.purge_queue("x.quiet", nowait=True),
        ask.delete_queue("x.quiet", nowait=True),
        ask.delete_queue("x.quiet", nowait=True),
    ]
    assert ask.answers(client, *said) == []


def test_what_is_not_there_may_be_deleted_and_unbound(client: RawClient) -> None:
    client.ask(ask.delete_exchange("x.nope"), ExchangeDeleteOk)
    client.ask(ask.unbind_exchange("x.nope", "amq.direct", "k"), ExchangeUnbindOk)
    client.ask(ask.unbind_exchange("amq.fanout", "amq.direct", "k"), ExchangeUnbindOk)
    client.ask(ask.unbind_queue("x.nope", "amq.direct", "k"), QueueUnbindOk)
    client.ask(ask.unbind_queue("x.nope", "x.nope", "k"), QueueUnbindOk)
    client.send(1, ask.declare_queue("x.q", exclusive=True))
    client.hear()
    client.ask(ask.unbind_queue("x.q", "x.nope", "k"), QueueUnbindOk)
    client.ask(ask.unbind_queue("x.q", "amq.direct", "k"), QueueUnbindOk)


def test_an_exchange_is_deleted_if_unused_once_nothing_is_bound_to_it(client: RawClient) -> None:
    ask.answers(client, ask.declare_exchange("x.used"), ask.declare_queue("x.q", exclusive=True))
    client.ask(ask.bind_queue("x.q", "x.used", "k"), QueueBindOk)
    client.ask(ask.unbind_queue("x.q", "x.used", "k"), QueueUnbindOk)
    client.ask(ask.delete_exchange("x.used", if_unused=True), ExchangeDeleteOk)


def test_an_auto_delete_exchange_goes_with_its_last_binding(client: RawClient) -> None:
    ask.answers(client, ask.declare_exchange("x.auto", auto_delete=True), ask.declare_queue("x.q", exclusive=True))
    client.ask(ask.bind_queue("x.q", "x.auto", "k"), QueueBindOk)
    client.ask(ask.unbind_queue("x.q", "x.auto", "k"), QueueUnbindOk)
    client.send(1, ask.declare_exchange("x.auto", passive=True))
    assert client.end()[1] == 404


def test_line_breaks_in_names_are_left_out(client: RawClient) -> None:
    client.ask(ask.declare_exchange("x.bro\r\nken"), ExchangeDeclareOk)
    client.ask(ask.declare_exchange("x.broken", passive=True), ExchangeDeclareOk)
    client.ask(ask.delete_exchange("x.bro\nken"), ExchangeDeleteOk)


def test_binding_twice_is_as_once(channel: BlockingChannel) -> None:
    queue = own_queue(channel)
    for _ in range(2):
        channel.queue_bind(queue, "amq.direct", "x.twice")
    channel.basic_publish("amq.direct", "x.twice", b"once")
    channel.queue_unbind(queue, "amq.direct", "x.twice")
    channel.basic_publish("amq.direct", "x.twice", b"never")
    assert bodies(channel, queue) == [b"once"]


def test_exchanges_bound_to_exchanges_pass_messages_on(channel: BlockingChannel, client: RawClient) -> None:
    queue = own_queue(channel)
    channel.exchange_declare("x.outer", "topic", auto_delete=True)
    channel.exchange_declare("x.inner", "fanout", internal=True, auto_delete=True)
    client.ask(ask.bind_exchange("x.inner", "x.outer", "a.#"), ExchangeBindOk)
    channel.queue_bind(queue, "x.inner", "")
    channel.basic_publish("x.outer", "a.b", b"passed on")
    channel.basic_publish("x.outer", "b", b"not meant")
    assert bodies(channel, queue) == [b"passed on"]


@pytest.mark.parametrize(
    ("key", "matches", "misses"),
    [("x.a.*b", ["x.a.*b"], ["x.a.bb", "x.a.b"]), ("x.##", ["x.##"], ["x.a", "x"]), ("x.*", ["x.a"], ["x.a.b"])],
)
def test_wildcards_inside_words_stand_for_themselves(
    channel: BlockingChannel, key: str, matches: list[str], misses: list[str]
) -> None:
    queue = own_queue(channel)
    channel.queue_bind(queue, "amq.topic", key)
    for published in (*matches, *misses):
        channel.basic_publish("amq.topic", published, published.encode())
    assert bodies(channel, queue) == [published.encode() for published in matches]
    channel.queue_unbind(queue, "amq.topic", key)
    channel.basic_publish("amq.topic", matches[0], b"unbound")
    assert bodies(channel, queue) == []


def test_headers_are_matched_by_arguments_of_any_type(channel: BlockingChannel) -> None:
    queue = own_queue(channel)
    wanted: dict[str, Any] = {"x-match": "all", "n": 7, "s": "ä", "b": True, "l": [1, "two"], "t": {"deep": 1}}
    channel.queue_bind(queue, "amq.headers", "", wanted)
    headers = {name: value for name, value in wanted.items() if name != "x-match"}
    channel.basic_publish("amq.headers", "", b"all", BasicProperties(headers=headers))
    channel.basic_publish("amq.headers", "", b"other", BasicProperties(headers={**headers, "n": 8}))
    assert bodies(channel, queue) == [b"all"]
    channel.queue_unbind(queue, "amq.headers", "", wanted)
    channel.basic_publish("amq.headers", "", b"unbound", BasicProperties(headers=headers))
    assert bodies(channel, queue) == []


def test_an_alternate_exchange_takes_what_leads_nowhere(channel: BlockingChannel) -> None:
    queue = own_queue(channel)
    channel.exchange_declare("x.spare", "fanout", auto_delete=True)
    channel.queue_bind(queue, "x.spare", "")
    channel.exchange_declare("x.main", "direct", arguments={"alternate-exchange": "x.spare", "x-else": 1})
    channel.basic_publish("x.main", "nobody", b"spare")
    assert bodies(channel, queue) == [b"spare"]
    channel.exchange_delete("x.main")


def test_what_amqp_declares_is_there_for_native_clients(channel: BlockingChannel, native: shardmq.Connection) -> None:
    channel.exchange_declare("x.shared", "topic", durable=True, arguments={"x-means": "nothing"})
    with native.channel() as other:
        other.exchange_declare("x.shared", "topic", durable=True)
        other.exchange_delete("x.shared")
