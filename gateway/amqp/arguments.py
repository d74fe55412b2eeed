"""Arguments as AMQP clients give them: some mean something here and are kept, others are ignored.

RabbitMQ takes any argument. It compares only those it knows when something is declared again (3.10: a queue declared
with `x-mesage-ttl`, or with another value of it, is the same queue), so those left out here make no difference either.
One that begins with `x-` and that nobody knows is a mistake most often: it is named in the log, once.
"""

import logging
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from shardmq.gateway.handlers.streams import READER_ARGUMENTS
from shardmq.topology.arguments import (
    CONSUMER_ARGUMENTS,
    MEMBER_ARGUMENTS,
    QUEUE_ARGUMENTS,
    STREAM_ARGUMENTS,
    exchange_arguments,
    is_stream,
)
from shardmq.topology.entities import check_nesting

IDLE_ARGUMENTS: Final = frozenset(
    {
        "x-cancel-on-ha-failover",
        "x-credit",
        "x-ha-nodes",
        "x-ha-policy",
        "x-ha-promote-on-failure",
        "x-ha-promote-on-shutdown",
        "x-ha-sync-batch-size",
        "x-ha-sync-mode",
        "x-max-in-memory-bytes",
        "x-max-in-memory-length",
        "x-queue-leader-locator",
        "x-queue-master-locator",
        "x-quorum-initial-group-size",
        "x-quorum-target-group-size",
    }
)
"""Arguments of queues that are no streams: RabbitMQ knows them, and they say nothing where there is one node."""

UNSAID: Final = IDLE_ARGUMENTS | READER_ARGUMENTS
"""Arguments that are left out without a word."""

NAMES_MAX: Final = 1000
"""Unknown names that are logged; past it they are ignored without a word, so that nobody fills the log or memory."""

_log = logging.getLogger(__name__)
_named: Final[set[tuple[str, str]]] = set()
"""What and name of the unknown arguments that were logged: by all connections of the process, as they share its log."""


def of_queue(queue: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A queue's arguments that mean something here.

    Raises:
        InvalidRequest: they nest too deep.
    """
    check_nesting(arguments)
    known = {**QUEUE_ARGUMENTS, **STREAM_ARGUMENTS}
    meant = _known("queue", queue, arguments, known)
    if not is_stream(arguments):
        meant = {name: value for name, value in meant.items() if name not in IDLE_ARGUMENTS}
    return {name: value for name, value in meant.items() if not _is_default(name, value, arguments)}


def of_exchange(type: str, exchange: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """An exchange's arguments that mean something here.

    Raises:
        InvalidRequest: they nest too deep.
    """
    check_nesting(arguments)
    return _known("exchange", exchange, arguments, exchange_arguments(type))


def of_consumer(queue: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A consumer's arguments that mean something here."""
    return _known("consumer", queue, arguments, CONSUMER_ARGUMENTS)


def of_member(topic: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a member of a group that mean something here."""
    reading = {name: arguments[name] for name in READER_ARGUMENTS if name in arguments}
    return {**_known("consumer", topic, arguments, {**CONSUMER_ARGUMENTS, **MEMBER_ARGUMENTS}), **reading}


def _known(kind: str, name: str, arguments: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    if not arguments:
        return {}
    for argument in arguments:
        if argument not in known and argument.startswith("x-") and argument not in UNSAID:
            _name_once(kind, name, argument, known)
    return {argument: value for argument, value in arguments.items() if argument in known}


def _name_once(kind: str, name: str, argument: str, known: Mapping[str, Any]) -> None:
    if (kind, argument) in _named or len(_named) >= NAMES_MAX:
        return
    _named.add((kind, argument))
    thing = f"a consumer of queue {name!r}" if kind == "consumer" else f"{kind} {name!r}"
    nearest = get_close_matches(argument, known, 1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    _log.warning("unknown argument %r of %s is ignored%s", argument, thing, hint)


def _is_default(name: str, value: Any, arguments: Mapping[str, Any]) -> bool:
    means_nothing = _DEFAULTS.get(name)
    return means_nothing is not None and means_nothing(value, arguments)


_DEFAULTS: Final[dict[str, Callable[[Any, Mapping[str, Any]], bool]]] = {
    "x-delivery-limit": lambda value, _: type(value) is int and value < 0,
    "x-max-priority": lambda value, _: type(value) is int and value == 0,
    "x-dead-letter-strategy": lambda _, arguments: "x-dead-letter-exchange" not in arguments,
}
"""Arguments that RabbitMQ takes with values that say what holds without them."""
