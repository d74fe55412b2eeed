"""Neighbouring publishes, read together.

Work per message is what costs. Most clients send the same method frame for every publish, byte for byte, and often the
same content header. The reader finds such neighbours by comparing bytes, and yields them as one event:

    ├─ basic.publish ─┤├─ header ─┤├─ body ─┤├─ basic.publish ─┤├─ header ─┤├─ body ─┤ …
    └──── the same ───────────────────┘ 100B └──── the same ───────────────────┘ 100B

Who publishes to many queues in turn sends a few methods over and over. They are remembered by their bytes, and such
neighbours are one event, too. Where the same methods and headers come again in the same order, whole turns of them are
compared.
"""

import struct
from functools import lru_cache
from typing import Final

from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.events import BODY, END, FRAME_OVERHEAD, HEADER, METHOD, PublishesReceived
from shardmq.protocol.amqp.methods import codec as methods
from shardmq.protocol.amqp.methods.basic import BasicPublish

PUBLISHES_KNOWN: Final = 16_384
"""Publish methods remembered by their payload. When there are more, all are forgotten: they belong to messages whose
routing keys all differ. Each takes a kilobyte at most."""

STARTS_BYTES_MAX: Final = 64 << 20
"""What the methods remembered by their frames may take in memory, as far as that can be told: some 130,000 of them, for
the keys of 100,000 bindings in turn. When there are more, all are forgotten."""

START_BYTES: Final = 350
"""What each takes beside its frame and as many bytes again for its names (measured)."""

ALIKE_AT_ONCE: Final = 8
"""How many messages are compared with the first one together. The number doubles each time that all were alike, so that
the work done in vain stays small. Together they cost 0.12 µs each, one by one 0.3."""

SHAPES_KEPT: Final = 1024
"""Sizes of alike messages for which it is remembered how they are cut; else each time takes 1 µs."""

TURNS_LEAST: Final = 2
"""So many more are to have come: finding out what a turn is takes as long as to read half of it."""

TURN_SHAPES_KEPT: Final = 64
"""The same for turns: each is some kilobytes."""

IN_A_ROW: Final = 4
"""So many publishes by one method in a row are the beginning of a run, which is compared and not read one by one."""

TURN_MAX: Final = 128
"""Messages of the longest turn that is compared as a whole: few reads have two of a longer one."""

_frame_of: Final = struct.Struct(">BHI").unpack_from
_LENGTH: Final = struct.Struct(">I")
_CONTENT: Final = struct.Struct(">HHQ")
_HEADER_SIZES: Final = struct.Struct(">I4sQ")
_BODY_START: Final = struct.Struct(">4sI")
_START: Final = struct.Struct(">BH")
_BASIC_CONTENT: Final = b"\x00\x3c\x00\x00"
_END: Final = b"\xce"
PUBLISH: Final = b"\x00\x3c\x00\x28"
"""How the payload of basic.publish begins."""

_publishes: Final[dict[bytes, BasicPublish]] = {}
"""Publish methods by their payload. They belong to the process, as the connections of a program send the same ones."""


def known_publish(payload: bytes, channel: int) -> BasicPublish:
    """Decode a publish method; the same object each time, while it is remembered."""
    publish = _publishes.get(payload)
    if publish is None:
        decoded = methods.decode(payload, channel)
        assert isinstance(decoded, BasicPublish)
        if len(_publishes) >= PUBLISHES_KNOWN:
            _publishes.clear()
        publish = _publishes[payload] = decoded
    return publish


class _Starts(dict[bytes, BasicPublish]):
    """Publish methods by their frame and the first bytes of the header's frame behind it, which repeat the channel.

    They belong to the process, too.
    """

    __slots__ = ("_bytes",)

    def __init__(self) -> None:
        super().__init__()
        self._bytes = 0

    def learn(self, start: bytes, method: BasicPublish) -> BasicPublish:
        """Remember a method."""
        self._bytes += START_BYTES + 2 * len(start)
        if self._bytes > STARTS_BYTES_MAX:
            self.clear()
            self._bytes = START_BYTES + 2 * len(start)
        self[start] = method
        return method


_starts: Final = _Starts()


def _next_method(data: bytes, at: int, end: int, channel: int) -> BasicPublish | None:
    """The publish method of a frame in data[at:end] that is not remembered yet, if it is one and its header follows."""
    start = data[at : end + _START.size]
    if data[end - 1] != END or not start.endswith(_START.pack(HEADER, channel)):
        return None
    if data[at] != METHOD or not data.startswith(PUBLISH, at + 7):
        return None
    try:
        method = methods.decode(data[at + 7 : end - 1], channel)
    except AmqpError:  # it is read again behind those before it, and refused then
        return None
    assert isinstance(method, BasicPublish)
    return _starts.learn(start, method)


