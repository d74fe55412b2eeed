"""The interfaces of what the core calls: the same for threads and for asyncio."""

from typing import Protocol, TypeVar

from shardmq.client.api.message import Delivery
from shardmq.client.api.recovery import Recovered
from shardmq.errors import ShardmqError, Unroutable
from shardmq.protocol.native.operations.basic import BasicReturn

T_contra = TypeVar("T_contra", contravariant=True)


class Reply(Protocol[T_contra]):
    """One answer that is waited for. An asyncio.Future is one."""

    def done(self) -> bool:
        """Whether it is settled, or nobody waits any more."""

    def set_result(self, result: T_contra, /) -> None:
        """The request was carried out."""

    def set_exception(self, error: ShardmqError, /) -> None:
        """The request was refused, or its channel or connection ended."""


class Confirms(Protocol):
    """Counts the confirms of its publishes."""

    def settled(self, count: int, error: ShardmqError | None, taken: int = 0) -> None:
        """Count messages as confirmed; or as refused, but for the first `taken` of them."""

    def returned(self, count: int, error: Unroutable) -> bool:
        """Count messages that came back, before their confirm; returns whether the hook for returns gets them."""


class Inbox(Protocol):
    """Takes a consumer's deliveries."""

    def deliver(self, delivery: Delivery) -> None:
        """Take messages."""

    def end(self, error: ShardmqError | None) -> None:
        """Note that no more messages come, and why; None where the consumer was cancelled."""


class Observer(Protocol):
    """Is told what happens to the connection. It is called under the core's lock: it takes notes, and acts later."""

    def confirmed(self, channel: int, messages: int) -> None:
        """Note that messages published on a channel were confirmed."""

    def returned(self, frame: BasicReturn) -> None:
        """Note that mandatory messages came back."""

    def blocked(self, reason: str) -> None:
        """Note that the broker takes no publishes for now."""

    def unblocked(self) -> None:
        """Note that the broker takes publishes again, or that the connection on which it took none is gone."""

    def lost(self, error: ShardmqError) -> None:
        """Note that the connection is lost, or ended for good."""

    def recovered(self, recovered: Recovered) -> None:
        """Note that the connection is back, with all that it had declared."""


class Unobserved:
    """An observer that does nothing."""

    def confirmed(self, channel: int, messages: int) -> None:
        """Do nothing."""

    def returned(self, frame: BasicReturn) -> None:
        """Do nothing."""

    def blocked(self, reason: str) -> None:
        """Do nothing."""

    def unblocked(self) -> None:
        """Do nothing."""

    def lost(self, error: ShardmqError) -> None:
        """Do nothing."""

    def recovered(self, recovered: Recovered) -> None:
        """Do nothing."""


def again(error: ShardmqError) -> ShardmqError:
    """A fresh exception that says the same: each thread that meets a fault raises its own."""
    fresh = error.with_text(error.text)
    fresh.__cause__ = error
    return fresh


class IgnoredReply:
    """A reply that nobody waits for."""

    def done(self) -> bool:
        """True: nobody waits."""
        return True

    def set_result(self, _result: object, /) -> None:
        """Do nothing."""

    def set_exception(self, _error: ShardmqError, /) -> None:
        """Do nothing."""
