"""What the core asks of those around it: the same for threads and for asyncio."""

from typing import Protocol, TypeVar

from shardmq.client.api.message import Delivery
from shardmq.client.api.recovery import Recovered
from shardmq.errors import ShardmqError, Unroutable
from shardmq.protocol.native.operations.basic import BasicReturn

T_contra = TypeVar("T_contra", contravariant=True)


class Reply(Protocol[T_contra]):
    """Somebody waiting for one answer. An asyncio.Future is one."""

    def done(self) -> bool:
        """Whether it is settled, or nobody waits any more."""

    def set_result(self, result: T_contra, /) -> None:
        """The request was carried out."""

    def set_exception(self, error: ShardmqError, /) -> None:
        """The request was refused, or its channel or connection ended."""


class Confirms(Protocol):
    """Who counts the confirms of what it published."""

    def settled(self, count: int, error: ShardmqError | None, taken: int = 0) -> None:
        """So many of its messages are confirmed; or refused, but for the first `taken` of them."""

    def returned(self, count: int, error: Unroutable) -> bool:
        """So many came back; their confirm is behind it. Whether the hook for returns is to hear of it."""


class Inbox(Protocol):
    """Where a consumer's deliveries go."""

    def deliver(self, delivery: Delivery) -> None:
        """Messages have come."""

    def end(self, error: ShardmqError | None) -> None:
        """None will come any more; why, unless that was asked for."""


class Observer(Protocol):
    """Who is told what happens to the connection. Called in the middle of things: it notes, and acts later."""

    def confirmed(self, channel: int, messages: int) -> None:
        """Messages published on a channel were confirmed."""

    def returned(self, frame: BasicReturn) -> None:
        """Mandatory messages came back."""

    def blocked(self, reason: str) -> None:
        """The broker takes no publishes for now."""

    def unblocked(self) -> None:
        """It does again."""

    def lost(self, error: ShardmqError) -> None:
        """The connection is lost, or ended for good."""

    def recovered(self, recovered: Recovered) -> None:
        """It is back, with all that it had declared."""


class Unobserved:
    """Nobody is told."""

    def confirmed(self, channel: int, messages: int) -> None:
        """Nothing."""

    def returned(self, frame: BasicReturn) -> None:
        """Nothing."""

    def blocked(self, reason: str) -> None:
        """Nothing."""

    def unblocked(self) -> None:
        """Nothing."""

    def lost(self, error: ShardmqError) -> None:
        """Nothing."""

    def recovered(self, recovered: Recovered) -> None:
        """Nothing."""


def again(error: ShardmqError) -> ShardmqError:
    """A fresh exception that says the same: each thread that meets a fault raises its own."""
    fresh = error.with_text(error.text)
    fresh.__cause__ = error
    return fresh


class IgnoredReply:
    """A reply that nobody waits for."""

    def done(self) -> bool:
        """Nobody waits."""
        return True

    def set_result(self, _result: object, /) -> None:
        """Nobody is told."""

    def set_exception(self, _error: ShardmqError, /) -> None:
        """Nobody is told."""
