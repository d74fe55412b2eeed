"""Frames out: deliveries encoded by the batch are what they would be one by one."""

import pytest

from shardmq.protocol.amqp import encoder
from shardmq.protocol.amqp.events import END
from shardmq.protocol.amqp.methods.basic import BasicDeliver
from tests.protocol.amqp.bytestreams import PERSISTENT_LIST

FRAME_MAX = 5000


def one_by_one(tag: int, lists: list[bytes], bodies: list[bytes], consumer: str = "c") -> bytes:
    frames = []
    for number, (properties, body) in enumerate(zip(lists, bodies, strict=True), tag):
        frames.append(encoder.method_frame(3, BasicDeliver(consumer, number, True, "e", "k.ü")))
        frames.append(encoder.content_frames(3, properties, body, FRAME_MAX))
    return b"".join(frames)


def together(tag: int, lists: list[bytes], bodies: list[bytes], consumer: str = "c") -> bytes:
    return encoder.deliveries(encoder.envelope(3, consumer, True, "e", "k.ü"), tag, lists, bodies, FRAME_MAX)


@pytest.mark.parametrize("size", [0, 1, 100, 4096, 4097, 4992, 4993, 20_000])
@pytest.mark.parametrize("count", [1, 2, 300])
@pytest.mark.parametrize("tag", [1, 200, 2**32 - 5, 2**64 - 400])
def test_alike_messages(size: int, count: int, tag: int) -> None:
    if size > 4096 and count > 2:
        count = 5
    lists, bodies = [PERSISTENT_LIST] * count, [bytes((number % 256,)) * size for number in range(count)]
    assert together(tag, lists, bodies) == one_by_one(tag, lists, bodies)


@pytest.mark.parametrize("names", [("", "", ""), ("c" * 255, "e" * 255, "k" * 255), ("ü" * 127, "é" * 127, "ß" * 127)])
@pytest.mark.parametrize("is_redelivered", [True, False])
def test_names_of_any_length_stand_in_every_delivery(names: tuple[str, str, str], is_redelivered: bool) -> None:
    consumer, exchange, key = names
    envelope = encoder.envelope(65_535, consumer, is_redelivered, exchange, key)
    expected = encoder.method_frame(65_535, BasicDeliver(consumer, 9, is_redelivered, exchange, key))
    assert encoder.deliveries(envelope, 9, [PERSISTENT_LIST], [b"x"], FRAME_MAX).startswith(expected)


def test_messages_that_differ() -> None:
    lists = [PERSISTENT_LIST, b"\0\0", b"\x80\0\3a/b", PERSISTENT_LIST] * 30
    bodies = [b"x" * (number % 50) for number in range(120)]
    assert together(7, lists, bodies) == one_by_one(7, lists, bodies)
    assert together(7, lists, [b"same"] * 120) == one_by_one(7, lists, [b"same"] * 120)
    assert together(7, [PERSISTENT_LIST] * 120, bodies) == one_by_one(7, [PERSISTENT_LIST] * 120, bodies)
    bodies[60] = b"y" * 12_345
    assert together(7, lists, bodies) == one_by_one(7, lists, bodies)


def in_pieces(tag: int, lists: list[bytes], bodies: list[bytes]) -> bytes:
    return b"".join(encoder.delivery_pieces(encoder.envelope(3, "c", True, "e", "k.ü"), tag, lists, bodies, FRAME_MAX))


@pytest.mark.parametrize("size", [1, 4097, 4992, 4993, 20_000])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_pieces_of_messages_are_their_frames(size: int, count: int) -> None:
    lists, bodies = [PERSISTENT_LIST] * count, [bytes((number,)) * size for number in range(count)]
    assert in_pieces(2**32 - 2, lists, bodies) == one_by_one(2**32 - 2, lists, bodies)
    lists[-1], bodies[0] = b"\x80\0\3a/b", b""
    assert in_pieces(5, lists, bodies) == one_by_one(5, lists, bodies)


def test_pieces_have_large_bodies_without_copying_them() -> None:
    body = b"x" * 4500
    assert len([piece for piece in in_pieces_of([body] * 3) if piece is body]) == 3


def in_pieces_of(bodies: list[bytes]) -> list[bytes | memoryview]:
    return encoder.delivery_pieces(
        encoder.envelope(3, "c", False, "e", "k"), 1, [PERSISTENT_LIST] * len(bodies), bodies, FRAME_MAX
    )


def test_a_consumer_tag_may_be_any_text() -> None:
    tag = "ü" * 127
    assert together(1, [b"\0\0"], [b"x"], tag) == one_by_one(1, [b"\0\0"], [b"x"], tag)
    assert together(1, [b"\0\0"], [b"x"], "") == one_by_one(1, [b"\0\0"], [b"x"], "")


@pytest.mark.parametrize("key", ["k" * 256, "é" * 200, "\u4e16" * 200, "k" * 100_000])
def test_a_key_that_is_too_long_is_cut_between_two_characters(key: str) -> None:
    behind = encoder.envelope(3, "c", False, "e", key).behind
    size, cut = behind[3], behind[4 : behind.index(END, 4 + behind[3])]
    assert behind[:3] == b"\0\1e"
    assert size == len(cut) <= 255 < size + 4
    assert key.startswith(cut.decode())
