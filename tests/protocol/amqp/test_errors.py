"""The broker's errors as AMQP clients see them."""

import pytest

from shardmq.errors import (
    AccessRefused,
    ChannelError,
    ContentTooLarge,
    InvalidRequest,
    NotAllowed,
    NotFound,
    OffsetOutOfRange,
    PreconditionFailed,
    ReplyCode,
    ResourceLocked,
    ShardmqError,
    Timeout,
    Unavailable,
    request_error,
)
from shardmq.protocol.amqp.errors import HARD, AmqpError, as_amqp_error, rabbitmq_text

ODD = "a'; declare it first' in vhost '/"
"""Names may hold anything."""


@pytest.mark.parametrize(
    ("error", "code", "is_hard"),
    [
        (NotFound("x"), 404, False),
        (AccessRefused("x"), 403, False),
        (ResourceLocked("x"), 405, False),
        (PreconditionFailed("x"), 406, False),
        (InvalidRequest("x"), 406, False),
        (ContentTooLarge("x"), 406, False),
        (OffsetOutOfRange("x"), 406, False),
        (ChannelError("x", ReplyCode.PRECONDITION_FAILED), 406, False),
        (NotAllowed("x"), 530, True),
        (Unavailable("x"), 506, False),
        (Timeout("x"), 506, False),
        (request_error(506, "x"), 506, False),
        (request_error(541, "x"), 541, True),
        (AmqpError(ReplyCode.SYNTAX_ERROR, "x", (1, 2)), 502, True),
    ],
)
def test_every_error_has_a_code_and_a_weight(error: ShardmqError, code: int, is_hard: bool) -> None:
    error = as_amqp_error(error, (60, 20))
    assert (error.code, error.is_hard, error.text) == (code, is_hard, "x")
    assert error.method == (error.method if isinstance(error, AmqpError) else (60, 20))


def test_what_is_soft_and_what_is_hard_is_the_specifications() -> None:
    assert {code for code in ReplyCode if code not in HARD} == {311, 312, 403, 404, 405, 406, 416}


@pytest.mark.parametrize(
    ("native", "words"),
    [
        ("no queue 'q' in vhost '/'; declare it first", "no queue 'q' in vhost '/'"),
        ("no exchange 'e' in vhost '/'; declare it first", "no exchange 'e' in vhost '/'"),
        (f"no queue '{ODD}' in vhost '/'; declare it first", f"no queue '{ODD}' in vhost '/'"),
        ("queue 'q' in vhost '/' in use: it has 2 consumers; cancel them", "queue 'q' in vhost '/' in use"),
        ("queue 'q' in vhost '/' not empty: 2 are ready; purge it", "queue 'q' in vhost '/' not empty"),
        ("queue 'q' in vhost '/' has consumers already", "queue 'q' in vhost '/' in exclusive use"),
        ("unknown delivery tag 7: never given on this channel, or settled before", "unknown delivery tag 7"),
        (
            "queue name 'amq.x' contains reserved prefix 'amq.*'; choose another name",
            "queue name 'amq.x' contains reserved prefix 'amq.*'",
        ),
        (
            "cannot publish to internal exchange 'e' in vhost '/'; use one bound to it",
            "cannot publish to internal exchange 'e' in vhost '/'",
        ),
        ("shard-0 did not answer in time; see `shardmq status`, then try again",) * 2,
    ],
)
def test_texts_are_in_rabbitmqs_words(native: str, words: str) -> None:
    assert rabbitmq_text(native) == words
