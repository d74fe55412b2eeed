"""The payload of an entry: the edits of one commit, as msgpack."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from shardmq.errors import StoreDamaged

LoggedEdit = tuple[int, bytes, bytes | None]
"""An edit (storage/engine.py) whose value is a copy, good for as long as it is kept."""

encode_edits: Final[Callable[[list[LoggedEdit]], bytes]] = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[LoggedEdit]).decode


def edits_in(file: Path, payload: bytes, databases: int) -> list[LoggedEdit]:
    """Decode the edits of a commit.

    Args:
        file: the redo log, for the error.
        payload: of its entry.
        databases: how many the store has.

    Raises:
        StoreDamaged: they cannot be read, or are of a database that is not there.
    """
    try:
        edits = _decode(payload)
    except msgspec.DecodeError as fault:
        raise StoreDamaged(file, f"a commit in it cannot be read: {fault}") from fault
    if any(not 0 <= number < databases for number, _, _ in edits):
        raise StoreDamaged(file, "a commit in it is of a database that is not there")
    return edits
