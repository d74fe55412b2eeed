"""Values of arguments and headers as JSON has them."""

import base64
import datetime
from typing import Any

from msgspec.msgpack import Ext


def other(value: Any) -> Any:
    """What JSON has no word for: a decimal of AMQP, a set."""
    if isinstance(value, Ext):
        return bytes(value.data).decode(errors="replace")
    if isinstance(value, datetime.datetime):
        return int(value.timestamp())
    if isinstance(value, memoryview | bytearray):
        return base64.b64encode(value).decode()
    return str(value)


def plain(value: Any) -> Any:
    """A value of arguments or headers, as RabbitMQ's JSON has it: times are seconds, bytes are text."""
    match value:
        case dict():
            return {str(name): plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
        case bytes():
            return value.decode(errors="replace")
        case None | bool() | int() | float() | str():
            return value
        case _:
            return other(value)
