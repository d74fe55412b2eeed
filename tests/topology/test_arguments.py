"""Arguments of queues, exchanges and consumers: what is taken, what is refused, and what it comes to."""

from typing import Any

import pytest

from shardmq.errors import PreconditionFailed
from shardmq.topology.arguments import (
    CONSUMER_ARGUMENTS,
    QUEUE_ARGUMENTS,
    QueueArguments,
    check_arguments,
    check_exchange_arguments,
    check_queue_arguments,
)

STREAM = {"x-queue-type": "stream"}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"x-message-ttl": 315_360_000_000, "x-expires": 1, "x-max-length": 0, "x-max-length-bytes": 2**40},
        {"x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "k"},
        {"x-max-priority": 255, "x-single-active-consumer": True, "x-delivery-limit": 0},
        {"x-consumer-timeout": 1, "x-consumer-timeout-action": "dead-letter"},
        {"x-queue-type": "quorum", "x-queue-mode": "lazy", "x-queue-version": 2},
        {**STREAM, "x-max-age": "3M", "x-max-length-bytes": 0, "x-initial-cluster-size": 3, "x-queue-mode": "lazy"},
    ],
)
def test_rabbitmqs_arguments_are_taken(arguments: dict[str, Any]) -> None:
    check_queue_arguments("queue 'q'", arguments)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"x-mesage-ttl": 1}, "invalid arg 'x-mesage-ttl' for queue 'q': known are x-consumer-timeout, "),
        ({"x-message-ttl": -1}, "-1; expected is a whole number from 0 to 315360000000"),
        ({"x-message-ttl": 315_360_000_001}, "315360000001; expected"),
        ({"x-message-ttl": "5"}, "'5'; expected"),
        ({"x-message-ttl": 5.0}, "5.0; expected"),
        ({"x-message-ttl": True}, "True; expected"),
        ({"x-expires": 0}, "from 1"),
        ({"x-max-priority": 256}, "from 1 to 255"),
        ({"x-single-active-consumer": 1}, "1; expected is true or false"),
        ({"x-overflow": "explode"}, "one of drop-head, reject-publish, reject-publish-dlx"),
        ({"x-dead-letter-exchange": 1}, "a string"),
        ({"x-queue-type": "x"}, "one of classic, quorum, stream"),
        ({"x-max-age": "1D"}, "'x-max-age' for queue 'q' of queue type rabbit_classic_queue"),
        ({**STREAM, "x-max-length": 1}, "'x-max-length' for queue 'q' of queue type rabbit_stream_queue"),
        ({**STREAM, "x-max-age": "1A"}, "'1A'; expected is a whole number and one of Y, M, D, h, m, s"),
        ({**STREAM, "x-max-age": 5}, "5; expected is a whole number and one of"),
        ({**STREAM, "x-stream-max-segment-size-bytes": 3_000_000_001}, "3000000001; expected"),
        ({**STREAM, "x-stream-filter-size-bytes": 5}, "from 16 to 255"),
        ({"x-dead-letter-routing-key": "k"}, "means nothing without x-dead-letter-exchange"),
        ({"x-retry-delays": "1s,,2s"}, "'1s,,2s'; expected is 1 to 32 delays of ms, s, m, h or D"),
        ({"x-retry-delays": "0s"}, "expected is 1 to 32 delays"),
        ({"x-retry-delays": ",".join(["1s"] * 33)}, "expected is 1 to 32 delays"),
        ({"x-retry-delays": 5}, "5; expected is 1 to 32 delays"),
        ({"x-consumer-timeout-action": "requeue"}, "means nothing without x-consumer-timeout"),
    ],
)
def test_what_is_unknown_ill_typed_or_alone_is_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(PreconditionFailed, match=text):
        check_queue_arguments("queue 'q'", arguments)


def test_consumers_have_arguments_of_their_own() -> None:
    check_arguments("consumer", {"x-priority": -5, "x-consumer-timeout": 1000}, CONSUMER_ARGUMENTS)
    with pytest.raises(PreconditionFailed, match="known are x-consumer-timeout, x-priority"):
        check_arguments("consumer", {"x-message-ttl": 5}, CONSUMER_ARGUMENTS)


def test_only_a_consistent_hash_exchange_is_told_what_to_hash() -> None:
    check_exchange_arguments("e", "x-consistent-hash", {"hash-header": "h", "alternate-exchange": "rest"})
    with pytest.raises(PreconditionFailed, match="known are alternate-exchange"):
        check_exchange_arguments("e", "topic", {"hash-header": "h"})
    with pytest.raises(PreconditionFailed, match="mutually exclusive"):
        check_exchange_arguments("e", "x-consistent-hash", {"hash-header": "h", "hash-property": "timestamp"})


def test_without_arguments_nothing_is_asked_for() -> None:
    assert QueueArguments.of({}) == QueueArguments()


def test_every_argument_that_means_something_is_read() -> None:
    read = QueueArguments.of(
        {
            "x-message-ttl": 1,
            "x-expires": 2,
            "x-max-length": 3,
            "x-max-length-bytes": 4,
            "x-overflow": "reject-publish",
            "x-max-priority": 5,
            "x-single-active-consumer": True,
            "x-delivery-limit": 6,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "k",
            "x-consumer-timeout": 7,
            "x-consumer-timeout-action": "dead-letter",
            "x-max-age": "8s",
            "x-stream-filter-size-bytes": 90,
            "x-retry-delays": "500ms, 1s,2m",
        }
    )
    assert read == QueueArguments(
        1, 2, 3, 4, "reject-publish", 5, True, 6, "", "k", 7, True, 8000, 90, (500, 1000, 120_000)
    )
    unread = {"x-dead-letter-strategy", "x-queue-type", "x-queue-mode", "x-queue-version"}
    assert len(read.__struct_fields__) == len({*QUEUE_ARGUMENTS, "x-max-age", "x-stream-filter-size-bytes"} - unread)
