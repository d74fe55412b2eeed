"""Direct exchanges: a message goes to the queues bound with exactly its routing key (AMQP 0-9-1, 3.1.3.1)."""

from collections.abc import Collection
from typing import Any

from shardmq.routing.exchange_type import BoundQueues, ExchangeType


class Direct(ExchangeType):
    """Binding key -> queues."""

    __slots__ = ("_bound",)

    def __init__(self) -> None:
        self._bound: dict[str, BoundQueues] = {}

    def add(self, key: str, queue: int, arguments: dict[str, Any]) -> None:  # noqa: ARG002
        self._bound.setdefault(key, BoundQueues()).bind(queue)

    def remove(self, key: str, queue: int, arguments: dict[str, Any]) -> None:  # noqa: ARG002
        bound = self._bound[key]
        bound.unbind(queue)
        if not bound:
            del self._bound[key]

    def match(self, routing_key: str) -> Collection[int]:
        return self._bound.get(routing_key, ())

    @property
    def is_empty(self) -> bool:
        return not self._bound
