"""Fanout exchanges: a message goes to every queue bound, whatever the keys (AMQP 0-9-1, 3.1.3.2)."""

from collections.abc import Collection
from typing import Any

from shardmq.routing.exchange_type import BoundQueues, ExchangeType


class Fanout(ExchangeType):
    """The queues, nothing else."""

    __slots__ = ("_bound",)

    def __init__(self) -> None:
        self._bound = BoundQueues()

    def add(self, key: str, queue: int, arguments: dict[str, Any]) -> None:  # noqa: ARG002
        self._bound.bind(queue)

    def remove(self, key: str, queue: int, arguments: dict[str, Any]) -> None:  # noqa: ARG002
        self._bound.unbind(queue)

    def match(self, routing_key: str) -> Collection[int]:  # noqa: ARG002
        return self._bound

    @property
    def is_empty(self) -> bool:
        return not self._bound
