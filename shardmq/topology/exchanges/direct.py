"""Direct exchanges: a message goes where a binding key equals its routing key (AMQP 0-9-1, 3.1.3.1)."""

from collections.abc import Collection, Mapping
from typing import Any

from shardmq.message.properties import Properties
from shardmq.topology.exchanges.exchange_type import NONE, BindingCounts, Destination, ExchangeType


class Direct(ExchangeType):
    """Destinations by binding key."""

    __slots__ = ("_bound",)

    def __init__(self, arguments: Mapping[str, Any] = NONE) -> None:  # noqa: ARG002
        self._bound: dict[str, BindingCounts] = {}

    def add(self, key: str, destination: Destination, arguments: dict[str, Any]) -> None:  # noqa: ARG002
        self._bound.setdefault(key, BindingCounts()).bind(destination)

    def remove(self, key: str, destination: Destination, arguments: dict[str, Any]) -> None:  # noqa: ARG002
        bound = self._bound[key]
        bound.unbind(destination)
        if not bound:
            del self._bound[key]

    def match(self, routing_key: str, properties: Properties | None = None) -> Collection[Destination]:  # noqa: ARG002
        return self._bound.get(routing_key, ())

    @property
    def is_empty(self) -> bool:
        return not self._bound
