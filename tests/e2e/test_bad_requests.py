"""What is asked wrongly is refused with RabbitMQ's code and a sentence; the channel lives on and nothing is lost."""

from collections.abc import Callable

import pytest

import shardmq
from shardmq import errors
from shardmq.errors import ReplyCode

from .traffic import bodies

LONG = "x" * 256

Attempt = Callable[[shardmq.Channel], object]

ATTEMPTS: list[tuple[str, ReplyCode, Attempt]] = [
    ("queue amq.*", ReplyCode.ACCESS_REFUSED, lambda c: c.queue_declare("amq.mine")),
    ("exchange amq.*", ReplyCode.ACCESS_REFUSED, lambda c: c.exchange_declare("amq.mine")),
    ("delete amq.*", ReplyCode.ACCESS_REFUSED, lambda c: c.exchange_delete("amq.topic")),
    ("default exchange declared", ReplyCode.ACCESS_REFUSED, lambda c: c.exchange_declare("")),
    ("default exchange bound", ReplyCode.ACCESS_REFUSED, lambda c: c.queue_bind("here", "", "k")),
    ("default exchange as a source", ReplyCode.ACCESS_REFUSED, lambda c: c.exchange_bind("amq.topic", "", "k")),
    ("default exchange as a destination", ReplyCode.ACCESS_REFUSED, lambda c: c.exchange_bind("", "amq.topic", "k")),
    ("unknown type", ReplyCode.COMMAND_INVALID, lambda c: c.exchange_declare("e", "x-made-up")),
    ("unknown exchange argument", ReplyCode.PRECONDITION_FAILED, lambda c: c.exchange_declare("e", arguments={"x": 1})),
    (
        "ill-typed alternate",
        ReplyCode.PRECONDITION_FAILED,
        lambda c: c.exchange_declare("e", arguments={"alternate-exchange": 1}),
    ),
    ("x-match", ReplyCode.PRECONDITION_FAILED, lambda c: c.queue_bind("here", "amq.headers", "", {"x-match": "some"})),
    ("missing exchange", ReplyCode.NOT_FOUND, lambda c: c.basic_publish("missing", "k", b"")),
    ("bind to a missing exchange", ReplyCode.NOT_FOUND, lambda c: c.queue_bind("here", "missing")),
    ("bind a missing queue", ReplyCode.NOT_FOUND, lambda c: c.queue_bind("missing", "amq.topic")),
    ("bind a missing destination", ReplyCode.NOT_FOUND, lambda c: c.exchange_bind("missing", "amq.topic")),
    ("get from a missing queue", ReplyCode.NOT_FOUND, lambda c: c.basic_get("missing")),
    ("consume a missing queue", ReplyCode.NOT_FOUND, lambda c: next(iter(c.consume("missing")))),
    ("purge a missing queue", ReplyCode.NOT_FOUND, lambda c: c.queue_purge("missing")),
    ("peek into a missing queue", ReplyCode.NOT_FOUND, lambda c: c.queue_peek("missing")),
    ("delete a missing queue", ReplyCode.NOT_FOUND, lambda c: c.queue_delete("missing")),
    ("other durability", ReplyCode.PRECONDITION_FAILED, lambda c: c.queue_declare("here", durable=False)),
    (
        "exclusive over shared",
        ReplyCode.RESOURCE_LOCKED,
        lambda c: c.queue_declare("here", durable=True, exclusive=True),
    ),
    ("another type", ReplyCode.PRECONDITION_FAILED, lambda c: c.exchange_declare("amq.topic", "direct", durable=True)),
    ("qos of nobody", ReplyCode.NOT_FOUND, lambda c: c.basic_qos("nobody", 5)),
    (
        "priority",
        ReplyCode.PRECONDITION_FAILED,
        lambda c: c.basic_publish("", "here", b"", shardmq.Properties(priority=256)),
    ),
]


@pytest.mark.parametrize(
    ("code", "attempt"), [pytest.param(code, attempt, id=name) for name, code, attempt in ATTEMPTS]
)
def test_a_wrong_request_is_refused_and_harms_nobody(
    channel: shardmq.Channel, code: ReplyCode, attempt: Attempt
) -> None:
    channel.queue_declare("here", durable=True)
    channel.basic_publish("", "here", b"kept")
    with pytest.raises(errors.ShardmqError) as refused:
        attempt(channel)
    assert refused.value.code == code, refused.value
    assert len(refused.value.text) > 15
    assert channel.is_open
    assert bodies(channel, "here") == [b"kept"]


def test_a_list_of_nonsense_is_refused(connection: shardmq.Connection) -> None:
    with pytest.raises(errors.InvalidRequest, match="nonsense"):
        connection.topology("nonsense")
    assert connection.topology("queues") is not None


@pytest.mark.parametrize(
    "attempt",
    [
        lambda c: c.queue_declare(LONG),
        lambda c: c.exchange_declare(LONG),
        lambda c: c.queue_bind("here", "amq.topic", LONG),
        lambda c: c.exchange_bind(LONG, "amq.topic"),
        lambda c: c.basic_publish("", LONG, b""),
        lambda c: c.basic_get("ü" * 128),
        lambda c: c.basic_consume("here", print, consumer_tag=LONG),
    ],
)
def test_a_name_over_255_bytes_is_refused(channel: shardmq.Channel, attempt: Attempt) -> None:
    with pytest.raises(errors.ShardmqError, match="255"):
        attempt(channel)
    assert channel.is_open
