"""The settings of policies, as in RabbitMQ 3.13 (rabbit_policies.erl): their checks, and how they meet arguments.

A policy says what a queue's arguments could say, under the same names without "x-". Where both say something, one of
three rules decides: the argument counts, the smaller number does, or, of streams, the policy.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from shardmq.errors import InvalidRequest
from shardmq.limits import DELAY_MS_MAX, LIFE_MS_MAX
from shardmq.topology.arguments import (
    LENGTH_MAX,
    SEGMENT_BYTES_MAX,
    Check,
    age,
    integer,
    one_of,
    retry_delays,
    routing_key,
    text,
)
from shardmq.topology.expressions import EXPRESSION_MAX, expression_fault

APPLY_TO: Final = ("all", "exchanges", "queues", "classic_queues", "quorum_queues", "streams")
"""What a policy may apply to."""

PRIORITY_MAX: Final = 2**63 - 1
"""The highest priority of a policy; the lowest is as far below 0."""

LOCATORS: Final = ("client-local", "random", "least-leaders", "balanced")
"""Where RabbitMQ places a queue's leader."""

VALIDATION_FAILED: Final = "Validation failed\n\n"
"""How RabbitMQ's refusals of policies begin."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of policies.

    Attributes:
        check: of its value.
        what: the value in RabbitMQ's refusals: "… is not a valid message TTL".
        argument: the argument of queues that means the same; "" where there is none.
        takes_least: whether the smaller number counts where an argument says something else.
        not_of: types of queues for which it means nothing.
    """

    check: Check
    what: str
    argument: str = ""
    takes_least: bool = False
    not_of: tuple[str, ...] = ("stream",)


def _number(least: int, most: int, what: str, argument: str, not_of: tuple[str, ...] = ("stream",)) -> Setting:
    return Setting(integer(least, most), what, argument, True, not_of)


def _idle(check: Check, what: str, *not_of: str) -> Setting:
    return Setting(check, what, not_of=not_of)


_SIZE: Final = integer(0, LENGTH_MAX)

SETTINGS: Final[Mapping[str, Setting]] = {
    "alternate-exchange": _idle(text, "alternate exchange name"),
    "dead-letter-exchange": Setting(text, "dead letter exchange name", "x-dead-letter-exchange"),
    "dead-letter-routing-key": Setting(routing_key, "dead letter routing key", "x-dead-letter-routing-key"),
    "dead-letter-strategy": _idle(one_of("at-most-once", "at-least-once"), "dead letter strategy", "stream"),
    "message-ttl": _number(0, LIFE_MS_MAX, "message TTL", "x-message-ttl"),
    "expires": _number(1, LIFE_MS_MAX, "queue expiry", "x-expires"),
    "max-length": _number(0, LENGTH_MAX, "maximum length", "x-max-length"),
    "max-length-bytes": _number(0, LENGTH_MAX, "maximum length in bytes", "x-max-length-bytes", ()),
    "max-in-memory-length": _idle(_SIZE, "maximum memory in bytes", "stream"),
    "max-in-memory-bytes": _idle(_SIZE, "maximum memory in bytes", "stream"),
    "overflow": Setting(one_of("drop-head", "reject-publish", "reject-publish-dlx"), "overflow value", "x-overflow"),
    "delivery-limit": _number(0, LENGTH_MAX, "delivery limit", "x-delivery-limit"),
    "consumer-timeout": _number(1, DELAY_MS_MAX, "consumer timeout", "x-consumer-timeout"),
    "retry-delays": Setting(retry_delays, "list of retry delays", "x-retry-delays"),
    "queue-mode": _idle(one_of("default", "lazy"), "queue-mode value", "quorum", "stream"),
    "queue-version": _idle(integer(1, 2), "queue-version value"),
    "queue-master-locator": _idle(text, "queue master locator", "quorum", "stream"),
    "queue-leader-locator": _idle(one_of(*LOCATORS), "queue leader locator value", "classic"),
    "initial-cluster-size": _idle(_SIZE, "cluster size", "classic", "quorum"),
    "max-age": Setting(age, "max age", "x-max-age", not_of=("classic", "quorum")),
    "stream-max-segment-size-bytes": _idle(integer(0, SEGMENT_BYTES_MAX), "segment size", "classic", "quorum"),
}
"""All settings. Those without an argument mean nothing here, and are taken so that RabbitMQ's policies can be used;
alternate-exchange is about exchanges."""

