"""Frames in: what they say, what is wrong with them, and that it does not matter how they come."""

import time
import tracemalloc
from collections.abc import Iterable

import pytest

from shardmq.errors import ReplyCode
from shardmq.protocol.amqp import encoder, frames, publish_frames
from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.events import (
    HEADER,
    HEARTBEAT,
    METHOD,
    AcksReceived,
    Event,
    HeartbeatReceived,
    MethodReceived,
    PublishesReceived,
    PublishTooLarge,
)
from shardmq.protocol.amqp.frames import FrameReader
from shardmq.protocol.amqp.methods.basic import BasicAck, BasicPublish
from shardmq.protocol.amqp.methods.connection import ChannelClose, ChannelCloseOk, ChannelOpen
from shardmq.protocol.amqp.methods.topology import QueueDelete
from tests.protocol.amqp.bytestreams import PERSISTENT_LIST, PUBLISH, ack, body, header, publish

MESSAGE_MAX = 100_000
FRAME_ERROR, UNEXPECTED = ReplyCode.FRAME_ERROR, ReplyCode.UNEXPECTED_FRAME
OPEN_CHANNEL = encoder.method_frame(1, ChannelOpen())


def reader(frame_max: int = 4096) -> FrameReader:
    made = FrameReader(MESSAGE_MAX)
    made.frame_max = frame_max
    return made


def events(data: bytes, frame_max: int = 4096) -> list[Event]:
    return list(reader(frame_max).feed(data))


def fault(data: bytes, frame_max: int = 4096) -> tuple[int, str, tuple[int, int]]:
    with pytest.raises(AmqpError) as raised:
        events(data, frame_max)
    return raised.value.code, raised.value.text, raised.value.method


def lists_and_bodies(event: Event) -> list[tuple[bytes, bytes]]:
    assert isinstance(event, PublishesReceived)
    return list(zip(event.lists, event.bodies, strict=True))


def test_alike_publishes_are_one_event_and_share_their_property_list() -> None:
    bodies = [b"%05d" % number for number in range(1000)]
    (event,) = events(b"".join([publish(data, properties=PERSISTENT_LIST) for data in bodies]))
    assert isinstance(event, PublishesReceived)
    assert (event.channel, event.method, event.bodies) == (1, PUBLISH, bodies)
    assert len(event.lists) == 1000
    assert all(properties is event.lists[0] for properties in event.lists)
    assert event.lists[0] == PERSISTENT_LIST
    assert event.size == 1000 * (5 + 3)


def test_publishes_by_one_method_are_one_event_whatever_their_properties_and_bodies() -> None:
    contents = [(b"\x80\x00\x03a/%d" % (n % 10), b"x" * (n % 40)) for n in range(300)]
    contents += [(PERSISTENT_LIST, b"y" * 10)] * 20 + [(PERSISTENT_LIST, b"z" * 11)] * 3
    (event,) = events(b"".join([publish(data, properties=properties) for properties, data in contents]))
    assert lists_and_bodies(event) == contents


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 10, 23, 24, 25, 56, 57])
def test_alike_messages_end_where_they_are_not_alike_any_more(count: int) -> None:
    alike = [(PERSISTENT_LIST, b"%04d" % number) for number in range(count)]
    others = [(PERSISTENT_LIST, b"12345"), (b"\0\0", b"1234"), (PERSISTENT_LIST, b"")]
    for other in others:
        contents = [*alike, other, *alike]
        (event,) = events(b"".join([publish(data, properties=properties) for properties, data in contents]))
        assert lists_and_bodies(event) == contents


def test_a_body_that_looks_like_what_is_between_messages_is_a_body() -> None:
    prefix = publish(b"x" * 200)[:-201]
    tricky = (b"\xce" + prefix).ljust(200, b"y")
    contents = [b"x" * 200, b"x" * 200, tricky, b"x" * 200] * 10
    (event,) = events(b"".join(map(publish, contents)))
    assert [data for _, data in lists_and_bodies(event)] == contents


