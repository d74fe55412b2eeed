"""What replicas tell one another is on the bus what it was, and edits are encoded once."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.bus.link import encode, envelope_decoder
from shardmq.replication.core import messages
from shardmq.replication.core.messages import Hello, Join, Message, Range, Record, Rejoin
from shardmq.replication.links.wire import SealedRange, SealedRecord, SealedRejoin, ToReplica, opened, sealed, size_of
from shardmq.replication.store.envelope import SealedEdits
from shardmq.replication.store.faults import EnvelopeDamaged
from shardmq.shards.storage.schema import LAYOUT, REPLICA, SEGMENTS, STATE
from shardmq.storage.memory_engine import MemoryEngine

ENGINE = MemoryEngine(LAYOUT)
DECODE = envelope_decoder(ToReplica).decode

NUMBERS = st.integers(0, (1 << 63) - 1)
KEYS = st.tuples(st.sampled_from([SEGMENTS, STATE]), st.binary(min_size=1, max_size=20))
EDITS = st.lists(
    st.tuples(st.sampled_from([SEGMENTS, STATE]), st.binary(min_size=1, max_size=20), st.none() | st.binary())
).map(tuple)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "at": st.floats(0, 1e9),
    "clock": st.floats(0, 1e9),
    "complete": st.booleans(),
    "copied": st.none() | KEYS,
    "drop": st.text(),
    "edits": EDITS,
    "end": st.none() | KEYS,
    "history": st.lists(st.tuples(NUMBERS, NUMBERS)).map(tuple),
    "incarnation": st.text(),
    "leads": st.lists(st.tuples(NUMBERS, NUMBERS)).map(tuple),
    "start": KEYS,
    "touched": st.lists(st.tuples(NUMBERS, st.lists(KEYS).map(tuple))).map(tuple),
}
KINDS: tuple[type[Any], ...] = messages.Message.__args__  # type: ignore[attr-defined]


def through(message: Message) -> Message:
    """A message after its way over the bus."""
    (came,) = DECODE(encode((1, 1, [sealed(message)])))[2]
    assert size_of(came) == size_of(sealed(message))
    return opened(came, ENGINE)


@given(st.data())
def test_every_message_comes_as_it_was_sent(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    fields = {name: data.draw(FIELDS.get(name, NUMBERS)) for name in kind.__struct_fields__}
    if kind is Range:
        rows = {(number, key): value or b"" for number, key, value in fields["edits"]}
        start, end = fields["start"], fields["end"]
        places = sorted(place for place in rows if place >= start and (end is None or place < end))
        fields["edits"] = tuple((*place, rows[place]) for place in places)
    message = kind(**fields)
    assert through(message) == message


@pytest.mark.parametrize(
    "message", [Hello(4, 1, "one", 9, 8, ((1, 1),), (), None), Join(4, 1, "one", 9, 3, 1.5, ((1, 1),))]
)
def test_a_message_of_an_earlier_version_has_no_numbers_of_leads(message: Message) -> None:
    (raw,) = msgspec.msgpack.decode(encode((1, 1, [message])))[2]
    assert DECODE(msgspec.msgpack.encode((1, 1, [raw[:-1]])))[2] == [message]


@pytest.mark.parametrize(("kind", "on_the_bus"), [(Record, SealedRecord), (Range, SealedRange), (Rejoin, SealedRejoin)])
def test_sealed_messages_have_all_fields_of_the_core(kind: type[Any], on_the_bus: type[Any]) -> None:
    assert on_the_bus.__struct_fields__ == kind.__struct_fields__


def test_edits_are_encoded_once_for_all() -> None:
    edits = SealedEdits.sealed((STATE, b"key", memoryview(value)) for value in (b"1", b"2"))
    records = [sealed(Record(1, stream, 5, 4, 0.5, edits)) for stream in (7, 8)]
    assert all(isinstance(record, SealedRecord) and record.edits.obj is edits.data for record in records)
    assert edits == ((STATE, b"key", b"1"), (STATE, b"key", b"2"))
    assert edits != ((STATE, b"key", b"1"),)
    assert (len(edits), edits[1], edits[1:]) == (2, (STATE, b"key", b"2"), [(STATE, b"key", b"2")])


def test_edits_that_are_not_for_this_store_are_refused() -> None:
    for edit in ((REPLICA, b"key", b""), (STATE, b"", b""), (99, b"key", b"")):
        came = sealed(Record(1, 2, 3, 4, 0.5, SealedEdits.sealed([edit])))
        with pytest.raises(EnvelopeDamaged, match="the link begins anew"):
            opened(came, ENGINE)


def test_a_range_has_no_row_outside_of_it_none_twice_and_deletes_none() -> None:
    start, end = (STATE, b"b"), (STATE, b"d")
    for keys in ([b"a"], [b"d"], [b"c", b"b"], [b"c", b"c"]):
        with pytest.raises(EnvelopeDamaged, match="has no place in it; the link begins anew"):
            through(Range(1, 2, start, end, tuple((STATE, key, b"") for key in keys)))
    with pytest.raises(EnvelopeDamaged, match="has no place in it"):
        through(Range(1, 2, start, end, ((STATE, b"c", None),)))
    through(Range(1, 2, start, end, ((STATE, b"b", b""), (STATE, b"c", b""))))
