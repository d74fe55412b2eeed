"""Checks of large publishes of native clients, in slices: others are served in between.

Properties take a microsecond a message to check, and some milliseconds where a message has as many as are allowed; a
publish may have 65,536 messages. All are measured before the first is decoded: properties take up to 70 times as much
memory then, and those of a publish that has too many are not to.
"""

from collections import deque
from typing import Final

import msgpack

from shardmq.errors import ContentTooLarge, InvalidRequest
from shardmq.limits import MESSAGE_BYTES_MAX, PROPERTIES_BYTES_MAX, RUN_PROPERTIES_BYTES_MAX
from shardmq.message.record import Record, check, check_count, properties_bytes, unpack

SLICE_BYTES: Final = PROPERTIES_BYTES_MAX
"""About so much is checked at a time."""


class SlicedCheck:
    """The check of one publish, as `records.check` makes it.

    Args:
        records: the publisher's bytes.
        count: of how many records they are to be.
        bytes_max: of a body.

    Raises:
        InvalidRequest: that is no number of records of a publish.
    """

    __slots__ = (
        "_bytes_max",
        "_checked",
        "_count",
        "_measured",
        "_packed",
        "_pieces",
        "_place",
        "_properties_bytes",
        "_unpacker",
    )

    def __init__(self, records: bytes, count: int, bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        check_count(count)
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
            self._checked += check(piece, count, self._bytes_max) or unpack(piece, count)

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
        self._properties_bytes += properties_bytes(self._packed[start : self._place], taken)
        if self._properties_bytes > RUN_PROPERTIES_BYTES_MAX:
            raise ContentTooLarge(
                f"a publish with at least {self._properties_bytes} bytes of properties; the limit is "
                f"{RUN_PROPERTIES_BYTES_MAX}: publish fewer messages at a time"
            )
        self._pieces.append((start, self._place, taken))

    def _malformed(self, why: str) -> InvalidRequest:
        return InvalidRequest(f"{len(self._packed)} bytes are no {self._count} records [properties | nil, body]: {why}")
