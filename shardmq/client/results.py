"""What the broker's answers say, checked."""

from typing import Any, TypeVar

import msgspec

from shardmq.errors import ProtocolError, ReplyCode


class QueueDeclared(msgspec.Struct, frozen=True):
    """A queue as it was when it was declared.

    Attributes:
        queue: its name.
        messages: ready in it.
        consumers: of it.
    """

    queue: str
    messages: int
    consumers: int


class MessageCount(msgspec.Struct, frozen=True):
    """How many messages a request concerned."""

    messages: int


_Result = TypeVar("_Result", bound=msgspec.Struct)


def result_of(kind: type[_Result], result: Any) -> _Result:
    """An answer's result as its type.

    Raises:
        ProtocolError: the server answered something else.
    """
    try:
        return msgspec.convert(result, kind)
    except msgspec.ValidationError as fault:
        raise ProtocolError(f"the server's answer is no {kind.__name__}: {fault}", ReplyCode.SYNTAX_ERROR) from fault
