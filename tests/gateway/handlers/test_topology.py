"""Declarations with all that may be said in them, peeking, recovering. Real processes."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from shardmq.cmd.run.broker import Broker
from shardmq.message.record import pack_many
from shardmq.protocol.native.operations.basic import (
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicPublish,
    BasicRecover,
)
from shardmq.protocol.native.operations.topology import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePeek,
    QueuePurge,
)
from tests.gateway.rawclient import Denied, RawClient


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker).open() as client:
        yield client


def publish(client: RawClient, key: str, *bodies: bytes, exchange: str = "") -> None:
    client.send(BasicPublish(10_000, 1, exchange, key, 0, len(bodies), pack_many(bodies)))
    client.receive()


def test_the_server_makes_up_names_that_are_its_own(client: RawClient) -> None:
    names = {client.ask(QueueDeclare, "", exclusive=True)["queue"] for _ in range(3)}
    assert len(names) == 3
    assert all(re.fullmatch(r"amq\.gen-[A-Za-z0-9_-]{22}", name) for name in names)
    with pytest.raises(Denied, match="amq"):
        client.ask(QueueDeclare, "amq.gen-mine")


def test_asking_passively_counts_and_makes_nothing(client: RawClient) -> None:
    client.ask(QueueDeclare, "here", exclusive=True)
    publish(client, "here", b"1", b"2")
    assert client.ask(QueueDeclare, "here", passive=True) == {"queue": "here", "messages": 2, "consumers": 0}
    client.ask(ExchangeDeclare, "amq.direct", "no matter which", passive=True)
    for kind, fields in ((QueueDeclare, ("gone",)), (ExchangeDeclare, ("gone", "direct")), (QueueDeclare, ("",))):
        for _ in range(2):
            with pytest.raises(Denied) as denied:
                client.ask(kind, *fields, passive=True)
            assert denied.value.code == 404


def test_deleting_may_depend_on_use_and_emptiness(client: RawClient) -> None:
    client.ask(QueueDeclare, "full", exclusive=True)
    publish(client, "full", b"1")
    client.ask(QueueBind, "full", "amq.fanout", "")
    client.ask(ExchangeDeclare, "used", "direct")
    client.ask(QueueBind, "full", "used", "k")
    for kind, name, named in ((QueueDelete, "full", {"if_empty": True}), (ExchangeDelete, "used", {"if_unused": True})):
        with pytest.raises(Denied) as denied:
            client.ask(kind, name, **named)
        assert denied.value.code == 406
    client.ask(BasicConsume, "full", "c")
    with pytest.raises(Denied) as denied:
        client.ask(QueueDelete, "full", if_unused=True)
    assert denied.value.code == 406
    assert client.ask(QueueDelete, "full") == {"messages": 0}, "what a consumer holds is not counted"
    client.ask(ExchangeDelete, "used", if_unused=True)


def test_exchanges_are_bound_to_one_another_and_unbound(client: RawClient) -> None:
    client.ask(ExchangeDeclare, "first", "topic")
    client.ask(ExchangeDeclare, "second", "fanout", internal=True)
    client.ask(QueueDeclare, "end", exclusive=True)
    client.ask(ExchangeBind, "second", "first", "a.#")
    client.ask(ExchangeBind, "second", "first", "a.#")
    client.ask(QueueBind, "end", "second", "")
    publish(client, "a.b", b"1", exchange="first")
    assert client.ask(QueuePurge, "end") == {"messages": 1}
    client.ask(ExchangeUnbind, "second", "first", "a.#")
    publish(client, "a.b", b"2", exchange="first")
    assert client.ask(QueuePurge, "end") == {"messages": 0}
    with pytest.raises(Denied) as denied:
        client.ask(ExchangeBind, "nowhere", "first", "k")
    assert denied.value.code == 404
    for exchange in ("first", "second"):
        client.ask(ExchangeDelete, exchange)


def test_peeking_changes_nothing(client: RawClient) -> None:
    client.ask(QueueDeclare, "seen", exclusive=True)
    publish(client, "seen", *(b"%d" % number for number in range(5)))
    for _ in range(2):
        tables = client.ask(QueuePeek, "seen", 1, 3)
        assert b"".join(table["records"] for table in tables) == pack_many([b"1", b"2", b"3"])
        assert {(table["consumer"], table["tag"], table["redelivered"]) for table in tables} == {("", 0, False)}
    assert client.ask(QueuePeek, "seen", 5, 1) == []
    assert client.ask(QueueDeclare, "seen", passive=True)["messages"] == 5
    assert client.ask(BasicGet, "seen")["redelivered"] is False


def test_recovering_delivers_again_what_is_unacked(client: RawClient) -> None:
    client.ask(QueueDeclare, "back", exclusive=True)
    publish(client, "back", b"1", b"2")
    assert client.ask(BasicGet, "back")["records"] == pack_many([b"1"])
    assert client.ask(BasicGet, "back")["records"] == pack_many([b"2"])
    client.ask(BasicRecover)
    again = client.ask(BasicGet, "back")
    assert (again["records"], again["redelivered"]) == (pack_many([b"1"]), True)


CONSUMERS: list[tuple[dict[str, Any], int]] = [
    ({"arguments": {"x-colour": 1}}, 406),
    ({"arguments": {"x-priority": "high"}}, 406),
    ({"arguments": {"x-consumer-timeout": 0}}, 406),
]


@pytest.mark.parametrize(("named", "code"), CONSUMERS)
def test_a_consumers_arguments_are_checked(client: RawClient, named: dict[str, Any], code: int) -> None:
    queue = client.ask(QueueDeclare, "", exclusive=True)["queue"]
    with pytest.raises(Denied, match="x-") as denied:
        client.ask(BasicConsume, queue, **named)
    assert denied.value.code == code


def test_an_exclusive_consumer_is_alone(client: RawClient) -> None:
    client.ask(QueueDeclare, "alone", exclusive=True)
    client.ask(BasicConsume, "alone", "only", exclusive=True)
    with pytest.raises(Denied) as denied:
        client.ask(BasicConsume, "alone", "second")
    assert denied.value.code == 403
    client.send(BasicPublish(10_000, 1, "", "alone", 0, 1, pack_many([b"1"])))
    said = [client.receive(), client.receive()]
    assert [delivery.consumer for delivery in said if isinstance(delivery, BasicDeliver)] == ["only"]
