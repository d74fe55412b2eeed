"""What the broker's answers say, checked."""

from typing import Any, TypeVar

import msgspec
from msgspec.structs import force_setattr

from shardmq.errors import ProtocolError, ReplyCode
from shardmq.limits import CHANNELS_MAX
from shardmq.wire.operations import PROTOCOL_VERSION, BasicDeliver


class ServerProperties(msgspec.Struct, frozen=True):
    """What the server said of itself when the connection opened."""

    product: str = ""
    version: str = ""
    protocol: int = PROTOCOL_VERSION
    heartbeat: int = 0
    frame_max: int = 0
    channel_max: int = CHANNELS_MAX


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


class _Consumer(msgspec.Struct, frozen=True):
    consumer: str


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


def started_consumer(result: Any) -> str:
    """A consumer's tag. Raises as `result_of`."""
    return result_of(_Consumer, result).consumer


def got(result: Any) -> BasicDeliver:
    """The message of a BasicGet. Raises as `result_of`."""
    table = result if isinstance(result, dict) else {}
    return _delivery({"deliveries": 0, **table}, "BasicGet")


def peeked(result: Any) -> list[BasicDeliver]:
    """The messages of a QueuePeek. Raises as `result_of`."""
    if not isinstance(result, list):
        raise ProtocolError("the server's answer to QueuePeek is no list", ReplyCode.SYNTAX_ERROR)
    frames = []
    for entry in result:
        table = entry if isinstance(entry, dict) else {}
        frame = _delivery({"deliveries": 0, **table, "tag": 1}, "QueuePeek")
        force_setattr(frame, "tag", 0)  # they have none
        frames.append(frame)
    return frames


def _delivery(table: dict[str, Any], request: str) -> BasicDeliver:
    try:
        return msgspec.convert([table.get(name) for name in BasicDeliver.__struct_fields__], BasicDeliver)
    except msgspec.ValidationError as fault:
        raise ProtocolError(f"the server's answer to {request}: {fault}", ReplyCode.SYNTAX_ERROR) from fault
