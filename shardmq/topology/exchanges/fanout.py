"""Fanout exchanges: a message goes to everything bound, whatever the keys (AMQP 0-9-1, 3.1.3.2)."""

from collections.abc import Collection, Mapping
from typing import Any

from shardmq.message.properties import Properties
from shardmq.topology.exchanges.exchange_type import NONE, BindingCounts, Destination, ExchangeType


class Fanout(ExchangeType):
    """All destinations."""

    __slots__ = ("_bound",)

    def __init__(self, arguments: Mapping[str, Any] = NONE) -> None:  # noqa: ARG002
        self._bound = BindingCounts()

    def add(self, key: str, destination: Destination, arguments: dict[str, Any]) -> None:  # noqa: ARG002
        self._bound.bind(destination)

    def remove(self, key: str, destination: Destination, arguments: dict[str, Any]) -> None:  # noqa: ARG002
        self._bound.unbind(destination)

    def match(self, routing_key: str, properties: Properties | None = None) -> Collection[Destination]:  # noqa: ARG002
        return self._bound

    @property
    def is_empty(self) -> bool:
        return not self._bound