ALTERNATE: Final = "alternate-exchange"

OPERATOR_SETTINGS: Final = (
    "expires",
    "message-ttl",
    "max-length",
    "max-length-bytes",
    "max-in-memory-length",
    "max-in-memory-bytes",
    "delivery-limit",
    "overflow",
)
"""The settings of operator policies."""

LEAST_WINS: Final = frozenset(OPERATOR_SETTINGS) - {"overflow"}
"""Settings whose smaller number counts where a policy and an operator policy have them; of others, the operator's."""


def check_policy(pattern: str, definition: Mapping[str, Any], priority: int, apply_to: str, is_operator: bool) -> None:
    """Make sure that a policy makes sense. The words are RabbitMQ's.

    Raises:
        InvalidRequest: it does not.
    """
    if len(pattern) > EXPRESSION_MAX:
        raise _refused(f"pattern is over {EXPRESSION_MAX} characters")
    fault = expression_fault(pattern)
    if fault is not None:
        what, place = getattr(fault, "msg", str(fault)), getattr(fault, "pos", 0)
        raise _refused(f'pattern should be regular expression but is invalid: {{"{what}",{place}}}')
    if not -PRIORITY_MAX <= priority <= PRIORITY_MAX:
        raise _refused(f"priority should be a number from {-PRIORITY_MAX} to {PRIORITY_MAX}")
    if apply_to not in APPLY_TO:
        known = ", ".join(f"'{each}'" for each in APPLY_TO[1:])
        raise _refused(f"apply-to '{apply_to}' unrecognised; should be {known} or 'all'")
    if not definition:
        raise _refused("no policy provided")
    known_here = OPERATOR_SETTINGS if is_operator else SETTINGS
    for name in sorted(definition):
        if name in known_here and SETTINGS[name].check(definition[name]) is not None:
            raise _refused(f"{erlang(definition[name])} is not a valid {SETTINGS[name].what}")
    unknown = [f"{{{erlang(name)},{erlang(value)}}}" for name, value in definition.items() if name not in known_here]
    if unknown:
        raise _refused(f"[{','.join(unknown)}] are not recognised policy settings")


def _refused(why: str) -> InvalidRequest:
    return InvalidRequest(f"{VALIDATION_FAILED}{why}\n")


def erlang(value: Any) -> str:
    """A value as RabbitMQ writes it in refusals."""
    if isinstance(value, str):
        return f'<<"{value}">>'
    if isinstance(value, dict):
        return "#{" + ",".join(f"{erlang(name)} => {erlang(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(erlang, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def merged(definition: Mapping[str, Any] | None, operator: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a policy and an operator policy say together."""
    found = dict(definition or {})
    for name, value in (operator or {}).items():
        found[name] = min(found[name], value) if name in LEAST_WINS and name in found else value
    return found


def overlay(arguments: Mapping[str, Any], settings: Mapping[str, Any], is_stream: bool) -> dict[str, Any]:
    """The arguments of a queue that settings change, with what they are then.

    Args:
        arguments: as declared.
        settings: of its policies, merged.
        is_stream: whether it is a stream.
    """
    changed: dict[str, Any] = {}
    for name, value in settings.items():
        setting = SETTINGS.get(name)
        if setting is None or not setting.argument:
            continue
        declared = arguments.get(setting.argument)
        wanted = value
        if declared is not None and not is_stream:
            wanted = min(declared, value) if setting.takes_least else declared
        if wanted != declared:
            changed[setting.argument] = wanted
    return changed


def applies_to_type(definition: Mapping[str, Any], type: str) -> bool:
    """Whether all settings mean something for queues of a type: else the policy is not theirs."""
    return all(name not in SETTINGS or type not in SETTINGS[name].not_of for name in definition)
