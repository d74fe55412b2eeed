"""A request as a value: checked, ready to be sent, and what its answer becomes."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from shardmq.client.api.results import (
    MessageCount,
    result_of,
)
from shardmq.protocol.native.operations.fields import ClientRequest

T = TypeVar("T")


Arguments = Mapping[str, Any] | None


Table = dict[str, Any]


class Request(Generic[T]):
    """A request of the program's, checked and ready to be sent.

    Attributes:
        what: the request in words, for the text of a timeout: "declaring queue 'work'".
        operation: what is asked; the connection gives it its numbers.
        shape: makes of the answer what the program gets.

    Raises:
        ProtocolError: by `shape`, for an answer that is none.
    """

    __slots__ = ("operation", "shape", "what")

    def __init__(self, what: str, shape: Callable[[object], T], operation: ClientRequest) -> None:
        self.what = what
        self.operation = operation
        self.shape = shape


def nothing(_: object) -> None:
    """The answer of a request that only succeeds or fails."""
    return


def counted(result: object) -> int:
    """The answer of a request that counts messages."""
    return result_of(MessageCount, result).messages
