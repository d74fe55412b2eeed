"""Rows of a shard's store, read through the engine and checked: what is not what was written is never decoded."""

import struct
from collections.abc import Callable
from typing import TypeVar

import msgspec

from shardmq.errors import RowDamaged
from shardmq.shards.storage.decoding import cursor_of, damage_of
from shardmq.shards.storage.schema import CURSORS, DAMAGED, DATABASES, ROWS, STATE, number_of, queue_of
from shardmq.storage.checksums import CHECKSUM_BYTES, is_row, row_content, was_row
from shardmq.storage.engine import Engine

Decoded = TypeVar("Decoded")


class Rows:
    """Reads small rows whole and checks bodies.

    Args:
        engine: where they are.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def all(self, database: int, decode: Callable[[bytes, bytes], Decoded], damaged: list[RowDamaged]) -> list[Decoded]:
        """Read all rows of a database.

        Args:
            database: its number.
            decode: called with key and content.
            damaged: gets the damaged rows that belong to one queue.

        Raises:
            RowDamaged: a row is not what was written, and belongs to no queue.
        """
        found = []
        for key, value in self._engine.scan(database):
            try:
                found.append(self._decoded(database, key, bytes(value), decode))
            except RowDamaged as damage:
                if damage.queue is None:
                    raise
                damaged.append(damage)
        return found

    def damaged_cursors(self, written: bytes) -> list[tuple[bytes, bytes]]:
        """Find the damaged rows that were written at a cursor's key: keys as they are now, and values."""
        found = []
        for key, value in self._engine.scan(CURSORS):
            try:
                self._decoded(CURSORS, key, bytes(value), cursor_of)
            except RowDamaged as damage:
                if damage.key == written:
                    found.append((bytes(key), bytes(value)))
        return found

    def state(self, key: bytes, decode: Callable[[bytes], Decoded]) -> Decoded | None:
        """Read a row of `state`; None where there is none.

        Raises:
            RowDamaged: it is not what was written.
        """
        value = self._engine.get(STATE, key)
        return None if value is None else self._decoded(STATE, key, bytes(value), lambda _, content: decode(content))

    def _decoded(self, database: int, key: bytes, value: bytes, decode: Callable[[bytes, bytes], Decoded]) -> Decoded:
        content = row_content(database, key, value)
        if content is None:
            written = _written_key(database, key, value) if database == CURSORS else key
            raise self.damage(database, written, f"{ROWS[database]} is not what was written")
        try:
            return decode(key, content)
        except (msgspec.DecodeError, struct.error, ValueError) as fault:
            raise self.damage(database, key, f"{ROWS[database]} cannot be read: {fault}") from fault

    def body(
        self, database: int, key: bytes, value: memoryview, decode: Callable[[memoryview], Decoded], what: object
    ) -> Decoded:
        """Decode a body.

        Raises:
            RowDamaged: it is not what was written; the text names `what`.
        """
        self.check_body(database, key, value, what)
        with value[CHECKSUM_BYTES:] as body:
            try:
                return decode(body)
            except msgspec.DecodeError as fault:
                raise self.damage(database, key, f"{what!r} cannot be read: {fault}") from fault

    def check_body(self, database: int, key: bytes, value: memoryview, what: object) -> None:
        """Check a body; the first version's checksums do not cover the key.

        Raises:
            RowDamaged: it is not what was written; the text names `what`.
        """
        if not (is_row(database, key, value) or was_row(value)):
            raise self.damage(database, key, f"{what!r} is not what was written")

    def shared_records(self, database: int, key: bytes, queue: int | None) -> memoryview:
        """Find a shared body and check it. The view is good until the store is written to.

        Args:
            database: SHARED or SPILLED_SHARED.
            key: of the body.
            queue: id of the queue it is read for; None where it is staged.

        Raises:
            RowDamaged: it is not there, or not what was written.
        """
        value = self._engine.get(database, key)
        if value is None:
            raise self.damage(database, key, f"{ROWS[database]} is not there", queue)
        if not is_row(database, key, value):
            raise self.damage(database, key, f"{ROWS[database]} is not what was written", queue)
        return value[CHECKSUM_BYTES:]

    def noted_damage(self, key: bytes, content: bytes) -> RowDamaged | None:
        """Decode a row of `state`: the damage noted of a queue that is out of service; None for other rows."""
        if not key.startswith(DAMAGED):
            return None
        database, row, what = damage_of(content)
        return RowDamaged(self._engine.file, database, row, what, number_of(key[len(DAMAGED) :]))

    def damage(self, database: int, key: bytes, what: str, queue: int | None = None) -> RowDamaged:
        """Return the error for a damaged row, with the queue it belongs to, or that it was read for."""
        owner = queue_of(database, key) if queue is None else queue
        return RowDamaged(self._engine.file, DATABASES[database].decode(), key, what, owner)


def _written_key(database: int, key: bytes, value: bytes) -> bytes:
    """Return the key that a damaged row was written at, where one bit of it is wrong and nothing else; else its key.

    The checksum tells. A cursor whose key names another partition would be missed by nobody, and its group begin anew.
    """
    for bit in range(8 * len(key)):
        other = bytearray(key)
        other[bit // 8] ^= 1 << bit % 8
        if row_content(database, bytes(other), value) is not None:
            return bytes(other)
    return key
