"""What follows a publish on its channel sees its effects, natively too: said in one write, and one by one.

tests/amqp/test_order.py has the cases in full, as RabbitMQ answers them.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from shardmq.cmd.run.broker import Broker
from shardmq.message.properties import Properties
from shardmq.message.record import pack, unpack, unpack_raw
from shardmq.message.record_batch import AMQP
from shardmq.protocol.native.operations.basic import (
    BasicCancel,
    BasicConfirm,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicNack,
    BasicPublish,
    BasicQos,
)
from shardmq.protocol.native.operations.connection import Ok, Refused
from shardmq.protocol.native.operations.fields import Operation
from shardmq.protocol.native.operations.topology import QueueDeclare, QueueDelete, QueuePeek, QueuePurge
from tests.gateway.rawclient import RawClient

QUEUE = "ordered"
SHORT_LIVED = Properties(expiration="0")
REQUEST = 1000
"""Requests of the cases; each takes its place in what is said."""

CONSUME = BasicConsume(REQUEST, 1, QUEUE, "c")
ONE_AT_A_TIME = BasicConsume(REQUEST, 1, QUEUE, "c", prefetch=1)
CANCEL = BasicCancel(REQUEST, 1, "c")
GET = BasicGet(REQUEST, 1, QUEUE, auto_ack=True)
HOLD = BasicGet(REQUEST, 1, QUEUE)
COUNT = QueueDeclare(REQUEST, 1, QUEUE, passive=True)
PURGE = QueuePurge(REQUEST, 1, QUEUE)
PEEK = QueuePeek(REQUEST, 1, QUEUE, 0, 10)
DELETE_IF_EMPTY = QueueDelete(REQUEST, 1, QUEUE, if_empty=True)
REQUEUE = BasicNack(1, [(1, 1)])


def publish(bodies: str, properties: Properties | None = None) -> BasicPublish:
    return BasicPublish(REQUEST, 1, "", QUEUE, 1, len(bodies), b"".join([pack(properties, b.encode()) for b in bodies]))


CASES: dict[str, tuple[dict[str, Any], Sequence[Operation], Sequence[Operation], Sequence[str]]] = {
    "publish and get beside an idle consumer": (
        {},
        [CONSUME],
        [publish("a"), GET],
        ["c a", "None"],
    ),
    "ten publishes and cancel": (
        {},
        [CONSUME],
        [*map(publish, "0123456789"), CANCEL, COUNT],
        [*[f"c {n}" for n in range(10)], "None", "0 0"],
    ),
    "publishes and a larger prefetch, then cancel": (
        {},
        [ONE_AT_A_TIME],
        [publish("abc"), BasicQos(REQUEST, 1, "c", 2), CANCEL, COUNT],
        ["c a", "None", "c b", "None", "1 0"],
    ),
    "publishes and a smaller prefetch": (
        {},
        [CONSUME],
        [publish("ab"), BasicQos(REQUEST, 1, "c", 1), COUNT],
        ["c a", "c b", "None", "0 1"],
    ),
    "a time of 0": ({}, [], [publish("a", SHORT_LIVED), GET, COUNT], ["None", "0 0"]),
    "the first of three gives way": ({"x-max-length": 2}, [], [publish("abc"), GET, PEEK], ["b", "c"]),
    "what returns to a full queue gives way": (
        {"x-max-length": 1},
        [publish("a"), HOLD, publish("b")],
        [REQUEUE, GET, COUNT],
        ["b", "0 0"],
    ),
    "publish and purge beside an idle consumer": ({}, [CONSUME], [publish("a"), PURGE], ["c a", "0"]),
    "publish and delete if empty": ({}, [], [publish("a"), DELETE_IF_EMPTY], ["refused"]),
    "publish and one more consumer": (
        {},
        [CONSUME],
        [publish("ab"), BasicConsume(REQUEST, 1, QUEUE, "d"), COUNT],
        ["c a", "c b", "d", "0 2"],
    ),
}


def texts(flags: int, records: bytes, count: int) -> list[str]:
    if flags & AMQP:
        return [body.decode() for _, body in unpack_raw(records, count)]
    return [record.body.decode() for record in unpack(records, count)]


def words(said: Operation | None) -> list[str]:
    """What is heard, in short."""
    match said:
        case BasicDeliver():
            return [f"{said.consumer} {text}" for text in texts(said.flags, said.records, said.count)]
        case BasicConfirm():
            return []
        case Refused():
            return ["refused"]
        case Ok(result={"messages": messages, "consumers": consumers}):
            return [f"{messages} {consumers}"]
        case Ok(result={"records": records, "count": count, "flags": flags}):
            return texts(flags, records, count)
        case Ok(result={"consumer": tag}):
            return [tag]
        case Ok(result={"messages": messages}):
            return [str(messages)]
        case Ok(result=[*tables]):
            return [text for table in tables for text in texts(table["flags"], table["records"], table["count"])]
        case Ok():
            return ["None"]
    raise AssertionError(said)


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker).open() as client:
        yield client


def set_up(client: RawClient, arguments: dict[str, Any], before: Sequence[Operation]) -> None:
    client.ask(QueueDelete, QUEUE)
    client.ask(QueueDeclare, QUEUE, True, arguments)
    for operation in before:
        client.send(operation)
        client.ask(QueueDeclare, QUEUE, passive=True)
    for _ in before:
        client.receive()
    assert not client.inbox


@pytest.mark.parametrize("is_one_write", [True, False], ids=["one write", "one by one"])
@pytest.mark.parametrize("case", CASES)
def test_what_follows_a_publish_sees_its_effects(client: RawClient, case: str, is_one_write: bool) -> None:
    arguments, before, said, heard = CASES[case]
    client.ask(QueueDeclare, QUEUE, True, arguments)
    set_up(client, arguments, before)
    if is_one_write:
        client.send(*said)
    else:
        for operation in said:
            client.send(operation)
    came: list[str] = []
    while len(came) < len(heard):
        came += words(client.receive())
    client.ask(QueueDeclare, "other", True)
    came += [word for more in client.inbox for word in words(more)]
    assert came == list(heard)
    client.ask(QueueDelete, QUEUE)
