"""Any bytes, in any pieces: read as a plain reader reads them, or refused with a documented code."""

from collections.abc import Sequence
from itertools import cycle, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmq.protocol.amqp import encoder
from shardmq.protocol.amqp.events import BODY, HEADER, HEARTBEAT, METHOD
from shardmq.protocol.amqp.frames import FrameReader
from shardmq.protocol.amqp.methods import codec as methods
from shardmq.protocol.amqp.methods.basic import BasicPublish, BasicQos, BasicReject
from shardmq.protocol.amqp.methods.connection import ChannelClose, ChannelCloseOk, ChannelOpen, ConnectionCloseOk
from shardmq.protocol.amqp.methods.topology import QueueDeclare
from tests.protocol.amqp.bytestreams import (
    PERSISTENT_LIST,
    PUBLISH,
    PlainEvent,
    PlainReader,
    ack,
    body,
    header,
    publish,
    read,
)

FRAME_MAX = 300
LARGER_THAN_MESSAGES = 1000
MESSAGE_MAX = 700
CODES = {501, 502, 505, 540}
"""What the reader of frames refuses with: FRAME_ERROR, SYNTAX_ERROR, UNEXPECTED_FRAME, NOT_IMPLEMENTED."""

channels = st.sampled_from([0, 1, 1, 1, 1, 2, 2, 65535])
short = st.binary(max_size=24)
lists = st.sampled_from([b"\0\0", PERSISTENT_LIST, PERSISTENT_LIST, b"\x80\0\3a/b", b"\x10\0\1", b"", b"\xff"]) | short
bodies = st.sampled_from(
    [
        b"",
        b"x",
        b"y",
        b"x" * 100,
        b"y" * 100,
        b"z" * 299,
        b"z" * 300,
        b"z" * 301,
        b"z" * 690,
        b"z" * 699,
        b"z" * 700,
        b"z" * 701,
    ]
)
publishes = st.sampled_from([PUBLISH, PUBLISH, BasicPublish(0, "e", "k"), BasicPublish(0, "", "q", True)])
others = st.sampled_from(
    [
        ChannelOpen(),
        ChannelClose(200, "", 0, 0),
        ChannelCloseOk(),
        BasicQos(0, 10, False),
        BasicReject(3, True),
        ConnectionCloseOk(),
        QueueDeclare(0, "q", arguments={"x-max-length": 5}),
    ]
)

