"""A record: the edits of one commit, with the term of its primary and an index without gaps.

A record says the term of the one before it, too: a follower whose last record is of another term does not take it, even
where the index fits.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from shardmq.replication.core.note import Key, Number
from shardmq.replication.store.envelope import Content, EnvelopeWriter, Kind, content, opened
from shardmq.replication.store.note import replicas_of
from shardmq.storage.engine import Edit, Engine


class RecordHead(msgspec.Struct, array_like=True, frozen=True):
    """Which record it is.

    Attributes:
        after: term of the record before; 0 where there is none.
        term: its own.
        index: its own; the first one is 1.
        clock: seconds of the group's clock.
    """

    after: Number
    term: Number
    index: Number
    clock: float = 0.0


_decode: Final = msgspec.msgpack.Decoder(tuple[Content, RecordHead]).decode


class Record:
    """The edits of one commit, as they go from the primary to the others.

    Attributes:
        after: term of the record before; 0 where there is none.
        term: its own.
        index: its own.
        clock: seconds of the group's clock.
        data: the envelope; it does not change any more.
        edits: in order; values are views into the envelope.
    """

    __slots__ = ("after", "clock", "data", "edits", "index", "term")

    def __init__(self, head: RecordHead, data: bytes | bytearray | memoryview, edits: Content) -> None:
        self.after = head.after
        self.term = head.term
        self.index = head.index
        self.clock = head.clock
        self.data = data
        self.edits = edits

    def __repr__(self) -> str:
        return f"record {self.index} of term {self.term}"

    @property
    def keys(self) -> tuple[Key, ...]:
        """What its edits are about."""
        return tuple([(number, key) for number, key, _ in self.edits])


def record_of(engine: Engine, head: RecordHead, edits: Iterable[Edit]) -> tuple[Record | None, list[Edit]]:
    """Make a record of edits.

    Args:
        engine: the store that they are for.
        head: of the record.
        edits: as an owner hands them to `Engine.apply`: a value need only be good until the next one is asked for.

    Returns:
        The record, None where no edit is one that replicas share; and the edits that they do not share.
    """
    local = replicas_of(engine).local
    writer = EnvelopeWriter(Kind.RECORD)
    append, buffer = writer.append, writer.buffer
    own: list[Edit] = []
    count = 0
    for edit in edits:
        if edit[0] in local:
            value = edit[2]
            own.append((edit[0], edit[1], None if value is None else bytes(value)))
            continue
        append(edit, buffer, -1)
        count += 1
    if not count:
        return None, own
    data = writer.sealed(head, count)
    return Record(head, data, _decode(content(data))[0]), own


def known_record(data: bytes | bytearray | memoryview) -> Record:
    """Take apart the bytes of a record that this process has made, or checked before."""
    edits, head = _decode(content(data))
    return Record(head, data, edits)


def opened_record(engine: Engine, data: bytes | bytearray | memoryview) -> Record:
    """Check the bytes of a record.

    Args:
        engine: the store that it is for.
        data: as they came.

    Raises:
        EnvelopeDamaged: they are not what was sent, or none for this store.
    """
    head, edits = opened(Kind.RECORD, data, _decode, engine)
    return Record(head, data, edits)
