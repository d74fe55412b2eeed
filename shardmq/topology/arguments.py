"""The x-arguments of queues, streams, exchanges and consumers: which there are, their checks; those of queues, parsed.

Names and meanings are RabbitMQ's (its pages on TTL, queue length, priority, dead lettering, quorum queues and single
active consumer), and beside them `x-consumer-timeout-action` and `x-retry-delays`, which RabbitMQ has not.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from shardmq.errors import PreconditionFailed
from shardmq.limits import DELAY_MS_MAX, LIFE_MS_MAX, NAME_BYTES_MAX

Check = Callable[[Any], str | None]
"""Looks at a value; returns None if it is right, and what is expected if it is not."""

LENGTH_MAX: Final = 2**63 - 1
"""The largest limit of a queue's length or of its deliveries."""

EXPIRES: Final = "x-expires"
"""The queue's argument by which it is deleted when nobody uses it."""

CONSUMER_TIMEOUT: Final = "x-consumer-timeout"
"""The queue's argument by which messages return that are not acked in time."""

PRIORITY_MAX: Final = 255
"""The highest priority, an octet in AMQP."""


def integer(least: int, most: int) -> Check:
    """A check for whole numbers in a range; booleans are none."""

    def check(value: Any) -> str | None:
        return None if type(value) is int and least <= value <= most else f"a whole number from {least} to {most}"

    return check


def one_of(*values: str) -> Check:
    """A check for one of some words."""

    def check(value: Any) -> str | None:
        return None if type(value) is str and value in values else f"one of {', '.join(values)}"

    return check


def text(value: Any) -> str | None:
    """Check for a string."""
    return None if type(value) is str else "a string"


def routing_key(value: Any) -> str | None:
    """Check for a routing key, which is a short string in AMQP."""
    is_key = type(value) is str and len(value.encode(errors="replace")) <= NAME_BYTES_MAX
    return None if is_key else f"a string of at most {NAME_BYTES_MAX} bytes"


def boolean(value: Any) -> str | None:
    """Check for a boolean."""
    return None if type(value) is bool else "true or false"


AGE: Final = re.compile(r"([0-9]{1,9})([YMDhms])")
AGE_UNITS_MS: Final = {
    "Y": 365 * 86_400_000,
    "M": 30 * 86_400_000,
    "D": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
}
"""RabbitMQ's units of ages, in milliseconds."""


def age_ms(text: str) -> int | None:
    """Return an age in milliseconds, such as 3,600,000 for "1h"; None where it is none."""
    match = AGE.fullmatch(text)
    return int(match[1]) * AGE_UNITS_MS[match[2]] if match else None


def age(value: Any) -> str | None:
    """Check for an age."""
    is_age = type(value) is str and age_ms(value) is not None
    return None if is_age else "a whole number and one of Y, M, D, h, m, s, such as '12h'"


RETRIES_MAX: Final = 32
"""The most delays of x-retry-delays."""

_RETRY_DELAY: Final = re.compile(r"([0-9]{1,12})(ms|s|m|h|D)")
_RETRY_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "D": 86_400_000}


def retry_delays_ms(text: str) -> tuple[int, ...] | None:
    """Return delays in milliseconds, such as (1000, 60_000) for "1s,1m"; None where they are none."""
    found = [_RETRY_DELAY.fullmatch(part.strip()) for part in text.split(",", RETRIES_MAX)]
    delays = tuple([int(match[1]) * _RETRY_UNITS_MS[match[2]] for match in found if match is not None])
    is_right = len(delays) == len(found) <= RETRIES_MAX and all(1 <= delay <= DELAY_MS_MAX for delay in delays)
    return delays if is_right else None


def retry_delays(value: Any) -> str | None:
    """Check for delays."""
    is_right = type(value) is str and retry_delays_ms(value) is not None
    return None if is_right else f"1 to {RETRIES_MAX} delays of ms, s, m, h or D, such as '500ms,10s,1m'"


