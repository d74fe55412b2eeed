"""What one commit of the coordinator writes: edits, and reads that see them."""

from collections.abc import Iterator
from typing import Protocol

Edits = dict[bytes, dict[bytes, bytes | None]]
"""By database and key: the new content, or None where the row is deleted."""


class Rows(Protocol):
    """What is in the store."""

    def get(self, database: bytes, key: bytes) -> bytes | None:
        """The content of a row; None where there is none."""

    def scan(self, database: bytes, first: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Rows in order of their keys, from a first key on."""


class WriteBatch:
    """Edits that are written together, in any number of steps that build on one another.

    Args:
        rows: what is in the store before.

    Attributes:
        edits: so far.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.edits: Edits = {}

    def get(self, database: bytes, key: bytes) -> bytes | None:
        """The content of a row as it will be; None where there will be none."""
        edited = self.edits.get(database, {})
        return edited[key] if key in edited else self._rows.get(database, key)

    def put(self, database: bytes, key: bytes, content: bytes) -> None:
        """Write a row."""
        self.edits.setdefault(database, {})[key] = content

    def delete(self, database: bytes, key: bytes) -> None:
        """Delete a row, if there is one."""
        self.edits.setdefault(database, {})[key] = None

    def has_prefix(self, database: bytes, prefix: bytes) -> bool:
        """Whether there will be a row whose key begins so."""
        edited = self.edits.get(database, {})
        for key, _ in self._rows.scan(database, prefix):
            if not key.startswith(prefix):
                break
            if key not in edited:
                return True
        return any(content is not None and key.startswith(prefix) for key, content in edited.items())
