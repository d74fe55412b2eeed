"""A database whose rows all have checksums, read and written by whoever has a transaction of LMDB."""

from collections.abc import Iterator
from pathlib import Path

import lmdb
from xxhash import xxh3_64_intdigest

from shardmq.errors import RowDamaged
from shardmq.storage.checksums import row_content, sealed_row


class Table:
    """One database of rows with checksums.

    Args:
        file: it is in.
        name: of the database.
        db: LMDB's handle of it.
    """

    def __init__(self, file: Path, name: bytes, db: lmdb._Database) -> None:
        self._file = file
        self._name = name
        self._number = xxh3_64_intdigest(name)
        self.db = db

    def get(self, read: lmdb.Transaction, key: bytes) -> bytes | None:
        """The content of a row; None where there is none.

        Raises:
            RowDamaged: it is not what was written.
        """
        value = read.get(key, db=self.db)
        return None if value is None else self._content(key, bytes(value))

    def pop(self, write: lmdb.Transaction, key: bytes) -> bytes | None:
        """Take a row out, as `get`."""
        value = write.pop(key, db=self.db)
        return None if value is None else self._content(key, bytes(value))

    def put(self, write: lmdb.Transaction, key: bytes, content: bytes) -> None:
        """Write a row."""
        write.put(key, self.sealed(key, content), db=self.db)

    def delete(self, write: lmdb.Transaction, key: bytes) -> None:
        """Take a row out, if it is there."""
        write.delete(key, db=self.db)

    def items(self, read: lmdb.Transaction, first: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All rows from a first key on, keys and contents, in order.

        Raises:
            RowDamaged: one is not what was written.
        """
        cursor = read.cursor(self.db)
        if not cursor.set_range(first):
            return
        for key, value in cursor.iternext(keys=True, values=True):
            name = bytes(key)
            yield name, self._content(name, bytes(value))

    def sealed(self, key: bytes, content: bytes) -> bytes:
        """What is stored of a row."""
        return sealed_row(self._number, key, content)

    def _content(self, key: bytes, value: bytes) -> bytes:
        content = row_content(self._number, key, value)
        if content is None:
            raise RowDamaged(self._file, self._name.decode(), key, "the row is not what was written")
        return content
