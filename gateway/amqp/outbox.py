"""What a channel's client is told of its publishes: confirmed or not, in as few frames as say it.

Shards confirm in the order they were published to, but not in step with one another, so there may be gaps:

    publishes    1  2  3  4  5  6  7  8  9         1 to 3 are confirmed: ack 3, multiple
                 ├─────┤  ·  ├──┤  ·  │            5, 6 and 8 are: ack 5, ack 6, ack 8
                                                   4 is: all up to 6 are settled now: ack 4
"""

import struct
from collections.abc import Iterable
from functools import partial
from itertools import chain, repeat
from typing import Final

from shardmq.protocol.amqp.events import END, METHOD
from shardmq.protocol.amqp.methods.basic import BasicAck, BasicNack

_FRAME: Final = struct.Struct(">BHIHHQBB")
_PAYLOAD_BYTES: Final = 13
MULTIPLE: Final = 1
"""The lowest bit of either method. The next of basic.nack is requeue, which says nothing to publishers."""


class ConfirmWriter:
    """What a client knows of its publishes, as numbered from 1. Everything up to `settled` has been told."""

    __slots__ = ("_beyond", "settled")

    def __init__(self) -> None:
        self.settled = 0
        self._beyond: dict[int, int] = {}  # first to last of what was told behind a gap

    def acks(self, channel: int, ranges: Iterable[tuple[int, int]]) -> bytes:
        """The frames that tell of publishes `ranges`, both ends included, that they are where they should be."""
        return self._tell(BasicAck.id, channel, ranges)

    def nacks(self, channel: int, ranges: Iterable[tuple[int, int]]) -> bytes:
        """The frames that tell of publishes `ranges` that they are not."""
        return self._tell(BasicNack.id, channel, ranges)

    def _tell(self, method: tuple[int, int], channel: int, ranges: Iterable[tuple[int, int]]) -> bytes:
        ranges = list(ranges)
        beyond = self._beyond
        beyond.update(ranges)
        while last := beyond.pop(self.settled + 1, 0):
            self.settled = last
        frame = partial(_FRAME.pack, METHOD, channel, _PAYLOAD_BYTES, *method)
        together = [each for each in ranges if each[0] <= self.settled]
        alone = [range(first, last + 1) for first, last in ranges if first > self.settled]
        frames = b""
        if together:
            first, last = max(together)
            frames = frame(last, MULTIPLE if first < last or len(together) > 1 else 0, END)
        if alone:
            frames += b"".join(map(frame, chain.from_iterable(alone), repeat(0), repeat(END)))
        return frames