def read_publishes(
    data: bytes, at: int, end: int, channel: int, frame_max: int, message_max: int
) -> tuple[PublishesReceived | None, int]:
    """Read neighbouring publishes from data[at] on, complete ones with one body frame at most.

    Args:
        data: what has come; a publish method's frame is in data[at:end + 1].
        at: where that begins.
        end: where its end mark is.
        channel: its channel.
        frame_max: the largest frame agreed on, in bytes.
        message_max: the largest body, in bytes.

    Returns:
        The event, None where the first publish is none of those; and the offset at which the next frame begins.
    """
    start = data[at : end + 1 + _START.size]
    method = _starts.get(start)
    if method is None:
        decoded = methods.decode(data[at + 7 : end], channel)
        assert isinstance(decoded, BasicPublish)
        start = data[at : end + 1] + _START.pack(HEADER, channel)
        method = _starts.learn(start, decoded)
    middle = _END + _START.pack(BODY, channel)
    size, sizes_at, least = len(data), len(start), len(start) + _HEADER_SIZES.size
    lists: list[bytes] = []
    bodies: list[bytes] = []
    newest, began = b"", at
    while at + least < size and data.startswith(start, at):
        header_size, fixed, body_size = _HEADER_SIZES.unpack_from(data, at + sizes_at)
        header_end = at + sizes_at + 4 + header_size
        after = header_end + (body_size + 9 if body_size else 1)
        if (
            after > size
            or fixed != _BASIC_CONTENT
            or not _CONTENT.size <= header_size <= frame_max
            or body_size > frame_max
            or body_size > message_max
            or data[after - 1] != END
            or (body_size and _BODY_START.unpack_from(data, header_end) != (middle, body_size))
        ):
            break
        raw = data[at + least : header_end]
        is_alike = raw == newest
        if not is_alike:
            newest = raw
        lists.append(newest)
        bodies.append(data[header_end + 8 : after - 1])
        if is_alike and body_size:
            alike, after = _alike(data, data[at : header_end + 8], body_size, after)
            lists += [newest] * len(alike)
            bodies += alike
        at = after
    if not bodies:
        return None, at
    event = PublishesReceived(channel, method, lists, bodies)
    if len(bodies) >= ALIKE_AT_ONCE or size - at < FRAME_OVERHEAD:
        return event, at
    return event, _read_on(data, began, at, event, frame_max, message_max)


def _read_on(data: bytes, began: int, at: int, event: PublishesReceived, frame_max: int, message_max: int) -> int:
    """Add publishes by other methods to an event of those in data[began:at]; return where the next frame begins."""
    if len(event.bodies) > 1:
        return _read_mixed(data, at, event, frame_max, message_max)
    at = _read_mixed(data, at, event, frame_max, message_max)
    (size,) = _LENGTH.unpack_from(data, began + 3)
    if event.methods is None or not data.startswith(data[began : began + FRAME_OVERHEAD + size], at):
        return at  # another thing than the first method has ended it
    if len(data) - at >= TURNS_LEAST * (at - began):
        at = _read_turns(data, began, at, event)
    at = _read_mixed(data, at, event, frame_max, message_max)
    if event.turn and not _goes_on(event):
        event.turn = 0
    return at


def _goes_on(event: PublishesReceived) -> bool:
    """Whether what is behind an event's last turn is the beginning of another."""
    turn, lists, methods = event.turn, event.lists, event.methods
    rest = len(lists) % turn
    assert methods is not None
    return methods[len(lists) - rest :] == methods[:rest] and lists[len(lists) - rest :] == lists[:rest]