def test_another_channel_begins_another_event() -> None:
    data = publish(b"1") + publish(b"2") + publish(b"3", channel=2) + publish(b"4")
    found = [(event.channel, event.bodies) for event in events(data) if isinstance(event, PublishesReceived)]
    assert found == [(1, [b"1", b"2"]), (2, [b"3"]), (1, [b"4"])]


def test_acks_that_follow_one_another_are_one_event() -> None:
    data = b"".join([*map(ack, [5, 6, 7, 9, 10, 3]), ack(4, channel=2), ack(20, multiple=True), ack(21)])
    assert events(data) == [
        AcksReceived(1, [(5, 7), (9, 10), (3, 3)]),
        AcksReceived(2, [(4, 4)]),
        MethodReceived(1, BasicAck(20, multiple=True), 13),
        AcksReceived(1, [(21, 21)]),
    ]


def test_publishes_that_go_back_and_forth_between_methods_are_one_event_also_when_they_come_first() -> None:
    turns = [BasicPublish(0, "", f"turn-{number}") for number in range(5)]
    data = b"".join([publish(b"%d" % place, method=turns[place % 5]) for place in range(100)])
    for _ in range(2):
        (event,) = reader().feed(data)
        assert isinstance(event, PublishesReceived)
        assert event.methods == [turns[place % 5] for place in range(100)]
        assert event.bodies == [b"%d" % place for place in range(100)]


@pytest.mark.parametrize(("order", "turn"), [("abcabcabcab", 3), ("abababab", 2), ("abcabcabcb", 0), ("abcabdabc", 0)])
def test_it_is_told_after_how_many_messages_all_but_their_bodies_begins_again(order: str, turn: int) -> None:
    data = b"".join([publish(b"%d" % place, method=BasicPublish(0, "", key)) for place, key in enumerate(order, 10)])
    for _ in range(2):
        (event,) = reader().feed(data)
        assert isinstance(event, PublishesReceived)
        assert event.methods == [BasicPublish(0, "", key) for key in order]
        assert event.bodies == [b"%d" % place for place in range(10, 10 + len(order))]
        assert event.turn == turn


def test_a_method_that_cannot_be_read_is_refused_behind_the_publishes_before_it() -> None:
    one, other = (BasicPublish(0, "", f"readable-{number}") for number in range(2))
    broken = publish(b"x", method=BasicPublish(0, "", "broken")).replace(b"\x06broken", b"\xf6broken")
    found = reader().feed(publish(b"1", method=one) + publish(b"2", method=other) + broken)
    event = next(found)
    assert isinstance(event, PublishesReceived)
    assert event.bodies == [b"1", b"2"]
    with pytest.raises(AmqpError):
        next(found)


def test_a_run_by_one_method_among_others_is_an_event_of_its_own() -> None:
    known = reader()
    one, other = BasicPublish(0, "", "one"), BasicPublish(0, "", "other")
    list(known.feed(publish(b"x", method=one) + publish(b"x", method=other)))
    events = list(known.feed(publish(b"x", method=one) + 500 * publish(b"x", method=other)))
    assert [len(event.bodies) for event in events if isinstance(event, PublishesReceived)] == [4, 497]


def test_methods_are_known_by_their_bytes_but_not_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish_frames, "PUBLISHES_KNOWN", 1000)
    monkeypatch.setattr(publish_frames, "STARTS_BYTES_MAX", 1000 * publish_frames.START_BYTES)
    known = reader()
    for number in range(2000):
        whole = publish(b"x", method=BasicPublish(0, routing_key=f"key-{number}"))
        list(known.feed(whole))
        list(known.feed(whole[:-5]))
        list(known.feed(whole[-5:]))
    assert len(publish_frames._publishes) <= 1000
    assert len(publish_frames._starts) <= 1000
    (one,) = known.feed(publish(b"x", method=BasicPublish(0, routing_key="key-1")))
    (same,) = reader().feed(publish(b"x", method=BasicPublish(0, routing_key="key-1")))
    assert isinstance(one, PublishesReceived)
    assert isinstance(same, PublishesReceived)
    assert one.method is same.method