messages = st.builds(publish, bodies | short, channels, lists, publishes, st.sampled_from([50, 292, 300, 301, 900]))
alike = st.builds(lambda message, count: message * count, messages, st.integers(2, 40))
acks = st.builds(
    lambda first, count, channel, multiple: b"".join(
        [ack(first + n, channel, multiple=multiple) for n in range(count)]
    ),
    st.integers(0, 2**64 - 100),
    st.integers(1, 20),
    channels,
    st.booleans(),
)
pieces = (
    messages
    | alike
    | acks
    | st.builds(encoder.method_frame, channels, others)
    | st.builds(encoder.method_frame, channels, publishes)
    | st.builds(header, channels, st.sampled_from([0, 1, 50, 100, 700, 701, 2**64 - 1]), lists)
    | st.builds(body, channels, bodies)
    | st.builds(encoder.frame, st.sampled_from([METHOD, HEADER, BODY, HEARTBEAT, 0, 9]), channels, short)
    | st.just(encoder.BEAT)
    | short
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """What a client might send: much of it as it should be, some of it not."""
    data = bytearray(b"".join(draw(st.lists(pieces, max_size=12))))
    for _ in range(draw(st.integers(0, 2)) if data else 0):
        at = draw(st.integers(0, len(data) - 1))
        match draw(st.sampled_from(["change", "drop", "insert"])):
            case "change":
                data[at] = draw(st.integers(0, 255))
            case "drop":
                del data[at : at + draw(st.integers(1, 20))]
            case "insert":
                data[at:at] = draw(short)
        if not data:
            break
    return bytes(data)


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    edges = sorted({0, len(data), *[place % (len(data) + 1) for place in places]})
    return [data[start:end] for start, end in pairwise(edges)]


def reader(frame_max: int) -> FrameReader:
    made = FrameReader(MESSAGE_MAX)
    made.frame_max = frame_max
    return made


def check(data: bytes, places: Sequence[int], frame_max: int = FRAME_MAX) -> None:
    expected: tuple[list[PlainEvent], PlainEvent | None] = PlainReader(frame_max, MESSAGE_MAX).read(data)
    assert read(reader(frame_max), [data]) == expected
    assert read(reader(frame_max), cut(data, places)) == expected
    assert expected[1] is None or expected[1][0] in CODES


@given(streams(), st.lists(st.integers(0, 100_000), max_size=12), st.sampled_from([FRAME_MAX, LARGER_THAN_MESSAGES]))
@settings(max_examples=400, deadline=None)
def test_what_clients_send_is_read_as_a_plain_reader_reads_it_however_it_comes(
    data: bytes, places: list[int], frame_max: int
) -> None:
    check(data, places, frame_max)


ALIKE = publish(b"123", properties=PERSISTENT_LIST)
TURNS = [BasicPublish(0, "", key) for key in ("a", "bc", "d")]


def in_turn(sizes: Sequence[int]) -> bytes:
    """Messages of these sizes by three methods in turn."""
    each = zip(sizes, cycle(TURNS), strict=False)
    return b"".join([publish(b"1234567"[:size], properties=PERSISTENT_LIST, method=method) for size, method in each])


NEIGHBOURS = {
    "alike": ALIKE * 12,
    "other lists": b"".join([publish(b"12345", properties=b"\x80\0\2a%d" % number) for number in range(4)]),
    "other sizes": b"".join([publish(b"1234567"[:size]) for size in (3, 0, 0, 4, 7)]),
    "in turn": in_turn([3] * 10),
    "in turn, of sizes in turn": in_turn([3, 0, 5] * 4),
    "in turn, of other sizes": in_turn([3, 3, 3, 4, 4, 4, 0, 0, 3]),
    "acks": b"".join(map(ack, [7, 8, 9, 11, 12, 5])),
}


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_one_byte_that_is_wrong_anywhere_is_found(neighbours: str) -> None:
    data = NEIGHBOURS[neighbours]
    for at, was in enumerate(data):
        for byte in {was ^ 1, (was + 2) & 255, 0xCE, 0} - {was}:
            check(data[:at] + bytes((byte,)) + data[at + 1 :] + encoder.BEAT, [at])


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_a_stream_may_end_anywhere(neighbours: str) -> None:
    data = NEIGHBOURS[neighbours]
    for end in range(len(data) + 1):
        check(data[:end], [])
        check(data, [end])


@pytest.mark.parametrize("size", [299, 300, 301, 690, 697, 699, 700, 701])
@pytest.mark.parametrize("frame_max", [FRAME_MAX, LARGER_THAN_MESSAGES])
def test_limits_are_the_same_for_neighbours_as_for_one_message(size: int, frame_max: int) -> None:
    large = publish(b"x" * size, properties=PERSISTENT_LIST, room=900)
    for data in (ALIKE + large, large, large * 3, ALIKE * 3 + large * 20 + ALIKE):
        check(data, [], frame_max)


@given(streams())
@settings(max_examples=50, deadline=None)
def test_it_may_come_byte_by_byte(data: bytes) -> None:
    check(data, range(len(data)))


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=5))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_read_or_refused(data: bytes, places: list[int]) -> None:
    check(data, places)


@given(st.sampled_from(sorted(methods.METHODS)), st.binary(max_size=80), st.integers(0, 2))
@settings(max_examples=300, deadline=None)
def test_any_fields_of_any_method_are_read_or_refused(ids: tuple[int, int], fields: bytes, channel: int) -> None:
    payload = ids[0].to_bytes(2, "big") + ids[1].to_bytes(2, "big") + fields
    check(encoder.frame(METHOD, channel, payload), [])
