"""What follows a publish on its channel sees its effects: deliveries, length limits, expiry.

Every case is said in one write, so that all of it reaches its shard in one pass, and method by method; and once more
where messages go to a consumer on their way to the shard. RabbitMQ 3.10
says the same in all of them but for two things: basic.get and queue.purge may be answered before the deliveries that
went out first, and what queue.declare counts may be a little old.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from shardmq.cmd.run.broker import Broker
from shardmq.protocol.amqp import encoder as sending
from shardmq.protocol.amqp.methods.basic import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicQos,
    BasicQosOk,
)
from shardmq.protocol.amqp.methods.connection import ChannelClose, ChannelCloseOk, ChannelOpen, ChannelOpenOk
from shardmq.protocol.amqp.methods.fields import Method
from shardmq.protocol.amqp.methods.topology import QueueDeclareOk, QueueDeleteOk, QueuePurgeOk
from shardmq.protocol.amqp.methods.transaction import ConfirmSelect, ConfirmSelectOk
from tests.amqp import asking as ask
from tests.gateway.amqp.rawclient import NO_PROPERTIES, RawClient, Said

QUEUE = "q"
AT_ONCE = b"\x01\x00\x010"
"""Properties: expiration "0"."""

TURNS = 4
FORWARDED = 3
"""The turn in which messages are forwarded, where they may be."""


@dataclass
class Publish:
    """Messages published to the queue, one by one."""

    bodies: Sequence[str]
    properties: bytes = NO_PROPERTIES


def consume(tag: str, *, no_ack: bool = False, priority: int = 0) -> Method:
    return ask.consume(QUEUE, tag, no_ack=no_ack, arguments={"x-priority": priority} if priority else {})


def nack(tag: int) -> Method:
    return BasicNack(tag, requeue=True)


def acknowledge(tag: int) -> Method:
    return BasicAck(tag)


GET = ask.get(QUEUE, no_ack=True)
HOLD = ask.get(QUEUE)
COUNT = ask.declare_queue(QUEUE, passive=True)
PURGE = ask.purge_queue(QUEUE)
DELETE = ask.delete_queue(QUEUE)
DELETE_IF_EMPTY = ask.delete_queue(QUEUE, if_empty=True)
CANCEL = BasicCancel("c")
Step = Method | Publish


@dataclass
class Case:
    """What is said, after what, to a queue with which arguments; and what is heard of it."""

    name: str
    before: Sequence[Step]
    said: Sequence[Step]
    heard: Sequence[str]
    arguments: dict[str, Any] = field(default_factory=dict)


TEN = "0123456789"
PREFETCH_1 = BasicQos(0, 1, is_global=False)

CASES = [
    Case("publish and get beside an idle consumer", [consume("c")], [Publish("a"), GET], ["c a", "empty"]),
    Case(
        "publish and get beside a consumer with room for one",
        [PREFETCH_1, consume("c")],
        [Publish("abc"), GET, GET],
        ["c a", "got b 1", "got c 0"],
    ),
    Case("ten publishes and cancel", [consume("c")], [Publish(TEN), CANCEL], [*[f"c {n}" for n in TEN], "cancelled"]),
    Case(
        "ten publishes and cancel, no-ack",
        [consume("c", no_ack=True)],
        [Publish(TEN), CANCEL, GET],
        [*[f"c {n}" for n in TEN], "cancelled", "empty"],
    ),
    Case(
        "ten publishes and cancel of a consumer with room for one",
        [PREFETCH_1, consume("c")],
        [Publish(TEN), CANCEL, GET],
        ["c 0", "cancelled", "got 1 8"],
    ),
    Case("cancel and ten publishes", [consume("c")], [CANCEL, Publish(TEN), COUNT], ["cancelled", "counted 10 0"]),
    Case("a time of 0", [], [Publish("a", AT_ONCE), GET], ["empty"]),
    Case("a time of 0, counted", [], [Publish("a", AT_ONCE), COUNT], ["counted 0 0"]),
    Case("a time of 0 beside an idle consumer", [consume("c")], [Publish("a", AT_ONCE), GET], ["c a", "empty"]),
    Case("the queue's time of 0", [], [Publish("ab"), GET, COUNT], ["empty", "counted 0 0"], {"x-message-ttl": 0}),
    Case(
        "room is there before a time of 0 begins",
        [PREFETCH_1, consume("c"), Publish("a")],
        [acknowledge(1), Publish("b", AT_ONCE), COUNT],
        ["c b", "counted 0 1"],
    ),
    Case(
        "the first of three gives way",
        [],
        [Publish("abc"), GET, COUNT],
        ["got b 1", "counted 1 0"],
        {"x-max-length": 2},
    ),
    Case(
        "bytes give way",
        [],
        [Publish(["aa", "bb", "cc"]), GET, COUNT],
        ["got bb 1", "counted 1 0"],
        {"x-max-length-bytes": 4},
    ),
    Case(
        "what is taken back by a full queue gives way",
        [Publish("a"), HOLD, Publish("b")],
        [nack(1), GET, COUNT],
        ["got b 0", "counted 0 0"],
        {"x-max-length": 1},
    ),
    Case(
        "what is taken back by a full queue gives way before its consumer is served",
        [PREFETCH_1, consume("c"), Publish("ab")],
        [nack(1), COUNT],
        ["c b", "counted 0 1"],
        {"x-max-length": 1},
    ),
    Case(
        "what has room does not give way to what comes later",
        [PREFETCH_1, consume("c"), Publish("ab")],
        [acknowledge(1), Publish("c"), COUNT],
        ["c b", "counted 1 1"],
        {"x-max-length": 1},
    ),
    Case(
        "publish and nack",
        [Publish("a"), HOLD],
        [Publish("b"), nack(1), GET],
        ["got b 0"],
        {"x-max-length": 1},
    ),
    Case(
        "nack and publish",
        [Publish("a"), HOLD],
        [nack(1), Publish("b"), GET],
        ["got b 0"],
        {"x-max-length": 1},
    ),
    Case(
        "of equal times, with priorities",
        [],
        [Publish("abc"), GET, COUNT],
        ["got b 1", "counted 1 0"],
        {"x-max-length": 2, "x-max-priority": 3},
    ),
    Case("publish and purge", [], [Publish("abc"), PURGE, COUNT], ["purged 3", "counted 0 0"]),
    Case("publish and purge beside a consumer", [consume("c")], [Publish("ab"), PURGE], ["c a", "c b", "purged 0"]),
    Case("publish and purge of a full queue", [], [Publish("abc"), PURGE], ["purged 2"], {"x-max-length": 2}),
    Case("publish and count", [], [Publish("abc"), COUNT], ["counted 3 0"]),
    Case("publish and count beside an idle consumer", [consume("c")], [Publish("a"), COUNT], ["c a", "counted 0 1"]),
    Case("publish and delete", [], [Publish("abc"), DELETE], ["deleted 3"]),
    Case("publish and delete of a full queue", [], [Publish("abc"), DELETE], ["deleted 2"], {"x-max-length": 2}),
    Case("publish and delete if empty", [], [Publish("a"), DELETE_IF_EMPTY], ["closed 406"]),
    Case("nack and delete if empty", [Publish("a"), HOLD], [nack(1), DELETE_IF_EMPTY], ["closed 406"]),
    Case(
        "publish of what expires at once and delete if empty",
        [],
        [Publish("a", AT_ONCE), DELETE_IF_EMPTY],
        ["deleted 0"],
    ),
    Case(
        "who consumes later gets what is left",
        [PREFETCH_1, consume("c")],
        [Publish("abc"), consume("d"), COUNT],
        ["c a", "consuming", "d b", "counted 1 2"],
    ),
    Case(
        "who consumes later at a higher priority gets what is left",
        [consume("c")],
        [Publish("abc"), consume("d", priority=9), COUNT],
        ["c a", "c b", "c c", "consuming", "counted 0 2"],
    ),
    Case(
        "who consumes from a full queue gets what is left",
        [],
        [Publish("abc"), consume("c"), COUNT],
        ["consuming", "c b", "c c", "counted 0 1"],
        {"x-max-length": 2},
    ),
]


def frames(step: Step) -> bytes:
    if isinstance(step, Publish):
        method = sending.method_frame(1, ask.publish("", QUEUE))
        contents = [sending.content_frames(1, step.properties, body.encode(), 131_072) for body in step.bodies]
        return b"".join([method + content for content in contents])
    return sending.method_frame(1, step)


def word(said: Said) -> str | None:
    """What is heard, in short; nothing for confirms."""
    match said.method:
        case BasicDeliver(consumer_tag=tag):
            return f"{tag} {said.body.decode()}"
        case BasicGetOk(message_count=count):
            return f"got {said.body.decode()} {count}"
        case QueueDeclareOk(message_count=messages, consumer_count=consumers):
            return f"counted {messages} {consumers}"
        case QueuePurgeOk(message_count=count):
            return f"purged {count}"
        case QueueDeleteOk(message_count=count):
            return f"deleted {count}"
        case ChannelClose(reply_code=code):
            return f"closed {int(code)}"
        case BasicAck():
            return None
        case other:
            return {BasicGetEmpty: "empty", BasicCancelOk: "cancelled", BasicConsumeOk: "consuming"}[type(other)]


def settle(client: RawClient) -> None:
    """Until all that was said before has been carried out, and its deliveries have come."""
    for _ in range(2):
        client.send(1, COUNT)
        while not isinstance(client.hear().method, QueueDeclareOk):
            pass


def listen(client: RawClient, expected: Sequence[str]) -> list[str]:
    """What is heard until an end is agreed on: as many words as expected, and none more before the next answer."""
    heard: list[str] = []
    while len(heard) < len(expected):
        said = word(client.hear())
        heard += [] if said is None else [said]
    if heard[-1].startswith("closed"):
        client.send(1, ChannelCloseOk())
        client.ask(ChannelOpen(), ChannelOpenOk)
    client.send(1, ask.declare_queue("other"))
    while not isinstance((more := client.hear()).method, QueueDeclareOk):
        said = word(more)
        heard += [] if said is None else [said]
    return heard


def set_up(client: RawClient, case: Case, confirming: bool) -> None:
    client.ask(ask.delete_queue(QUEUE), QueueDeleteOk)
    client.send(1, ChannelClose(200, "", 0, 0))
    while not isinstance(client.hear().method, ChannelCloseOk):
        pass
    client.ask(ChannelOpen(), ChannelOpenOk)
    if confirming:
        client.ask(ConfirmSelect(), ConfirmSelectOk)
    client.ask(ask.declare_queue(QUEUE, arguments=case.arguments), QueueDeclareOk)
    for step in case.before:
        client.socket.sendall(frames(step))
        if isinstance(step, BasicQos):
            client.expect(BasicQosOk)
        else:
            settle(client)


def begin_forwarding(client: RawClient, case: Case) -> None:
    """Have what comes next go to the consumer on its way to the shard, where there is one that is alone and idle."""
    consumes = case.before[-1] if case.before else None
    if not isinstance(consumes, BasicConsume):
        return
    client.socket.sendall(frames(Publish("w")))
    said = client.hear()
    while word(said) is None:
        said = client.hear()
    assert word(said) == "c w"
    if not consumes.no_ack:
        client.send(1, BasicAck(1))


@pytest.fixture(scope="module")
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.port) as client:
        yield client


@pytest.mark.parametrize("confirming", [False, True], ids=["plain", "confirming"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_what_follows_a_publish_sees_its_effects(client: RawClient, case: Case, confirming: bool) -> None:
    for turn in range(TURNS):
        set_up(client, case, confirming)
        if turn == FORWARDED:
            begin_forwarding(client, case)
        if turn:
            client.socket.sendall(b"".join(map(frames, case.said)))
        else:
            for step in case.said:
                client.socket.sendall(frames(step))
        assert listen(client, case.heard) == list(case.heard)