QUEUE_ARGUMENTS: Final[Mapping[str, Check]] = {
    "x-message-ttl": integer(0, LIFE_MS_MAX),
    "x-expires": integer(1, LIFE_MS_MAX),
    "x-max-length": integer(0, LENGTH_MAX),
    "x-max-length-bytes": integer(0, LENGTH_MAX),
    "x-overflow": one_of("drop-head", "reject-publish", "reject-publish-dlx"),
    "x-max-priority": integer(1, PRIORITY_MAX),
    "x-single-active-consumer": boolean,
    "x-delivery-limit": integer(0, LENGTH_MAX),
    "x-dead-letter-exchange": text,
    "x-dead-letter-routing-key": routing_key,
    "x-dead-letter-strategy": one_of("at-least-once", "at-most-once"),  # the broker always works as with the first
    "x-consumer-timeout": integer(1, DELAY_MS_MAX),
    "x-consumer-timeout-action": one_of("requeue", "dead-letter"),
    "x-retry-delays": retry_delays,
    "x-queue-type": one_of(
        "classic", "quorum", "stream"
    ),  # queues are on disk with the confirm and keep few messages in memory, so they are both
    "x-queue-mode": one_of("default", "lazy"),
    "x-queue-version": integer(1, 2),
}
"""The arguments of queues that are no streams, and the checks of their values."""

SEGMENT_BYTES_MAX: Final = 3_000_000_000
"""RabbitMQ's limit of x-stream-max-segment-size-bytes."""

STREAM_ARGUMENTS: Final[Mapping[str, Check]] = {
    "x-queue-type": one_of("stream"),
    "x-max-length-bytes": integer(0, LENGTH_MAX),
    "x-max-age": age,
    "x-stream-max-segment-size-bytes": integer(0, SEGMENT_BYTES_MAX),  # segments have a size of their own here
    "x-stream-filter-size-bytes": integer(16, 255),
    "x-initial-cluster-size": integer(1, LENGTH_MAX),
    "x-queue-leader-locator": text,
    "x-queue-mode": one_of("default", "lazy"),  # says nothing, as in RabbitMQ
}
"""The arguments of streams, and the checks of their values."""

EXCHANGE_ARGUMENTS: Final[Mapping[str, Check]] = {"alternate-exchange": text}
"""The arguments of exchanges of any type."""

CONSISTENT_HASH_ARGUMENTS: Final[Mapping[str, Check]] = {
    **EXCHANGE_ARGUMENTS,
    "hash-header": text,
    "hash-property": one_of("message_id", "correlation_id", "timestamp"),
}
"""The arguments of exchanges of type x-consistent-hash."""


PARTITIONERS: Final = ("key", "round-robin", "explicit")
"""How a topic picks a message's partition: by a hash of its routing key, in turns, or by its header `x-partition`."""

PARTITIONER: Final = "x-partitioner"
"""The argument of a topic that says so."""

OF_TOPIC: Final = "x-topic"
"""The argument of a queue that is a partition: its topic's name. Topics give it, clients cannot."""

TOPIC_ARGUMENTS: Final[Mapping[str, Check]] = {
    "x-max-age": age,
    "x-max-length": integer(1, LENGTH_MAX),
    "x-max-length-bytes": integer(0, LENGTH_MAX),
    PARTITIONER: one_of(*PARTITIONERS),
    **EXCHANGE_ARGUMENTS,
}
"""The arguments of topics: limits of each partition, and those of its exchange."""

PARTITION_ARGUMENTS: Final[Mapping[str, Check]] = {**EXCHANGE_ARGUMENTS, PARTITIONER: one_of(*PARTITIONERS)}
"""The arguments of exchanges of type x-partition."""


def exchange_arguments(type: str) -> Mapping[str, Check]:
    """The arguments of exchanges of a type."""
    return _OF_TYPES.get(type, EXCHANGE_ARGUMENTS)


