"""Frames of publishes: large ones, and those for brokers that know of no growth."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.protocol.native.frames import HEADER
from shardmq.protocol.native.operations.basic import BasicPublish
from shardmq.protocol.native.operations.codec import TYPES, encode
from shardmq.protocol.native.operations.publishing import LARGE_BYTES, encode_publish

NUMBERS = st.integers(0, 2**63 - 1)


@given(
    NUMBERS,
    st.integers(0, 2047),
    st.text(max_size=60),
    st.text(max_size=60),
    st.integers(0, 3),
    st.integers(1, 65_536),
    st.sampled_from([0, 1, LARGE_BYTES - 1, LARGE_BYTES, 65_535, 65_536, 100_000]),
    st.integers(0, 2**32 - 1),
    NUMBERS,
    NUMBERS,
    st.just(0) | NUMBERS,
)
def test_the_frame_is_what_encode_makes(
    request: int,
    channel: int,
    exchange: str,
    key: str,
    flags: int,
    count: int,
    size: int,
    delay_ms: int,
    producer: int,
    sequence: int,
    growth: int,
) -> None:
    operation = BasicPublish(
        request, channel, exchange, key, flags, count, bytes(size), delay_ms, producer, sequence, 0, growth
    )
    frame = encode_publish(operation)
    if growth:
        assert frame == encode(operation)
    else:
        fields = msgspec.structs.astuple(operation)[:-1]
        assert frame[HEADER.size :] == msgspec.msgpack.encode(fields)
        assert HEADER.unpack_from(frame) == (TYPES[BasicPublish], len(frame) - HEADER.size)


def test_a_name_without_utf8_is_refused_as_encode_does() -> None:
    with pytest.raises(UnicodeEncodeError):
        encode_publish(BasicPublish(1, 1, "\ud800", "", 1, 1, bytes(LARGE_BYTES)))
