"""Property lists with the offsets of their messages: what stands in them, and what that costs."""

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardmq.message.properties import Properties
from shardmq.protocol.amqp.properties import decode, encode
from shardmq.protocol.amqp.property_edits import edited, without
from shardmq.protocol.amqp.property_facts import KNOWN_BYTES_MAX
from shardmq.protocol.amqp.stream_offsets import HEADER, KNOWN_MAX, PARTITION, with_offsets
from shardmq.protocol.amqp.tables import encode_entry, encode_long, wrapped
from tests.protocol.amqp.property_lists import EVERY_TYPE, lists, with_headers

LARGE_BYTES = 120_000
WINDOW_MESSAGES = 17
"""Messages with such headers that are on their way to a consumer at a time."""

OFFSETS = st.integers(0, 2**63 - 1)
PARTITIONS = st.none() | st.integers(0, 2**14)
OURS = encode_entry(HEADER, encode_long(7)) + encode_entry(PARTITION, encode_long(3))
"""The headers of a message that was read from another stream, and published again as it was."""


def plainly(raw: bytes, offset: int, partition: int | None) -> bytes:
    """The list with its offset, by taking it apart."""
    entry = encode_entry(HEADER, encode_long(offset))
    names = [HEADER.encode()]
    if partition is not None:
        entry += encode_entry(PARTITION, encode_long(partition))
        names.append(PARTITION.encode())
    return edited(raw, {}, lambda table: wrapped(b"", without(table, *names)[4:] + entry))


@given(lists, OFFSETS, PARTITIONS)
@example(Properties(), 0, None)
@example(Properties(headers={HEADER: "mine", PARTITION: None, "x": {HEADER: 1}}), 2**63 - 1, 0)
def test_an_offset_is_the_last_header_and_all_else_keeps_its_bytes(
    known: Properties, offset: int, partition: int | None
) -> None:
    raw = encode(known)
    (found,) = with_offsets([raw], offset, partition)
    assert found == plainly(raw, offset, partition)
    headers = decode(found).headers
    assert headers is not None
    assert headers[HEADER] == offset
    assert partition is None or headers[PARTITION] == partition


@pytest.mark.parametrize("partition", [None, 5])
@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x00",
        b"\x00\x03",
        b"\x04\x07" + b"\x02\xff\xfe" + b"\x01c",
        with_headers(b""),
        with_headers(EVERY_TYPE),
        with_headers(OURS + EVERY_TYPE + OURS),
        with_headers(b"\x01a" + wrapped(b"F", OURS)),
        b"\xe0\x00" + b"\x05" + HEADER[:5].encode() + b"\x00" + wrapped(b"", OURS),
        b"\xc0\x00" + b"\x00" + b"\x04gzip",
    ],
)
def test_lists_as_no_encoder_writes_them_have_offsets_too(raw: bytes, partition: int | None) -> None:
    for _ in range(2):  # it is remembered
        expected = [plainly(raw, 300 + number, partition) for number in range(3)]
        assert with_offsets([raw] * 3, 300, partition) == expected


@pytest.mark.parametrize("entry", [b"\x04nameS\0\0\0\x08a string", b"\x00" + wrapped(b"x", bytes(LARGE_BYTES - 10))])
def test_large_headers_that_differ_take_no_longer_than_to_copy_them(entry: bytes) -> None:
    entries = entry * (LARGE_BYTES // len(entry))
    window = [with_headers(entries + b"\x01n" + encode_long(number)) for number in range(WINDOW_MESSAGES)]
    began = time.process_time()
    found = with_offsets(window, 0)
    assert time.process_time() - began < 0.05  # 2 ms here; to look at each byte takes 0.3 s
    assert found[-1] == plainly(window[-1], WINDOW_MESSAGES - 1, None)


def test_small_lists_that_differ_cost_little_more_than_those_that_are_alike() -> None:
    alike = [encode(Properties(message_id="0" * 36, headers={"a": "b"}))] * 10 * KNOWN_MAX
    different = [encode(Properties(message_id=f"{number:036}", headers={"a": "b"})) for number in range(len(alike))]
    assert len(different[0]) < KNOWN_BYTES_MAX

    def seconds(each: list[bytes]) -> float:
        began = time.process_time()
        with_offsets(each, 0)
        return time.process_time() - began

    ratio = min(seconds(different) for _ in range(3)) / min(seconds(alike) for _ in range(3))
    print(f"{ratio:.1f} times as long")
    assert ratio < 40  # 12 here; taken apart and searched, over 50
