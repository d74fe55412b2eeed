"""Rows with checksums: LMDB has none.

    value       checksum u64 | content

The checksum is over the database, the key and the content: a row that lies at another key, or in another database, is
as damaged as one with other content. The key's hash is the seed of the content's, so that a body is gone through once.
"""

from struct import Struct
from typing import Final

from xxhash import xxh3_64_digest, xxh3_64_intdigest

CHECKSUM_BYTES: Final = 8

_CHECKSUM: Final = Struct(">Q")


def row_seed(database: int, key: bytes) -> int:
    """Return the seed of the checksum of a row's content.

    Args:
        database: its number, the same forever.
        key: of the row.
    """
    return xxh3_64_intdigest(key, database)


def sealed_row(database: int, key: bytes, content: bytes | bytearray | memoryview) -> bytes:
    """The value of a row."""
    return xxh3_64_digest(content, xxh3_64_intdigest(key, database)) + content


def seal_row(database: int, key: bytes, value: bytearray) -> None:
    """Write the checksum of what lies behind it into a value."""
    with memoryview(value) as view:
        _CHECKSUM.pack_into(value, 0, xxh3_64_intdigest(view[CHECKSUM_BYTES:], xxh3_64_intdigest(key, database)))


def row_content(database: int, key: bytes, value: bytes) -> bytes | None:
    """The content of a row; None where it is not what was written."""
    content = value[CHECKSUM_BYTES:]
    if value[:CHECKSUM_BYTES] != xxh3_64_digest(content, xxh3_64_intdigest(key, database)):
        return None
    return content


def is_row(database: int, key: bytes, value: memoryview) -> bool:
    """Whether a row is what was written."""
    with value[CHECKSUM_BYTES:] as content:
        return value[:CHECKSUM_BYTES] == xxh3_64_digest(content, xxh3_64_intdigest(key, database))


def was_row(value: memoryview) -> bool:
    """Whether it is what the first version wrote, with a checksum over the content alone.

    No damage makes such a value of one with a checksum over all.
    """
    with value[CHECKSUM_BYTES:] as content:
        return value[:CHECKSUM_BYTES] == xxh3_64_digest(content)
