"""Arguments as AMQP clients give them: some mean something here and are kept, streams' are refused, others are ignored.

RabbitMQ takes any argument. It compares only those it knows when something is declared again (3.10: a queue declared
with `x-mesage-ttl`, or with another value of it, is the same queue), so those left out here make no difference either.
One that begins with `x-` and that nobody knows is a mistake most often: it is named in the log, once.
"""

import logging
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from shardmq.errors import PreconditionFailed
from shardmq.topology.arguments import CONSUMER_ARGUMENTS, QUEUE_ARGUMENTS, exchange_arguments
from shardmq.topology.entities import check_nesting

STREAM_ARGUMENTS: Final = (
    "x-max-age",
    "x-stream-max-segment-size-bytes",
    "x-stream-filter-size-bytes",
    "x-initial-cluster-size",
)
"""Arguments of streams: refused, as RabbitMQ does for its other queues, since leaving them out would keep messages that
are to go."""

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
        "x-stream-filter",
        "x-stream-match-unfiltered",
        "x-stream-offset",
    }
)
"""Arguments that RabbitMQ knows, and that say nothing where there is one node and no stream."""

NAMES_MAX: Final = 1000
"""Unknown names that are logged; past it they are ignored without a word, so that nobody fills the log or memory."""

_log = logging.getLogger(__name__)
_named: Final[set[tuple[str, str]]] = set()
"""What and name of the unknown arguments that were logged: by all connections of the process, as they share its log."""


def of_queue(vhost: str, queue: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A queue's arguments that mean something here.

    Raises:
        PreconditionFailed: they are a stream's.
        InvalidRequest: they nest too deep.
    """
    check_nesting(arguments)
    for name in STREAM_ARGUMENTS:
        if name in arguments:
            kind = arguments.get("x-queue-type", "classic")
            raise PreconditionFailed(
                f"invalid arg '{name}' for queue '{queue}' in vhost '{vhost}' of queue type rabbit_{kind}_queue"
            )
    meant = _known("queue", queue, arguments, QUEUE_ARGUMENTS)
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


def _known(kind: str, name: str, arguments: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    if not arguments:
        return {}
    for argument in arguments:
        if argument not in known and argument.startswith("x-") and argument not in IDLE_ARGUMENTS:
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
