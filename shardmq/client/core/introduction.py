"""What a program says of itself when it connects."""

import os
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from shardmq.errors import InvalidRequest


def client_properties(more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What the broker shows of this program in lists of connections.

    Raises:
        InvalidRequest: a property has no place in msgpack.
    """
    own = {"product": "shardmq-python", "python": sys.version.split()[0], "pid": os.getpid()}
    told = {**own, **(more or {}), "record_keys": True, "answers_lost": True}
    try:
        msgspec.msgpack.encode(told)
    except (TypeError, OverflowError) as fault:
        raise InvalidRequest(f"the connection's properties cannot be sent: {fault}; give texts and numbers") from fault
    return told