_OF_TYPES: Final = {"x-consistent-hash": CONSISTENT_HASH_ARGUMENTS, "x-partition": PARTITION_ARGUMENTS}


CONSUMER_ARGUMENTS: Final[Mapping[str, Check]] = {
    "x-priority": integer(-(2**31), 2**31 - 1),
    "x-consumer-timeout": integer(1, DELAY_MS_MAX),
}
"""The arguments of consumers."""

GROUP: Final = "x-group"
"""The argument of a consumer that makes it a member of that group."""


def group_name(value: Any) -> str | None:
    """Check for the name of a group."""
    is_name = type(value) is str and 1 <= len(value.encode(errors="replace")) <= NAME_BYTES_MAX
    is_plain = is_name and not any(ord(character) < 32 or ord(character) == 127 for character in value)
    return None if is_plain else f"a string of 1 to {NAME_BYTES_MAX} bytes, without control characters"


MEMBER_ARGUMENTS: Final[Mapping[str, Check]] = {
    GROUP: group_name,
    "x-group-type": one_of("ordered", "shared"),
    "x-delivery-limit": integer(0, LENGTH_MAX),
    "x-dead-letter-exchange": text,
    "x-dead-letter-routing-key": routing_key,
}
"""The arguments of consumers that are members of groups, beside those of all."""


def check_arguments(thing: str, arguments: Mapping[str, Any], known: Mapping[str, Check]) -> None:
    """Make sure that all arguments exist and have a value with a meaning.

    Args:
        thing: what is declared, such as "queue 'q' in vhost '/'", for the error.
        arguments: as they came.
        known: the arguments that exist.

    Raises:
        PreconditionFailed: an argument does not exist, or its value is not expected; the code is RabbitMQ's.
    """
    for name, value in arguments.items():
        check = known.get(name)
        if check is None:
            knows = f"known are {', '.join(sorted(known))}" if known else "there are none"
            raise PreconditionFailed(f"invalid arg '{name}' for {thing}: {knows}")
        expected = check(value)
        if expected is not None:
            raise PreconditionFailed(f"invalid arg '{name}' for {thing}: {value!r}; expected is {expected}")


def is_stream(arguments: Mapping[str, Any]) -> bool:
    """Tell whether a queue with these arguments is a stream: its messages stay, and are read from any offset."""
    return arguments.get("x-queue-type") == "stream"


def check_queue_arguments(thing: str, arguments: Mapping[str, Any]) -> None:
    """Check the arguments of a queue.

    Args:
        thing: the queue, for the error.
        arguments: as they came.

    Raises:
        PreconditionFailed: an argument does not exist, its value is not expected, or it means nothing without another
            argument that is missing.
    """
    is_of_stream = is_stream(arguments)
    known, others = (STREAM_ARGUMENTS, QUEUE_ARGUMENTS) if is_of_stream else (QUEUE_ARGUMENTS, STREAM_ARGUMENTS)
    for name in arguments:
        if name in others and name not in known:
            kind = arguments.get("x-queue-type", "classic")
            raise PreconditionFailed(f"invalid arg '{name}' for {thing} of queue type rabbit_{kind}_queue")
    check_arguments(thing, arguments, known)
    for name, needed in (
        ("x-dead-letter-routing-key", "x-dead-letter-exchange"),
        ("x-dead-letter-strategy", "x-dead-letter-exchange"),
        ("x-consumer-timeout-action", "x-consumer-timeout"),
    ):
        if name in arguments and needed not in arguments:
            raise PreconditionFailed(f"invalid arg '{name}' for {thing}: it means nothing without {needed}; set both")


