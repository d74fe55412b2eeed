"""The core's messages on the bus: edits are sealed, with a checksum of their own; all else goes as it is.

Before the first edits of a later format of stores, a replica tells of that. The other way, a listener tells how much of
what was said it has taken.
"""

from typing import Final

import msgspec

from shardmq.bus.messages.base import BusMessage
from shardmq.replication.core.messages import (
    Ack,
    Beat,
    BeatAnswer,
    Handover,
    Hello,
    Join,
    Message,
    Range,
    RangeAck,
    Record,
    Refused,
    Rejoin,
    Touched,
    Unable,
)
from shardmq.replication.core.note import Edits, History, Key, Leads
from shardmq.replication.store.envelope import SealedEdits
from shardmq.replication.store.faults import EnvelopeDamaged
from shardmq.storage.engine import Engine

MESSAGE_BYTES: Final = 64
"""What a message counts for, beside its edits, where bytes are counted that wait."""


class SealedRejoin(BusMessage, frozen=True, tag=40):
    """A Rejoin with sealed edits."""

    term: int
    stream: int
    common: int
    index: int
    last_term: int
    released: int
    clock: float
    history: History
    edits: memoryview
    touched: tuple[Touched, ...]
    leads: Leads = ()


class SealedRange(BusMessage, frozen=True, tag=41):
    """A Range with sealed edits."""

    term: int
    stream: int
    start: Key
    end: Key | None
    edits: memoryview


class SealedRecord(BusMessage, frozen=True, tag=42):
    """A Record with sealed edits."""

    term: int
    stream: int
    index: int
    released: int
    clock: float
    edits: memoryview


class Taken(BusMessage, frozen=True, tag=43):
    """How much a listener has taken of a session so far, to be sent more.

    Attributes:
        size: of all messages, as `size_of` counts them.
    """

    size: int


class FormatRisen(BusMessage, frozen=True, tag=44):
    """The store of whoever says this has a later format now, as etcd has it; what it says behind this may have it, too.

    Attributes:
        version: of the format.
    """

    version: int


Sealed = SealedRejoin | SealedRange | SealedRecord
Plain = Beat | BeatAnswer | Refused | Unable | Hello | Join | RangeAck | Ack | Handover
ToReplica = Sealed | Plain | FormatRisen

_SEALED: Final[dict[type, type[Sealed]]] = {Record: SealedRecord, Range: SealedRange, Rejoin: SealedRejoin}
_OPENED: Final[dict[type, type[Record | Range | Rejoin]]] = {sealed: plain for plain, sealed in _SEALED.items()}


def sealed(message: Message) -> ToReplica:
    """Return a message as it goes on the bus."""
    if isinstance(message, Record):
        data = _sealed(message.edits)
        return SealedRecord(message.term, message.stream, message.index, message.released, message.clock, data)
    if isinstance(message, (Range, Rejoin)):
        fields = msgspec.structs.asdict(message)
        return _SEALED[type(message)](**fields | {"edits": _sealed(message.edits)})
    return message


def opened(message: Sealed | Plain, engine: Engine) -> Message:
    """Return what came from the bus as the core has it.

    Args:
        message: of another replica.
        engine: the store that its edits are for.

    Raises:
        EnvelopeDamaged: its edits are not what was sent, or none for this store.
    """
    if isinstance(message, SealedRecord):
        edits = SealedEdits.opened(message.edits, engine)
        return Record(message.term, message.stream, message.index, message.released, message.clock, edits)
    if isinstance(message, (SealedRange, SealedRejoin)):
        edits = SealedEdits.opened(message.edits, engine)
        if isinstance(message, SealedRange):
            _check_range(message.start, message.end, edits, engine)
        return _OPENED[type(message)](**msgspec.structs.asdict(message) | {"edits": edits})
    return message


def _check_range(start: Key, end: Key | None, edits: SealedEdits, engine: Engine) -> None:
    """Make sure that a range has rows alone that lie in it, in their order: what a join has copied is not written over.

    Raises:
        EnvelopeDamaged: it has others.
    """
    last: Key | None = None
    for number, key, value in edits:
        place = (number, key)
        is_in_order = place >= start if last is None else place > last
        if value is None or not is_in_order or (end is not None and place >= end):
            raise EnvelopeDamaged(
                f"a key range for {engine.file} was refused: row {key.hex()} of database {number} has no place in it; "
                "the link begins anew, and sends it again"
            )
        last = place


def size_of(message: ToReplica) -> int:
    """Return what a message counts for where bytes are counted that wait; the same at both ends of a link."""
    if isinstance(message, (SealedRecord, SealedRange, SealedRejoin)):
        return MESSAGE_BYTES + len(message.edits)
    return MESSAGE_BYTES


def _sealed(edits: Edits) -> memoryview:
    return memoryview((edits if isinstance(edits, SealedEdits) else SealedEdits.sealed(edits)).data)
