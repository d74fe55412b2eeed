"""ZMTP without I/O: whatever is cut where, messages come whole and in order; what is no ZMTP is refused."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.bus.transport.transport import NO_ENVELOPE
from shardmq.bus.transport.zmtp import (
    BODY_BYTES_FIRST,
    COMMAND_BYTES_MAX,
    DEALER,
    GREETING,
    READ_BYTES,
    ROUTER,
    Zmtp,
    ZmtpViolation,
    command,
    header_of,
)

PEER = Zmtp(DEALER, ROUTER, b"gateway-0:1").opening
READY = PEER[len(GREETING) :]


def feed(wire: Zmtp, data: bytes, sizes: list[int] | None = None) -> Zmtp:
    """Let it read the bytes in portions of these sizes, again and again; a portion fills no more than its space."""
    at = turn = 0
    while at < len(data):
        space = wire.space()
        count = min(len(space), len(data) - at, sizes[turn % len(sizes)] if sizes else len(data))
        space[:count] = data[at : at + count]
        wire.took(count)
        at += count
        turn += 1
    return wire


def router(data: bytes = b"") -> Zmtp:
    return feed(Zmtp(ROUTER, DEALER), data)


def frame(body: bytes) -> bytes:
    return header_of(len(body)) + body


def test_a_greeting_and_a_ready_open_the_connection() -> None:
    wire = router(PEER)
    assert wire.is_ready
    assert not wire.messages


@given(
    st.lists(st.binary(max_size=600) | st.integers(250, 300).map(bytes), max_size=20),
    st.lists(st.integers(1, 400), min_size=1, max_size=5),
)
def test_messages_come_whole_and_in_order_wherever_they_are_cut(bodies: list[bytes], sizes: list[int]) -> None:
    wire = feed(Zmtp(ROUTER, DEALER), PEER + b"".join(map(frame, bodies)), sizes)
    assert [bytes(message) for message in wire.messages] == bodies


@pytest.mark.parametrize("size", [READ_BYTES - 9, READ_BYTES, 3 * READ_BYTES + 1, 2 * BODY_BYTES_FIRST + 1])
def test_a_large_message_comes_whole_between_small_ones(size: int) -> None:
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    wire = feed(Zmtp(ROUTER, DEALER), PEER + frame(b"before") + frame(body) + frame(b"behind"), [READ_BYTES - 7])
    assert [len(message) for message in wire.messages] == [6, size, 6]
    assert wire.messages[1] == body


@given(st.binary(max_size=300))
def test_garbage_is_refused_or_waited_for(garbage: bytes) -> None:
    for before in (b"", GREETING, PEER):
        try:
            router(before + garbage)
        except ZmtpViolation:
            continue


@given(st.integers(0, len(PEER) - 1), st.integers(0, 255))
def test_an_opening_with_another_byte_is_refused_waited_for_or_harmless(place: int, byte: int) -> None:
    torn = bytearray(PEER)
    torn[place] = byte
    try:
        wire = router(bytes(torn) + frame(b"x"))
    except ZmtpViolation:
        return
    assert list(wire.messages) in ([], [b"x"])


@pytest.mark.parametrize(
    ("opening", "reason"),
    [
        (b"AMQP\0\0\x09\x01", "does not speak ZMTP"),
        (b"\xff" + bytes(9), "does not speak ZMTP"),
        (GREETING[:10] + b"\x01\0", "speaks ZMTP 1"),
        (GREETING[:12] + b"CURVE".ljust(20, b"\0") + bytes(32), "wants the mechanism b'CURVE'"),
        (Zmtp(ROUTER, DEALER).opening, "a socket of type b'ROUTER'"),
        (GREETING + frame(b"too early"), "before it said who it is"),
        (GREETING + command(b"READY", b"\x0bSocket-Type\0\0\0\x09DEALER"), "READY is cut off"),
        (GREETING + command(b"READY", b"\x0bSocket"), "READY is cut off"),
        (GREETING + command(b"ERROR", b"\x07go away"), "it refused: go away"),
        (GREETING + b"\x04\0", "a command that is none"),
        (PEER + READY, "the command b'READY'"),
        (PEER + command(b"SUBSCRIBE", b""), "the command b'SUBSCRIBE'"),
        (PEER + b"\x08\0", "flags 0x8"),
        (PEER + b"\x06" + (COMMAND_BYTES_MAX + 1).to_bytes(8, "big"), "a command of 16385 bytes"),
    ],
)
def test_a_peer_that_speaks_otherwise_is_told_apart(opening: bytes, reason: str) -> None:
    with pytest.raises(ZmtpViolation, match=reason):
        router(opening)


def test_a_message_of_several_frames_is_no_envelope() -> None:
    wire = router(
        PEER + b"\x01\x03one" + b"\x03" + (300).to_bytes(8, "big") + bytes(300) + b"\0\x05three" + frame(b"x")
    )
    assert list(wire.messages) == [NO_ENVELOPE, b"x"]


def test_a_ping_is_answered_with_its_context() -> None:
    wire = router(PEER + command(b"PING", b"\0\x0acontext") + command(b"PONG", b""))
    assert wire.replies == [command(b"PONG", b"context")]
    assert not wire.messages


def test_a_size_that_is_claimed_takes_no_memory_before_it_comes() -> None:
    wire = router(PEER)
    tracemalloc.start()
    try:
        feed(wire, b"\x02" + (2**62).to_bytes(8, "big") + b"x")
        assert tracemalloc.get_traced_memory()[1] < 2 * BODY_BYTES_FIRST
    finally:
        tracemalloc.stop()
    assert not wire.messages
