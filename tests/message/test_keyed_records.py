"""Records with routing keys of their own: packing, checking, cutting, joining, taking apart."""

from itertools import pairwise

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.errors import ContentTooLarge, InvalidRequest
from shardmq.message import keyed_records
from shardmq.message import record as records
from shardmq.message.keyed_records import KeyedRecord
from shardmq.message.properties import Properties
from shardmq.message.record_batch import AMQP, KEYED, PERSISTENT, RecordBatch, record_ends
from shardmq.protocol.amqp import properties as lists
from shardmq.protocol.translation import to_amqp, to_native

keys = st.sampled_from(("", "a", "b", "é" * 40)) | st.text(max_size=8)
own = st.none() | st.builds(Properties, content_type=st.none() | st.text(max_size=9), priority=st.integers(0, 9))
messages = st.lists(st.tuples(own, st.binary(max_size=40), keys), min_size=1, max_size=30)
Item = tuple[Properties | None, bytes, str]


def batch_of(items: list[Item], flags: int = PERSISTENT) -> RecordBatch:
    if flags & AMQP:
        packed = keyed_records.pack([(lists.encode(own or Properties()), body, key) for own, body, key in items])
    else:
        packed = keyed_records.pack([(records.pack_properties(own), body, key) for own, body, key in items])
    return RecordBatch("t", "", flags | KEYED, 5, 2**63, 7, len(items), packed)


@given(messages)
def test_what_was_packed_is_unpacked_checked_and_taken_apart(items: list[Item]) -> None:
    batch = batch_of(items)
    found, decoded = keyed_records.check(batch.records, batch.count)
    plain = all(own is None for own, _, _ in items)
    assert found == keyed_records.keys_of(batch) == [key for _, _, key in items]
    assert decoded == (None if plain else [records.Record(own, body) for own, body, _ in items])
    assert keyed_records.unpack(batch.records, batch.count) == [KeyedRecord(*item) for item in items]
    assert keyed_records.is_plain(batch.records, batch.count) == plain
    assert keyed_records.contents(batch)[1:] == ([body for _, body, _ in items], [key for *_, key in items])


@given(messages, st.sampled_from((PERSISTENT, AMQP)), st.data())
def test_runs_have_one_key_each_and_are_all_of_it_in_order(items: list[Item], flags: int, data: st.DataObject) -> None:
    batch = batch_of(items, flags)
    cut = data.draw(st.integers(0, batch.count))
    place = record_ends(batch.records, cut)[-1] if cut else 0  # cutting and joining are those of all records
    batch.records = batch.records[:place] + batch.records[place:]
    parts = list(keyed_records.runs(batch))
    assert sum(part.count for part in parts) == batch.count
    assert [part.serial for part in parts] == [7 + sum(each.count for each in parts[:n]) for n in range(len(parts))]
    assert all(left.routing_key != right.routing_key for left, right in pairwise(parts))
    again = b"".join(keyed_records.with_keys(part.records, part.count, part.routing_key) for part in parts)
    assert again == batch.records
    assert [key for part in parts for key in [part.routing_key] * part.count] == [key for *_, key in items]


@given(messages)
def test_both_protocols_read_what_either_published(items: list[Item]) -> None:
    from_native, from_amqp = batch_of(items), batch_of(items, PERSISTENT | AMQP)
    assert to_amqp(from_native)[1] == to_amqp(from_amqp)[1] == [body for _, body, _ in items]
    read = to_native(from_amqp)
    assert not read.flags & AMQP
    assert [(record.body, record.key) for record in keyed_records.unpack(read.records, read.count)] == [
        (body, key) for _, body, key in items
    ]
    per_run = [raw for part in keyed_records.runs(from_native) for raw in to_amqp(part)[0]]
    assert to_amqp(from_native)[0] == per_run


@given(st.binary(max_size=60), st.integers(1, 4))
def test_other_bytes_are_refused(data: bytes, count: int) -> None:
    try:
        found, _ = keyed_records.check(data, count)
    except (InvalidRequest, ContentTooLarge):
        return
    assert len(found) == len(keyed_records.unpack(data, count)) == count


def test_headers_and_keys_that_could_be_shorter_are_taken_apart_all_the_same() -> None:
    long = b"\xdc\x00\x03\xc0\xc4\x01x\xd9\x01k"
    assert msgpack.unpackb(long) == [None, b"x", "k"]
    assert keyed_records.check(long * 2, 2)[0] == ["k", "k"]
    [part] = keyed_records.runs(RecordBatch("t", "", KEYED, 0, 1, 1, 2, long * 2))
    assert (part.routing_key, part.records) == ("k", records.pack(None, b"x") * 2)
    assert keyed_records.apart(long) == (records.pack(None, b"x"), "k")
    assert keyed_records.with_keys(b"\xdc\x00\x02\xc0\xc4\x01x", 1, "k") == keyed_records.pack([(None, b"x", "k")])


@pytest.mark.parametrize("key", ["k" * 256, "é" * 128])
def test_a_key_over_the_limit_is_refused(key: str) -> None:
    record = keyed_records.pack([(None, b"", key)])
    with pytest.raises(InvalidRequest, match="over 255 bytes"):
        keyed_records.check(record * 2, 2)
    with pytest.raises(InvalidRequest, match="over 255 bytes"):
        keyed_records.apart(record)


def test_large_bodies_and_properties_are_refused() -> None:
    with pytest.raises(ContentTooLarge, match="message size 1001 is larger"):
        keyed_records.check(keyed_records.pack([(None, bytes(1001), "k")]), 1, 1000)
    long = records.pack_properties(Properties(headers={"x": "y" * 140_000}))
    with pytest.raises(ContentTooLarge, match="bytes of properties"):
        keyed_records.check(keyed_records.pack([(long, b"", "k")]), 1)
