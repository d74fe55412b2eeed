"""What clients say of themselves, shared and cut to size."""

from functools import lru_cache
from typing import Any, Final

import msgspec

from shardmq.errors import RequestError
from shardmq.topology.entities import check_nesting

CLIENT_PROPERTIES_BYTES_MAX: Final = 4096
"""What a client may say of itself and have it kept, as msgpack; 5,000 connections make 20 MB of it at most."""

CLIENTS_KNOWN: Final = 1024
"""Connections of one program say the same of themselves, and share it: so many that are different."""


def short(properties: dict[str, Any]) -> bytes:
    """What is kept of what a client says of itself, as msgpack: all, or nothing where it is too much or no table of
    names.
    """
    try:
        check_nesting(properties)
        kept = msgspec.msgpack.encode(_plain(properties))
    except (RequestError, RecursionError):
        kept = NOTHING
    return _shared(kept) if len(kept) <= CLIENT_PROPERTIES_BYTES_MAX else NOTHING


NOTHING: Final = msgspec.msgpack.encode({})


@lru_cache(maxsize=CLIENTS_KNOWN)
def _shared(kept: bytes) -> bytes:
    return kept


def _plain(value: Any) -> Any:
    """A value that every reader of lists knows: AMQP has types of its own."""
    match value:
        case dict():
            return {name: _plain(inner) for name, inner in value.items()}
        case list():
            return [_plain(inner) for inner in value]
        case str():
            return value.encode(errors="replace").decode()
        case bytes():
            return value.decode(errors="replace")
        case None | bool() | int() | float():
            return value
        case _:
            return str(value)