def _read_mixed(data: bytes, at: int, event: PublishesReceived, frame_max: int, message_max: int) -> int:
    """Add the publishes from offset `at` on to an event, as long as they go back and forth between known methods.

    They are complete ones with one body frame at most, on the same channel, as in `read_publishes`; to an event of
    one, those before its method comes again. Returns the offset at which the next frame begins.
    """
    channel, lists, bodies = event.channel, event.lists, event.bodies
    is_mixed = event.methods is not None
    methods = event.methods or [event.method] * len(bodies)
    newest_method, in_a_row, first = methods[-1], 0, event.method if len(bodies) == 1 else None
    middle = _END + _START.pack(BODY, channel)
    size, newest = len(data), lists[-1]
    known, sizes_of, body_start_of = _starts.get, _HEADER_SIZES.unpack_from, _BODY_START.unpack_from
    content, body_size = b"", -1  # of several in a row that have bodies of one size: from the header's size to the body
    while size - at >= FRAME_OVERHEAD:
        _, on, length = _frame_of(data, at)
        sizes_at = at + FRAME_OVERHEAD + length + _START.size
        if on != channel or sizes_at + _HEADER_SIZES.size >= size:
            break
        method = known(data[at:sizes_at]) or _next_method(data, at, sizes_at - _START.size, channel)
        if method is None or (is_mixed and method is first):
            break
        if content and data.startswith(content, sizes_at):  # 0.2 µs less than to look at its parts
            body_at = sizes_at + len(content)
            after = body_at + body_size + 1
            if after > size or data[after - 1] != END:
                break
        else:
            before = body_size
            header_size, fixed, body_size = sizes_of(data, sizes_at)
            header_end = sizes_at + 4 + header_size
            after = header_end + (body_size + 9 if body_size else 1)
            if (
                after > size
                or fixed != _BASIC_CONTENT
                or not _CONTENT.size <= header_size <= frame_max
                or body_size > frame_max
                or body_size > message_max
                or data[after - 1] != END
                or (body_size and body_start_of(data, header_end) != (middle, body_size))
            ):
                break
            body_at = header_end + 8
            raw = data[sizes_at + _HEADER_SIZES.size : header_end]
            content = data[sizes_at:body_at] if raw == newest and body_size == before and body_size else b""
            newest = raw
        if method is newest_method:
            in_a_row += 1
            if in_a_row >= IN_A_ROW:
                break
        else:
            newest_method, in_a_row, is_mixed = method, 1, True
        methods.append(method)
        lists.append(newest)
        bodies.append(data[body_at : after - 1])
        at = after
    if is_mixed:
        event.methods = methods
    return at


def _read_turns(data: bytes, began: int, at: int, event: PublishesReceived) -> int:
    """Add the publishes to an event, those in data[began:at], that repeat all of them.

    They do byte for byte but for the bodies, and in their sizes. Returns the offset at which the next frame begins.
    """
    lists, bodies, methods = event.lists, event.bodies, event.methods
    turn, size = len(bodies), at - began
    if methods is None or turn > TURN_MAX:
        return at
    prefixes, place = _prefixes(data, began, bodies)
    if not (data.startswith(prefixes[0], at) and data.startswith(prefixes[-1], at + place - began)):
        return at  # no other turn, or one of other sizes
    shape = _turn_shape(tuple(map(len, prefixes)), tuple(map(len, bodies)))
    marks = (_END,) * turn
    found = 0
    for parts in shape.iter_unpack(memoryview(data)[at : at + (len(data) - at) // size * size]):
        if parts[::3] != prefixes or parts[2::3] != marks:
            break
        bodies += parts[1::3]
        found += 1
    if found:
        lists += lists * found
        methods += methods * found
        event.turn = turn
    return at + found * size


def _prefixes(data: bytes, at: int, bodies: list[bytes]) -> tuple[tuple[bytes, ...], int]:
    """What comes before each of these bodies in the messages from offset `at` on, and where the last one begins."""
    prefixes: list[bytes] = []
    began = at
    for body in bodies:
        began = at
        (method_size,) = _LENGTH.unpack_from(data, at + 3)
        sizes_at = at + FRAME_OVERHEAD + method_size + _START.size
        (header_size,) = _LENGTH.unpack_from(data, sizes_at)
        start = sizes_at + 4 + header_size + (8 if body else 0)
        prefixes.append(data[at:start])
        at = start + len(body) + 1
    return tuple(prefixes), began


@lru_cache(maxsize=TURN_SHAPES_KEPT)
def _turn_shape(prefixes: tuple[int, ...], bodies: tuple[int, ...]) -> struct.Struct:
    """What cuts a turn of messages, each as `_shape` does."""
    return struct.Struct("".join([f"{prefix}s{body}sc" for prefix, body in zip(prefixes, bodies, strict=True)]))


@lru_cache(maxsize=SHAPES_KEPT)
def _shape(prefix: int, body: int) -> struct.Struct:
    """What cuts messages of one size into what comes before the body, the body, and the end mark."""
    return struct.Struct(f"{prefix}s{body}sc")


def _alike(data: bytes, prefix: bytes, body_size: int, at: int) -> tuple[list[bytes], int]:
    """The bodies, all of one size, of complete messages that begin with `prefix`; and where they end."""
    bodies: list[bytes] = []
    shape = _shape(len(prefix), body_size)
    count = ALIKE_AT_ONCE
    while data.startswith(prefix, at):
        count = min(count, (len(data) - at) // shape.size)
        if count == 0:
            break
        prefixes, some, ends = zip(*shape.iter_unpack(data[at : at + count * shape.size]), strict=True)
        if prefixes.count(prefix) != count or ends.count(_END) != count:
            alike = [each == (prefix, _END) for each in zip(prefixes, ends, strict=True)]
            count = alike.index(False)
            bodies += some[:count]
            return bodies, at + count * shape.size
        bodies += some
        at += count * shape.size
        count *= 2
    return bodies, at
