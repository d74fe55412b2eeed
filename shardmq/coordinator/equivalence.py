"""Declaring again what is there: fine with the same arguments, refused with others, in RabbitMQ's words."""

from typing import Any

from shardmq.errors import PreconditionFailed


def check_same(thing: str, asked: dict[str, Any], there: dict[str, Any]) -> None:
    """Refuse declaring again with other arguments.

    Args:
        thing: what is declared, as "queue 'q' in vhost '/'".
        asked: its arguments and attributes, by RabbitMQ's names.
        there: those of the one that is there.

    Raises:
        PreconditionFailed: they differ.
    """
    for name in {**there, **asked}:
        received, current = asked.get(name), there.get(name)
        if type(received) is not type(current) or received != current:
            raise PreconditionFailed(
                f"inequivalent arg '{name}' for {thing}: received {_shown(received)} but current is {_shown(current)}"
            )


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return f"'{str(value).lower() if isinstance(value, bool) else value}'"
