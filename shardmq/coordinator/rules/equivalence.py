"""Declaring again what is there: fine with the same arguments, refused with others, in RabbitMQ's words."""

from typing import Any, Final

from shardmq.errors import PreconditionFailed


def check_same(thing: str, asked: dict[str, Any], there: dict[str, Any]) -> None:
    """Refuse declaring again with other arguments.

    Args:
        thing: what is declared, such as "queue 'q' in vhost '/'".
        asked: its arguments and attributes, by RabbitMQ's names.
        there: those of the one that is there.

    Raises:
        PreconditionFailed: they differ.
    """
    for name in {**there, **asked}:
        received, current = asked.get(name), there.get(name)
        if type(received) is not type(current) or received != current:
            raise PreconditionFailed(
                f"inequivalent arg '{name}' for {thing}: "
                f"received {_shown(received, current)} but current is {_shown(current, received)}"
            )


def _shown(value: Any, other: Any) -> str:
    """A value beside another; its type is told where there is no other."""
    if value is None:
        return "none"
    shown = f"'{str(value).lower() if isinstance(value, bool) else value}'"
    return shown if other is not None else f"the value {shown} of type '{_type_of(value)}'"


def _type_of(value: Any) -> str:
    """The name of a value's type in RabbitMQ's error texts."""
    if type(value) is int:
        return "signedint" if -(2**31) <= value < 2**31 else "long"
    return _TYPES.get(type(value), type(value).__name__)


_TYPES: Final = {str: "longstr", bool: "bool", float: "double", bytes: "binary", dict: "table", list: "array"}
