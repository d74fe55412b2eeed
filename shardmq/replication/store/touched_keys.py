"""The keys that records touched which may not be on all replicas.

    notes       "touched" | slot u32     msgpack [index, [[database, key], ...]]

A replica that rejoins may have records that the primary never had. To undo one, it needs no more than the keys that the
record touched: it fetches their rows. So the keys are in the same commit as the record's edits, and are forgotten when
the record is released. A slot whose record is released is written over by a later record: a row costs no deletion,
unless it is a large one.
"""

from collections import deque
from collections.abc import Iterable
from struct import Struct
from struct import error as StructError
from typing import Final

import msgspec

from shardmq.replication.core.messages import Touched
from shardmq.replication.core.note import Key
from shardmq.replication.store.note import NOTE, damaged, decode_note, replicas_of
from shardmq.storage.engine import Edit, Engine

TOUCHED: Final = b"touched"

SLOT_BYTES_MAX: Final = 4096
"""A row that is larger is deleted when its record is released; others wait for a record that needs their slot."""

SLOTS_MAX: Final = 4096
"""Slots of records that are released are kept up to this number, and deleted beyond it."""

_SLOT: Final = Struct(f">{len(TOUCHED)}sI")
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Touched).decode


class TouchedKeys:
    """The rows of touched keys of one store.

    Args:
        engine: whose; its redo log is open.
        released: see `Note`.

    Attributes:
        floor: the keys of every record above this index are known.

    Raises:
        StoreRefused: a row is not what was written.
    """

    def __init__(self, engine: Engine, released: int) -> None:
        self._engine = engine
        self._notes = replicas_of(engine).notes
        self._used: deque[tuple[int, int, int]] = deque()  # index, slot, bytes; by index
        self._free: list[int] = []
        self._gone: list[int] = []  # slots whose rows are to be deleted
        self._slots = 0  # numbers below were given
        self.floor = released
        found = []
        for slot, index, keys in self._rows():
            self._slots = max(self._slots, slot + 1)
            if index > released:
                found.append((index, slot, _size(keys)))
        self._used.extend(sorted(found))
        taken = {slot for _, slot, _ in found}
        self._free = [slot for slot in range(self._slots) if slot not in taken]

    def edits(self, index: int, keys: tuple[Key, ...]) -> list[Edit]:
        """Return the edits that note which keys a record touches."""
        slot = self._free.pop() if self._free else self._new_slot()
        row = _encode((index, keys))
        self._used.append((index, slot, len(row)))
        edits: list[Edit] = [(self._notes, _SLOT.pack(TOUCHED, slot), row)]
        if self._gone:
            edits += [(self._notes, _SLOT.pack(TOUCHED, gone), None) for gone in self._gone]
            self._free += self._gone
            self._gone.clear()
        return edits

    def release(self, index: int) -> None:
        """Forget the keys of records up to an index: they are on all replicas. Nothing is written by that."""
        used, free = self._used, self._free
        while used and used[0][0] <= index:
            _, slot, size = used.popleft()
            if size > SLOT_BYTES_MAX or slot >= SLOTS_MAX:
                self._gone.append(slot)
            else:
                free.append(slot)
        self.floor = max(self.floor, index)

    def drop_above(self, index: int) -> list[Edit]:
        """Forget the records above an index, which are undone; returns the edits that delete their rows."""
        edits: list[Edit] = []
        while self._used and self._used[-1][0] > index:
            _, slot, _ = self._used.pop()
            edits.append((self._notes, _SLOT.pack(TOUCHED, slot), None))
            self._free.append(slot)
        return edits

    def above(self, index: int) -> list[Touched]:
        """Return what the records above an index touched, in their order.

        Raises:
            StoreRefused: a row is not what was written.
        """
        return sorted([(at, keys) for _, at, keys in self._rows() if at > max(index, self.floor)])

    def _new_slot(self) -> int:
        self._slots += 1
        return self._slots - 1

    def _rows(self) -> Iterable[tuple[int, int, tuple[Key, ...]]]:
        """Slot, index and keys of every row."""
        replicas = replicas_of(self._engine)
        for key, value in self._engine.scan(self._notes, TOUCHED, TOUCHED + b"\xff" * 5):
            content = replicas.edit_value(self._notes, key, value)
            try:
                if content is None:
                    raise ValueError("it is not what was written")
                index, keys = _decode(content)
                slot = _SLOT.unpack(key)[1]
            except (ValueError, StructError, msgspec.DecodeError) as fault:
                raise damaged(self._engine, f"the keys that a record touched: {fault}") from fault
            yield slot, index, keys


def is_replica_row(key: bytes, content: bytes) -> bool:
    """Whether a row of the database of notes says something."""
    try:
        if key == NOTE:
            decode_note(content)
        else:
            _decode(content)
    except msgspec.DecodeError:
        return False
    return key == NOTE or (len(key) == _SLOT.size and key.startswith(TOUCHED))


def _size(keys: tuple[Key, ...]) -> int:
    return sum([len(key) for _, key in keys])