def test_a_body_may_come_in_many_frames_some_of_them_empty() -> None:
    parts = [b"", b"a", b"", b"bc", b"d" * 500]
    whole = b"".join(parts)
    data = encoder.method_frame(1, PUBLISH) + header(1, len(whole)) + b"".join([body(1, part) for part in parts])
    assert [lists_and_bodies(event) for event in events(data)] == [[(b"\0\0", whole)]]


def test_a_message_without_a_body_has_no_frame_for_it() -> None:
    (event, beat) = events(encoder.method_frame(1, PUBLISH) + header(1, 0) + encoder.BEAT)
    assert lists_and_bodies(event) == [(b"\0\0", b"")]
    assert beat == HeartbeatReceived()


def test_messages_of_several_channels_may_be_interleaved() -> None:
    method = encoder.method_frame
    data = method(1, PUBLISH) + method(2, PUBLISH) + header(2, 2) + header(1, 2)
    data += body(1, b"a") + body(2, b"x") + encoder.BEAT + ack(1, 3) + body(2, b"y") + body(1, b"b")
    beat, acked, second, first = events(data)
    assert (beat, acked) == (HeartbeatReceived(), AcksReceived(3, [(1, 1)]))
    assert [lists_and_bodies(event) for event in (second, first)] == [[(b"\0\0", b"xy")], [(b"\0\0", b"ab")]]


STARTED = encoder.method_frame(1, PUBLISH)
NOT_HEADER = "expected content header for class 60, got non content header frame instead"
NOT_BODY = "expected content body, got non content body frame instead"
NOT_METHOD = "expected method frame, got non method frame instead"
TOO_LONG = "content body frame exceeds remaining content size"
DELETE = encoder.method_frame(1, QueueDelete(0, "q"))


@pytest.mark.parametrize(
    ("data", "code", "text", "method"),
    [
        (b"\x01\0\1\0\0\x20\0", FRAME_ERROR, "type 1, all octets = <<>>: {frame_too_large,8192,4088}", None),
        (b"\x01\0\0\0\0\0\4abcdX", FRAME_ERROR, 'type 1, all octets = <<"abcd">>: {invalid_frame_end_marker,88}', None),
        (b"\x05\0\1\0\0\0\0\xce", FRAME_ERROR, "type 5, all octets = <<>>: unknown_frame", None),
        (b"\x05\0\1\0\0\0\2\1\2\xce", FRAME_ERROR, "type 5, all octets = <<1,2>>: unknown_frame", None),
        (encoder.frame(METHOD, 1, b"\0\1"), FRAME_ERROR, "type 1, all octets = <<0,1>>: unknown_frame", None),
        (
            STARTED + encoder.frame(HEADER, 1, b'"\\345678901'),
            FRAME_ERROR,
            'type 2, all octets = <<"\\"\\\\345678901">>: unknown_frame',
            None,
        ),
        (
            encoder.frame(HEARTBEAT, 0, b"x" * 17),
            FRAME_ERROR,
            f'type 8, first 16 octets = <<"{"x" * 16}">>: unknown_frame',
            None,
        ),
        (encoder.frame(HEARTBEAT, 1, b""), UNEXPECTED, "type 8, all octets = <<>>", None),
        (body(0, b"x"), UNEXPECTED, 'type 3, all octets = <<"x">>', None),
        (body(1, b"x"), UNEXPECTED, NOT_METHOD, None),
        (header(1, 0), UNEXPECTED, NOT_METHOD, None),
        (publish(b"") + body(1, b""), UNEXPECTED, NOT_METHOD, None),
        (STARTED + DELETE, UNEXPECTED, NOT_HEADER, PUBLISH),
        (STARTED + STARTED, UNEXPECTED, NOT_HEADER, PUBLISH),
        (STARTED + body(1, b"x"), UNEXPECTED, NOT_HEADER, PUBLISH),
        (STARTED + header(1, 1, weight=1), UNEXPECTED, NOT_HEADER, PUBLISH),
        (
            STARTED + header(1, 1, class_id=50),
            UNEXPECTED,
            "expected content header for class 60, got one for class 50 instead",
            PUBLISH,
        ),
        (STARTED + header(1, 1) + DELETE, UNEXPECTED, NOT_BODY, PUBLISH),
        (STARTED + header(1, 1) + ack(1), UNEXPECTED, NOT_BODY, PUBLISH),
        (STARTED + header(1, 1) + header(1, 1), UNEXPECTED, NOT_BODY, PUBLISH),
        (STARTED + header(1, 1) + body(1, b"xy"), FRAME_ERROR, TOO_LONG, PUBLISH),
        (STARTED + header(1, 2) + body(1, b"x") + body(1, b"xy"), FRAME_ERROR, TOO_LONG, PUBLISH),
    ],
)
def test_frames_that_make_no_sense_are_refused_in_rabbitmqs_words(
    data: bytes, code: ReplyCode, text: str, method: BasicPublish | None
) -> None:
    assert fault(data + b"\0") == (code, text, (0, 0) if method is None else method.id)