def check_exchange_arguments(thing: str, type: str, arguments: Mapping[str, Any]) -> None:
    """Check the arguments of an exchange.

    Args:
        thing: the exchange, for the error.
        type: its type.
        arguments: as they came.

    Raises:
        PreconditionFailed: an argument does not exist, its value is not expected, or a consistent-hash exchange is to
            hash two things.
    """
    check_arguments(thing, arguments, exchange_arguments(type))
    if "hash-header" in arguments and "hash-property" in arguments:
        raise PreconditionFailed(
            f"invalid arg 'hash-property' for {thing}: hash-header and hash-property are mutually exclusive; set one"
        )


class QueueArguments(msgspec.Struct, frozen=True):
    """A queue's arguments, parsed. None and False stand for arguments that are not given.

    Attributes:
        ttl_ms: how long a message may wait (x-message-ttl).
        expires_ms: the queue is deleted when it is not used for so long (x-expires).
        max_length: the most ready messages; in a partition of a topic, of all its messages (x-max-length).
        max_length_bytes: the most bytes in bodies of ready messages; in a stream, of all its records
            (x-max-length-bytes).
        overflow: what happens at the length limit: drop-head, reject-publish or reject-publish-dlx (x-overflow).
        max_priority: the highest priority that counts (x-max-priority).
        single_active_consumer: whether one consumer at a time gets messages (x-single-active-consumer).
        delivery_limit: how often a message may be delivered in vain before it is dead-lettered or dropped
            (x-delivery-limit).
        dead_letter_exchange: where messages go that are rejected, expired or over a limit (x-dead-letter-exchange).
        dead_letter_routing_key: their routing key there, None for their own (x-dead-letter-routing-key).
        consumer_timeout_ms: how long a delivery may stay unsettled (x-consumer-timeout).
        timeout_dead_letters: whether overdue deliveries are dead-lettered and not requeued
            (x-consumer-timeout-action).
        max_age_ms: how old messages of a stream may be (x-max-age).
        filter_size_bytes: of the summary of tags that each segment of a stream has (x-stream-filter-size-bytes).
        retry_delays_ms: after how long a message that failed comes back, each time (x-retry-delays).
    """

    ttl_ms: int | None = None
    expires_ms: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: str = "drop-head"
    max_priority: int | None = None
    single_active_consumer: bool = False
    delivery_limit: int | None = None
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    consumer_timeout_ms: int | None = None
    timeout_dead_letters: bool = False
    max_age_ms: int | None = None
    filter_size_bytes: int | None = None
    retry_delays_ms: tuple[int, ...] | None = None

    @staticmethod
    def of(arguments: Mapping[str, Any]) -> "QueueArguments":
        """Parse arguments that were checked before."""
        return QueueArguments(
            ttl_ms=arguments.get("x-message-ttl"),
            expires_ms=arguments.get("x-expires"),
            max_length=arguments.get("x-max-length"),
            max_length_bytes=arguments.get("x-max-length-bytes"),
            max_age_ms=age_ms(arguments.get("x-max-age") or ""),
            filter_size_bytes=arguments.get("x-stream-filter-size-bytes"),
            retry_delays_ms=retry_delays_ms(arguments.get("x-retry-delays") or ""),
            overflow=arguments.get("x-overflow", "drop-head"),
            max_priority=arguments.get("x-max-priority"),
            single_active_consumer=arguments.get("x-single-active-consumer", False),
            delivery_limit=arguments.get("x-delivery-limit"),
            dead_letter_exchange=arguments.get("x-dead-letter-exchange"),
            dead_letter_routing_key=arguments.get("x-dead-letter-routing-key"),
            consumer_timeout_ms=arguments.get("x-consumer-timeout"),
            timeout_dead_letters=arguments.get("x-consumer-timeout-action") == "dead-letter",
        )

    @property
    def dead_letters_refused(self) -> bool:
        """Return whether what the queue has no place for is a dead letter: there is an exchange for it, too."""
        return self.overflow == "reject-publish-dlx" and self.dead_letter_exchange is not None


SERVER_NAMED: Final = "amq.gen-"
"""The beginning of names that the server chooses, as in RabbitMQ."""
