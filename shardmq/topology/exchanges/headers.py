"""Headers exchanges: a message goes where its headers equal a binding's arguments (AMQP 0-9-1, 3.1.3.4).

The argument `x-match` says how many have to be equal: `all`, which is the default, or `any`. Arguments whose names
begin with `x-` do not count; with `all-with-x` and `any-with-x` they do. An argument without a value asks for a header
of that name with any value. A binding without arguments that count matches every message with `all`, and none with
`any`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from shardmq.errors import PreconditionFailed
from shardmq.message.properties import Properties
from shardmq.topology.exchanges.exchange_type import NONE, Destination, ExchangeType

MATCH: Final = "x-match"
"""The argument that says how many headers have to be equal."""

HOWS: Final[dict[str, Callable[[Iterable[bool]], bool]]] = {
    "all": all,
    "any": any,
    "all-with-x": all,
    "any-with-x": any,
}
"""The values of `x-match`."""

_encode_sorted = msgspec.msgpack.Encoder(order="sorted").encode


class _Wanted:
    """The headers that one binding asks for."""

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
    """The bindings, compared one after the other."""

    __slots__ = ("_wanted",)

    def __init__(self, arguments: Mapping[str, Any] = NONE) -> None:  # noqa: ARG002
        self._wanted: dict[tuple[str, Destination, bytes], _Wanted] = {}

    def add(self, key: str, destination: Destination, arguments: dict[str, Any]) -> None:
        self._wanted[key, destination, _encode_sorted(arguments)] = _Wanted(destination, arguments)

    def remove(self, key: str, destination: Destination, arguments: dict[str, Any]) -> None:
        del self._wanted[key, destination, _encode_sorted(arguments)]

    def match(self, routing_key: str, properties: Properties | None = None) -> Collection[Destination]:  # noqa: ARG002
        headers = (properties.headers if properties is not None else None) or NONE
        return {wanted.destination: None for wanted in self._wanted.values() if wanted.is_met(headers)}

    @property
    def is_empty(self) -> bool:
        return not self._wanted

    @property
    def needs_message(self) -> bool:
        return True

    @staticmethod
    def check_binding(key: str, arguments: Mapping[str, Any]) -> None:  # noqa: ARG004
        how = arguments.get(MATCH, "all")
        if not isinstance(how, str) or how not in HOWS:
            raise PreconditionFailed(f"invalid x-match field value {how!r}; expected one of {', '.join(HOWS)}")


def equal(left: Any, right: Any) -> bool:
    """Whether two values are equal to RabbitMQ: numbers by value, whatever their width, texts by their bytes.

    Booleans are no numbers. A decimal equals its text, as decimals among a binding's arguments are stored as texts.
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