def test_what_came_before_a_fault_is_said() -> None:
    fed = reader().feed(publish(b"1") + publish(b"2") + body(1, b"x"))
    assert lists_and_bodies(next(fed)) == [(b"\0\0", b"1"), (b"\0\0", b"2")]
    with pytest.raises(AmqpError):
        next(fed)


def test_a_payload_may_be_as_large_as_the_largest_frame() -> None:
    (event,) = events(publish(b"x" * 4096, room=4096))
    assert lists_and_bodies(event) == [(b"\0\0", b"x" * 4096)]
    assert fault(publish(b"x" * 4097, room=4097))[0] == FRAME_ERROR
    assert fault(b"".join([publish(b"x" * 4097, room=4097)] * 3))[0] == FRAME_ERROR


@pytest.mark.parametrize("size", [MESSAGE_MAX + 1, MESSAGE_MAX * 2, 2**64 - 1])
def test_a_message_that_is_too_large_is_refused_before_its_body_comes(size: int) -> None:
    fed = reader()
    (event,) = fed.feed(STARTED + header(1, size))
    assert isinstance(event, PublishTooLarge)
    assert (event.error.code, event.error.method) == (ReplyCode.PRECONDITION_FAILED, PUBLISH.id)
    assert event.error.text == f"message size {size} is larger than configured max size {MESSAGE_MAX}"
    late = body(1, b"x" * 100) + publish(b"y") + DELETE + ack(1) + encoder.method_frame(1, ChannelClose(200, "", 0, 0))
    assert list(fed.feed(late)) == [MethodReceived(1, ChannelClose(200, "", 0, 0), 11)]


def test_the_largest_message_is_taken() -> None:
    largest = b"x" * MESSAGE_MAX
    (event,) = events(publish(largest))
    assert lists_and_bodies(event) == [(b"\0\0", largest)]
    (event,) = events(publish(largest, room=MESSAGE_MAX), frame_max=MESSAGE_MAX)
    assert lists_and_bodies(event) == [(b"\0\0", largest)]
    (refused,) = events(publish(largest + b"x", room=MESSAGE_MAX), frame_max=MESSAGE_MAX)
    assert isinstance(refused, PublishTooLarge)


def test_what_a_channel_says_is_ignored_once_the_server_has_closed_it_until_it_knows() -> None:
    fed = reader()
    assert list(fed.feed(STARTED + header(1, 10) + body(1, b"12345"))) == []
    fed.ignore(1)
    assert list(fed.feed(body(1, b"67890") + header(1, 5) + publish(b"x") + ack(1) + DELETE)) == []
    assert list(fed.feed(publish(b"x", channel=2)))
    closed = encoder.method_frame(1, ChannelCloseOk())
    assert list(fed.feed(closed)) == [MethodReceived(1, ChannelCloseOk(), 4)]
    fed.ignored -= {1}
    assert list(fed.feed(OPEN_CHANNEL)) == [MethodReceived(1, ChannelOpen(), 5)]
    (event,) = fed.feed(publish(b"new"))
    assert lists_and_bodies(event) == [(b"\0\0", b"new")]


