"""What the core asks of those who wait: the same for threads and for asyncio."""

from typing import Any, Protocol

from shardmq.client.deliveries import Delivery
from shardmq.errors import ShardmqError


class Reply(Protocol):
    """Somebody waiting for one answer. An asyncio.Future is one."""

    def done(self) -> bool:
        """Whether it is settled, or nobody waits any more."""

    def set_result(self, result: Any, /) -> None:
        """The request was carried out."""

    def set_exception(self, error: Any, /) -> None:
        """It was not."""


class Confirms(Protocol):
    """Who counts the confirms of what it published."""

    def settled(self, count: int, error: ShardmqError | None) -> None:
        """So many of its messages are confirmed, or refused."""


class Inbox(Protocol):
    """Where a consumer's deliveries go."""

    def deliver(self, delivery: Delivery) -> None:
        """Messages have come."""

    def end(self, error: ShardmqError | None) -> None:
        """None will come any more; why, unless that was asked for."""
