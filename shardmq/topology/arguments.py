"""What a queue's arguments ask for: the table of those that exist, their checks, and the terms a shard works by. And
the arguments of exchanges and consumers.

RabbitMQ's names and meanings (its pages on TTL, queue length, priority, dead lettering, quorum queues and single active
consumer), and `x-consumer-timeout-action`, which is ours.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from shardmq.errors import PreconditionFailed
from shardmq.limits import DELAY_MS_MAX, LIFE_MS_MAX

Check = Callable[[Any], str | None]
"""What is expected of a value, where it is not that; None where it is."""

LENGTH_MAX: Final = 2**63 - 1
PRIORITY_MAX: Final = 255


def integer(least: int, most: int) -> Check:
    """A whole number in a range; True and False are none."""

    def check(value: Any) -> str | None:
        return None if type(value) is int and least <= value <= most else f"a whole number from {least} to {most}"

    return check


def one_of(*values: str) -> Check:
    """One of some words."""

    def check(value: Any) -> str | None:
        return None if type(value) is str and value in values else f"one of {', '.join(values)}"

    return check


def text(value: Any) -> str | None:
    """Any string."""
    return None if type(value) is str else "a string"


def boolean(value: Any) -> str | None:
    """True or False."""
    return None if type(value) is bool else "true or false"


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
    "x-dead-letter-routing-key": text,
    "x-dead-letter-strategy": one_of("at-least-once", "at-most-once"),  # it is always the first here
    "x-consumer-timeout": integer(1, DELAY_MS_MAX),
    "x-consumer-timeout-action": one_of("requeue", "dead-letter"),
    "x-queue-type": one_of("classic", "quorum"),  # one kind of queue is both: on disk with the confirm, and lazy
    "x-queue-mode": one_of("default", "lazy"),
    "x-queue-version": integer(1, 2),
}
"""Every argument a queue may be declared with, and the check of its value."""

EXCHANGE_ARGUMENTS: Final[Mapping[str, Check]] = {"alternate-exchange": text}
"""Every argument an exchange of any type may be declared with."""

CONSISTENT_HASH_ARGUMENTS: Final[Mapping[str, Check]] = {
    **EXCHANGE_ARGUMENTS,
    "hash-header": text,
    "hash-property": one_of("message_id", "correlation_id", "timestamp"),
}
"""The same, for the type x-consistent-hash."""


def exchange_arguments(type: str) -> Mapping[str, Check]:
    """Every argument an exchange of that type may be declared with."""
    return CONSISTENT_HASH_ARGUMENTS if type == "x-consistent-hash" else EXCHANGE_ARGUMENTS


CONSUMER_ARGUMENTS: Final[Mapping[str, Check]] = {
    "x-priority": integer(-(2**31), 2**31 - 1),
    "x-consumer-timeout": integer(1, DELAY_MS_MAX),
}
"""Every argument a consumer may be started with."""


def check_arguments(thing: str, arguments: Mapping[str, Any], known: Mapping[str, Check]) -> None:
    """Refuse arguments that would be ignored or cannot be meant, so that nobody relies on them in vain.

    Args:
        thing: what is declared, as "queue 'q' in vhost '/'".
        arguments: as they came.
        known: those that exist.

    Raises:
        PreconditionFailed: unknown, or a value that is not expected (RabbitMQ's code for it).
    """
    for name, value in arguments.items():
        check = known.get(name)
        if check is None:
            knows = f"known are {', '.join(sorted(known))}" if known else "there are none"
            raise PreconditionFailed(f"invalid arg '{name}' for {thing}: {knows}")
        expected = check(value)
        if expected is not None:
            raise PreconditionFailed(f"invalid arg '{name}' for {thing}: {value!r}; expected is {expected}")


def check_queue_arguments(thing: str, arguments: Mapping[str, Any]) -> None:
    """As `check_arguments`, for queues, and that those that need one another are together.

    Raises:
        PreconditionFailed: as there; a routing key for dead letters without an exchange for them, or an action on a
            timeout that nothing is declared for.
    """
    check_arguments(thing, arguments, QUEUE_ARGUMENTS)
    for name, needed in (
        ("x-dead-letter-routing-key", "x-dead-letter-exchange"),
        ("x-dead-letter-strategy", "x-dead-letter-exchange"),
        ("x-consumer-timeout-action", "x-consumer-timeout"),
    ):
        if name in arguments and needed not in arguments:
            raise PreconditionFailed(f"invalid arg '{name}' for {thing}: it means nothing without {needed}; set both")


def check_exchange_arguments(thing: str, type: str, arguments: Mapping[str, Any]) -> None:
    """As `check_arguments`, for exchanges of that type.

    Raises:
        PreconditionFailed: as there; or a consistent-hash exchange is to hash two things.
    """
    check_arguments(thing, arguments, exchange_arguments(type))
    if "hash-header" in arguments and "hash-property" in arguments:
        raise PreconditionFailed(
            f"invalid arg 'hash-property' for {thing}: hash-header and hash-property are mutually exclusive; set one"
        )


class QueueArguments(msgspec.Struct, frozen=True):
    """A queue's arguments, read. None and False are "not asked for".

    Attributes:
        ttl_ms: how long a message may wait.
        expires_ms: how long the queue lives unused.
        max_length: ready messages.
        max_length_bytes: bodies of ready messages.
        overflow: what happens beyond: drop-head, reject-publish or reject-publish-dlx.
        max_priority: the highest priority that counts.
        single_active_consumer: only one consumer is served at a time.
        delivery_limit: so often a message may be delivered in vain before it is dead-lettered or dropped.
        dead_letter_exchange: where to messages go that are rejected, expired, too many, …
        dead_letter_routing_key: with which routing key; None for their own.
        consumer_timeout_ms: how long a delivered message may stay unsettled.
        timeout_dead_letters: what is overdue is dead-lettered, and not requeued.
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

    @staticmethod
    def of(arguments: Mapping[str, Any]) -> "QueueArguments":
        """Read arguments that were checked."""
        return QueueArguments(
            ttl_ms=arguments.get("x-message-ttl"),
            expires_ms=arguments.get("x-expires"),
            max_length=arguments.get("x-max-length"),
            max_length_bytes=arguments.get("x-max-length-bytes"),
            overflow=arguments.get("x-overflow", "drop-head"),
            max_priority=arguments.get("x-max-priority"),
            single_active_consumer=arguments.get("x-single-active-consumer", False),
            delivery_limit=arguments.get("x-delivery-limit"),
            dead_letter_exchange=arguments.get("x-dead-letter-exchange"),
            dead_letter_routing_key=arguments.get("x-dead-letter-routing-key"),
            consumer_timeout_ms=arguments.get("x-consumer-timeout"),
            timeout_dead_letters=arguments.get("x-consumer-timeout-action") == "dead-letter",
        )


SERVER_NAMED: Final = "amq.gen-"
"""What names that the server makes up begin with; RabbitMQ's word."""
