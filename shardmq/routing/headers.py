"""Headers exchanges: a message goes where its headers equal those a binding's arguments ask for (AMQP 0-9-1, 3.1.3.4).

The argument `x-match` says how: `all` (also when it is missing) or `any` of the others, those that begin with `x-` left
out; `all-with-x` and `any-with-x` count these, too. An argument without a value asks for the header to be there. A
binding that asks for nothing matches every message with `all`, none with `any`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from shardmq.records import Properties
from shardmq.routing.exchange_type import NONE, Destination, ExchangeType

MATCH: Final = "x-match"
HOWS: Final[dict[str, Callable[[Iterable[bool]], bool]]] = {
    "all": all, "any": any, "all-with-x": all, "any-with-x": any,
}  # fmt: skip
"""What `x-match` may be."""


class _Wish:
    """What one binding asks for."""

    __slots__ = ("combine", "destination", "headers")

    def __init__(self, destination: Destination, arguments: Mapping[str, Any]) -> None:
        how = arguments.get(MATCH, "all")
        with_x = how.endswith("-with-x")
        self.destination = destination
        self.combine = HOWS[how]
        self.headers = [(name, value) for name, value in arguments.items()
                        if name != MATCH and (with_x or not name.startswith("x-"))]  # fmt: skip

    def is_met(self, headers: Mapping[str, Any]) -> bool:
        return self.combine(name in headers and (value is None or _equal(headers[name], value))
                            for name, value in self.headers)  # fmt: skip


class Headers(ExchangeType):
    """The bindings, looked at one after the other."""

    __slots__ = ("_wishes",)

    def __init__(self, arguments: Mapping[str, Any] = NONE) -> None:  # noqa: ARG002
        self._wishes: list[tuple[str, Destination, dict[str, Any], _Wish]] = []

    def add(self, key: str, destination: Destination, arguments: dict[str, Any]) -> None:
        self._wishes.append((key, destination, arguments, _Wish(destination, arguments)))

    def remove(self, key: str, destination: Destination, arguments: dict[str, Any]) -> None:
        for place, entry in enumerate(self._wishes):
            if entry[:3] == (key, destination, arguments):
                del self._wishes[place]
                return
        raise KeyError(key)

    def match(self, routing_key: str, properties: Properties | None = None) -> Collection[Destination]:  # noqa: ARG002
        headers = properties.headers if properties is not None else None
        return {wish.destination: None for *_, wish in self._wishes if wish.is_met(headers or NONE)}

    @property
    def by_message(self) -> bool:
        return True


def _equal(left: Any, right: Any) -> bool:
    """1 is no True and no 1.0 here: types count, as in AMQP."""
    return type(left) is type(right) and bool(left == right)