def test_a_channel_that_is_closed_in_the_middle_of_what_was_read_says_no_more() -> None:
    fed = reader()
    taken = fed.feed(publish(b"1") + DELETE + publish(b"2") + publish(b"3"))
    assert lists_and_bodies(next(taken)) == [(b"\0\0", b"1")]
    fed.ignore(1)
    assert list(taken) == []


def test_messages_that_are_not_complete_are_bounded_for_all_channels_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "UNFINISHED_BYTES_MAX", 20_000)
    monkeypatch.setattr(frames, "REQUEST_BYTES_MAX", 0)
    fed = reader()
    fed.message_max = 20_000

    def begin(channel: int) -> list[Event]:
        started = encoder.method_frame(channel, PUBLISH) + header(channel, 5000) + body(channel, b"x" * 3900)
        return list(fed.feed(started))

    assert [begin(channel) for channel in range(1, 6)] == [[]] * 5
    fed.ignore(1)  # and what it had counts no more
    assert begin(6) == []
    assert len(list(fed.feed(body(2, b"x" * 1100) + body(3, b"x" * 1100)))) == 2  # nor what is complete
    assert [begin(channel) for channel in (7, 8)] == [[], []]
    with pytest.raises(AmqpError) as raised:
        begin(9)
    assert (raised.value.code, raised.value.is_hard) == (ReplyCode.RESOURCE_ERROR, True)


def test_one_of_the_largest_messages_may_always_be_incomplete() -> None:
    fed = FrameReader(100 << 20)
    fed.frame_max = 1 << 20
    assert list(fed.feed(STARTED + header(1, 100 << 20))) == []
    for _ in range(99):
        assert list(fed.feed(body(1, bytes(1 << 20)))) == []
    assert list(fed.feed(encoder.method_frame(2, PUBLISH) + header(2, 5 << 20))) == []
    assert list(fed.feed(body(2, bytes(1 << 20)))) == []
    with pytest.raises(AmqpError, match="bytes of messages that are not complete"):
        list(fed.feed(body(2, bytes(1 << 20))))


def test_announced_sizes_take_no_memory() -> None:
    fed = FrameReader(16 << 20)
    tracemalloc.start()
    for channel in range(1, 2048):
        assert list(fed.feed(encoder.method_frame(channel, PUBLISH) + header(channel, (16 << 20) - 2))) == []
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 4 << 20


def chunks(data: bytes, size: int) -> Iterable[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def test_a_large_body_byte_by_byte_takes_time_in_proportion() -> None:
    def seconds(size: int) -> float:
        fed = FrameReader(1 << 20)
        fed.frame_max = 1 << 20
        data = publish(b"x" * size, room=1 << 20)
        began = time.process_time()
        assert len([event for chunk in chunks(data, 1) for event in fed.feed(chunk)]) == 1
        return time.process_time() - began

    least = min(seconds(10_000) for _ in range(5))
    assert min(seconds(160_000) for _ in range(3)) < 16 * 6 * least


def test_a_body_of_many_small_frames_takes_memory_as_its_size_is() -> None:
    fed = FrameReader(1 << 20)
    data = STARTED + header(1, 200_000) + b"".join([body(1, b"xy")] * 99_999)
    pieces = list(chunks(data, 60_000))
    tracemalloc.start()
    assert [event for piece in pieces for event in fed.feed(piece)] == []
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 600_000
    (event,) = fed.feed(body(1, b"xy"))
    assert lists_and_bodies(event) == [(b"\0\0", b"xy" * 100_000)]
