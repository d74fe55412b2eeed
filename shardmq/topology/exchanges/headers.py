"""Headers exchanges: a message goes where its headers equal those a binding's arguments ask for (AMQP 0-9-1, 3.1.3.4).

The argument `x-match` says how: `all` (also when it is missing) or `any` of the others, those that begin with `x-` left
out; `all-with-x` and `any-with-x` count these, too. An argument without a value asks for the header to be there. A
binding that asks for nothing matches every message with `all`, none with `any`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from shardmq.errors import PreconditionFailed
from shardmq.message.properties import Properties
from shardmq.topology.exchanges.exchange_type import NONE, Destination, ExchangeType

MATCH: Final = "x-match"
HOWS: Final[dict[str, Callable[[Iterable[bool]], bool]]] = {
    "all": all,
    "any": any,
    "all-with-x": all,
    "any-with-x": any,
}
"""What `x-match` may be."""

_encode_sorted = msgspec.msgpack.Encoder(order="sorted").encode


class _Wish:
    """What one binding asks for."""

    __slots__ = ("combine", "destination", "headers")

    def __init__(self, destination: Destination, arguments: Mapping[str, Any]) -> None:
        how = arguments.get(MATCH, "all")
        with_x = how.endswith("-with-x")
        self.destination = destination
        self.combine = HOWS[how]
        self.headers = [
            (name, value)
            for name, value in arguments.items()
            if name != MATCH and (with_x or not name.startswith("x-"))
        ]

    def is_met(self, headers: Mapping[str, Any]) -> bool:
        return self.combine(
            name in headers and (value is None or equal(headers[name], value)) for name, value in self.headers
        )


class Headers(ExchangeType):
    """The bindings, looked at one after the other."""

    __slots__ = ("_wishes",)

    def __init__(self, arguments: Mapping[str, Any] = NONE) -> None:  # noqa: ARG002
        self._wishes: dict[tuple[str, Destination, bytes], _Wish] = {}

    def add(self, key: str, destination: Destination, arguments: dict[str, Any]) -> None:
        self._wishes[key, destination, _encode_sorted(arguments)] = _Wish(destination, arguments)

    def remove(self, key: str, destination: Destination, arguments: dict[str, Any]) -> None:
        del self._wishes[key, destination, _encode_sorted(arguments)]

    def match(self, routing_key: str, properties: Properties | None = None) -> Collection[Destination]:  # noqa: ARG002
        headers = (properties.headers if properties is not None else None) or NONE
        return {wish.destination: None for wish in self._wishes.values() if wish.is_met(headers)}

    @property
    def is_empty(self) -> bool:
        return not self._wishes

    @property
    def needs_message(self) -> bool:
        return True

    @staticmethod
    def check_binding(key: str, arguments: Mapping[str, Any]) -> None:  # noqa: ARG004
        how = arguments.get(MATCH, "all")
        if not isinstance(how, str) or how not in HOWS:
            raise PreconditionFailed(f"invalid x-match field value {how!r}; expected one of {', '.join(HOWS)}")


def equal(left: Any, right: Any) -> bool:
    """Equal as RabbitMQ has it: numbers by their value, whatever their width, and True is none; text by its bytes.

    A decimal equals its text: that is what it is among a binding's arguments, once those have travelled.
    """
    if type(left) is type(right):
        if isinstance(left, list):
            return len(left) == len(right) and all(map(equal, left, right))
        if isinstance(left, dict):
            return left.keys() == right.keys() and all(equal(value, right[name]) for name, value in left.items())
        return bool(left == right)
    if isinstance(left, bool) or isinstance(right, bool):
        return False
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        return str(left) == str(right)
    if isinstance(left, str) and isinstance(right, bytes):
        return left.encode() == right
    if isinstance(left, bytes) and isinstance(right, str):
        return left == right.encode()
    return isinstance(left, int | float) and isinstance(right, int | float) and left == right
