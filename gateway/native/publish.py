"""Publishes: checked, large ones in slices; held while an alarm is on.

Properties take a microsecond a message to check, and some milliseconds where a message has as many as are allowed; a
publish may have 65,536 messages, so others are served between two slices. All are measured before the first is decoded:
properties take up to 70 times as much memory then, and those of a publish that has too many are not to.
"""

from collections import deque
from functools import partial
from typing import Final

import msgpack
from msgspec.structs import replace

from shardmq.errors import ContentTooLarge, InvalidRequest, RequestError
from shardmq.gateway.native.channel import NativeChannel
from shardmq.gateway.state.passes import TimeSlice
from shardmq.limits import MESSAGE_BYTES_MAX, PROPERTIES_BYTES_MAX, RECORD_BATCH_PROPERTIES_BYTES_MAX
from shardmq.message import keyed_records
from shardmq.message.record import BodySizes, Record, check, check_count, check_plain, properties_bytes, unpack
from shardmq.message.record_batch import KEYED
from shardmq.protocol.native.operations.basic import BasicPublish

SLICE_BYTES: Final = PROPERTIES_BYTES_MAX
"""About so much is checked at a time."""


def publish(channel: NativeChannel, operation: BasicPublish) -> None:
    """Check a publish and send it on; what follows on its channel waits while it is checked in slices."""
    outbox, sizes = channel.outbox, channel.outbox.state.traffic.sizes
    if outbox.is_blocked:
        channel.block(operation)
        return
    if operation.flags & KEYED:
        _publish_keyed(channel, operation)
        return
    try:
        packed, count, bytes_max = operation.records, operation.count, outbox.message_bytes_max
        if count == 1 or len(packed) <= SLICE_BYTES:
            records = check(packed, count, bytes_max, sizes)
        elif check_plain(packed, count, bytes_max, sizes):
            records = None
        else:
            _check_in_slices(channel, operation, SlicedCheck(packed, count, bytes_max, sizes))
            return
    except RequestError as error:
        channel.publisher.refuse(operation.request, operation.request, error.code, error.text)
        return
    channel.publisher.publish(operation, records)


def _publish_keyed(channel: NativeChannel, operation: BasicPublish) -> None:
    """Check a publish whose messages have keys of their own, and send it on; what `publish` does for others."""
    packed, count, bytes_max = operation.records, operation.count, channel.outbox.message_bytes_max
    sizes = channel.outbox.state.traffic.sizes
    try:
        if operation.routing_key:
            raise InvalidRequest(
                f"a publish whose messages have keys of their own has '{operation.routing_key}' for all"
            )
        if count == 1:
            record, key = keyed_records.apart(packed)
            flags = operation.flags & ~KEYED
            publish(channel, replace(operation, flags=flags, routing_key=key, records=record))
            return
        if len(packed) > SLICE_BYTES and not keyed_records.is_plain(packed, count):
            _check_in_slices(channel, operation, SlicedCheck(packed, count, bytes_max, sizes, is_keyed=True))
            return
        keys, records = keyed_records.check(packed, count, bytes_max, sizes)
    except RequestError as error:
        channel.publisher.refuse(operation.request, operation.request, error.code, error.text)
        return
    channel.publisher.publish_keyed(operation, keys, records)


def _check_in_slices(channel: NativeChannel, operation: BasicPublish, slices: "SlicedCheck") -> None:
    """Go on with the check of a publish; what follows on its channel waits until it is through."""
    if channel.outbox.is_closing or not channel.is_open:
        return
    time_slice = TimeSlice()
    try:
        while not slices.is_done:
            if time_slice.is_over:
                channel.is_waiting = True
                channel.outbox.state.time_slices.wait(partial(_check_in_slices, channel, operation, slices))
                return
            slices.step()
        if operation.flags & KEYED:
            channel.publisher.publish_keyed(operation, slices.keys, slices.records)
        else:
            channel.publisher.publish(operation, slices.records)
    except RequestError as error:
        channel.publisher.refuse(operation.request, operation.request, error.code, error.text)
    if channel.is_waiting:
        channel.is_waiting = False
        channel.owner.resume_channel(channel)


class SlicedCheck:
    """The check of one publish, slice by slice; it finds what `record.check` finds.

    Args:
        records: the publisher's bytes.
        count: of how many records they are to be.
        bytes_max: of a body.
        sizes: where those of bodies are noted; None for nowhere.
        is_keyed: whether each of them is to have a key.

    Attributes:
        keys: of those checked so far, if they have keys.

    Raises:
        InvalidRequest: that is no number of records of a publish.
    """

    __slots__ = (
        "_bytes_max",
        "_checked",
        "_count",
        "_is_keyed",
        "_measured",
        "_packed",
        "_pieces",
        "_place",
        "_properties_bytes",
        "_sizes",
        "_unpacker",
        "keys",
    )

    def __init__(
        self,
        records: bytes,
        count: int,
        bytes_max: int = MESSAGE_BYTES_MAX,
        sizes: BodySizes | None = None,
        *,
        is_keyed: bool = False,
    ) -> None:
        check_count(count)
        self.keys: list[str] = []
        self._sizes = sizes
        self._is_keyed = is_keyed
        self._packed = records
        self._count = count
        self._bytes_max = bytes_max
        self._measured = self._place = self._properties_bytes = 0
        self._pieces: deque[tuple[int, int, int]] = deque()  # measured, not decoded: start, end, records
        self._checked: list[Record] = []
        self._unpacker = msgpack.Unpacker(max_buffer_size=0)
        self._unpacker.feed(records)

    @property
    def is_done(self) -> bool:
        """Whether all of it was checked."""
        return self._measured == self._count and not self._pieces

    @property
    def records(self) -> list[Record]:
        """The records, when it is done."""
        return self._checked

    def step(self) -> None:
        """Check some more.

        Raises:
            InvalidRequest: malformed, or not so many.
            ContentTooLarge: a record is over the limit, or the properties are.
        """
        if self._measured < self._count:
            self._measure()
        else:
            start, end, count = self._pieces.popleft()
            piece = self._packed[start:end]
            if self._is_keyed:
                keys, records = keyed_records.check(piece, count, self._bytes_max, self._sizes)
                self.keys += keys
                self._checked += records or [Record(None, b"")] * count
                return
            self._checked += check(piece, count, self._bytes_max, self._sizes) or unpack(piece, count)

    def _measure(self) -> None:
        skip, tell = self._unpacker.skip, self._unpacker.tell
        start, taken = self._place, 0
        try:
            while self._measured + taken < self._count and self._place - start < SLICE_BYTES:
                skip()
                self._place = tell()
                taken += 1
        except (msgpack.OutOfData, ValueError) as fault:
            raise self._malformed(str(fault) or "they end too early") from fault
        self._measured += taken
        if self._measured == self._count and self._place != len(self._packed):
            raise self._malformed("something follows them")
        measure = keyed_records.properties_bytes if self._is_keyed else properties_bytes
        self._properties_bytes += measure(self._packed[start : self._place], taken)
        if self._properties_bytes > RECORD_BATCH_PROPERTIES_BYTES_MAX:
            raise ContentTooLarge(
                f"a publish with at least {self._properties_bytes} bytes of properties; the limit is "
                f"{RECORD_BATCH_PROPERTIES_BYTES_MAX}: publish fewer messages at a time"
            )
        self._pieces.append((start, self._place, taken))

    def _malformed(self, why: str) -> InvalidRequest:
        return InvalidRequest(f"{len(self._packed)} bytes are no {self._count} records [properties | nil, body]: {why}")
