"""Frames: any cut of the stream gives the same frames; only documented errors come out of garbage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.errors import ProtocolError, ReplyCode
from shardmq.limits import FRAME_BYTES_MAX
from shardmq.protocol.native.frames import FrameReader, frame

frames = st.lists(st.tuples(st.integers(1, 65_535), st.binary(max_size=60)), max_size=12)


def read(reader: FrameReader, pieces: list[bytes]) -> list[tuple[int, bytes]]:
    return [(kind, bytes(payload)) for piece in pieces for kind, payload in reader.feed(piece)]


@given(frames, st.data())
def test_frames_come_out_whole_however_the_stream_is_cut(sent: list[tuple[int, bytes]], data: st.DataObject) -> None:
    stream = b"".join(frame(kind, payload) for kind, payload in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert read(FrameReader(), pieces) == sent


@given(frames)
def test_frames_come_out_whole_byte_by_byte(sent: list[tuple[int, bytes]]) -> None:
    stream = b"".join(frame(kind, payload) for kind, payload in sent)
    assert read(FrameReader(), [bytes([byte]) for byte in stream]) == sent


@given(st.lists(st.binary(max_size=64)))
def test_garbage_gives_frames_or_a_frame_error(pieces: list[bytes]) -> None:
    try:
        read(FrameReader(), pieces)
    except ProtocolError as error:
        assert error.code == ReplyCode.FRAME_ERROR


def test_a_frame_over_the_limit_is_refused_by_its_header_alone() -> None:
    header = frame(9, b"")[:4] + (FRAME_BYTES_MAX + 1).to_bytes(4, "big")
    with pytest.raises(ProtocolError, match=str(FRAME_BYTES_MAX)):
        FrameReader().feed(header)


def test_a_bad_header_behind_a_good_frame_cut_in_two_is_refused() -> None:
    reader = FrameReader()
    good = frame(9, b"payload")
    assert reader.feed(good[:10]) == []
    with pytest.raises(ProtocolError):
        reader.feed(good[10:] + b"\xff" * 8)


def test_an_amqp_client_is_told_so() -> None:
    with pytest.raises(ProtocolError, match="AMQP"):
        FrameReader().feed(b"AMQP\x00\x00\x09\x01")


def test_some_types_may_be_larger_than_the_others_once_that_is_allowed() -> None:
    reader = FrameReader(100)
    large = frame(9, bytes(200))
    with pytest.raises(ProtocolError, match="type 9 with 200 bytes; the limit is 100"):
        reader.feed(large[:8])
    reader.allow(100, {9: 200})
    assert read(reader, [large[:50], large[50:]]) == [(9, bytes(200))]
    for kind, size, limit in ((8, 101, 100), (9, 201, 200)):
        with pytest.raises(ProtocolError, match=f"the limit is {limit}"):
            reader.feed(frame(kind, bytes(size)))
