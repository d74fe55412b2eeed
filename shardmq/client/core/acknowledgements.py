"""Acks and nacks on their way to the broker, as ranges of delivery tags."""

from typing import Final, Protocol

from shardmq.client.api.message import Settler
from shardmq.protocol.native.operations.basic import BasicAck, BasicNack, BasicPutBack
from shardmq.protocol.native.operations.codec import encode
from shardmq.protocol.native.operations.fields import TagRanges

RANGES_MAX: Final = 50_000
"""In one frame: each takes up to 19 bytes, and a broker takes so many (SETTLEMENT_BYTES_MAX)."""


class Acknowledgements:
    """The acks and nacks of one channel that the broker was not told yet.

    Tags become ranges when they are taken. A tag settled twice stays twice: it is the broker's to object.

    Attributes:
        singles: tags acked one by one. Any thread may append without a lock; everything else wants the channel's.
    """

    __slots__ = ("_acked", "_count", "_nacked", "singles")

    def __init__(self) -> None:
        self.singles: list[int] = []
        self._acked: list[tuple[int, int]] = []
        self._nacked: dict[tuple[bool, int] | None, list[tuple[int, int]]] = {}  # by (requeue, delay_ms), or unseen
        self._count = 0

    @property
    def count(self) -> int:
        """How many tags are pending."""
        return self._count + len(self.singles)

    def ack(self, first: int, last: int) -> None:
        """Add an ack of these delivery tags."""
        self._count += last - first + 1
        self._acked.append((first, last))

    def nack(self, first: int, last: int, requeue: bool, delay_ms: int = 0) -> None:
        """Add a nack of these delivery tags."""
        self._count += last - first + 1
        self._nacked.setdefault((requeue, delay_ms), []).append((first, last))

    def put_back(self, first: int, last: int) -> None:
        """Add that what came under these delivery tags goes back, and that the program has not seen it."""
        self._count += last - first + 1
        self._nacked.setdefault(None, []).append((first, last))

    def take(self, channel: int, stale: int = 0, offset: int = 0) -> tuple[list[bytes], int, int, TagRanges]:
        """Take everything pending, as frames for the broker.

        Args:
            channel: number of the channel.
            stale: tags up to this one are of an earlier life, and dropped: the broker has taken them back.
            offset: what the broker calls 1 is `offset + 1` here.

        Returns:
            The frames, how many were acked, how many nacked, and the ranges in them as the program knows them.
        """
        frames: list[bytes] = []
        ranges: TagRanges = []
        acked = nacked = 0
        if len(self.singles) == 1 and not self._count and self.singles[0] > stale:
            tag = self.singles.pop(0)  # as where each of many channels has one message at a time: a third of the time
            return [encode(BasicAck(channel, [(tag - offset, tag - offset)]))], 1, 0, [(tag, tag)]
        if self.singles:
            taken = len(self.singles)
            self._acked += _ranges(self.singles[:taken])
            del self.singles[:taken]
        if self._acked and (joined := _joined(self._acked, stale)):
            frames += [encode(BasicAck(channel, shifted(part, offset))) for part in _parts(joined)]
            ranges += joined
            acked = _total(joined)
        for how, spans in self._nacked.items():
            if joined := _joined(spans, stale):
                for part in _parts(joined):
                    frames.append(encode(_returned(channel, shifted(part, offset), how)))
                ranges += joined
                nacked += _total(joined)
        if self._nacked:
            self._nacked = {}
        self._acked = []
        self._count = 0
        return frames, acked, nacked, ranges


def _returned(channel: int, tags: TagRanges, how: tuple[bool, int] | None) -> BasicNack | BasicPutBack:
    """What gives deliveries back; `how` is (requeue, delay_ms), None where the program has not seen them."""
    return BasicPutBack(channel, tags) if how is None else BasicNack(channel, tags, *how)


def shifted(ranges: TagRanges, offset: int) -> TagRanges:
    """Ranges of delivery tags in the broker's numbers."""
    return [(first - offset, last - offset) for first, last in ranges] if offset else ranges


def _parts(ranges: TagRanges) -> list[TagRanges]:
    return [ranges[place : place + RANGES_MAX] for place in range(0, len(ranges), RANGES_MAX)]


def _total(ranges: TagRanges) -> int:
    return sum(last - first + 1 for first, last in ranges)


def _ranges(tags: list[int]) -> TagRanges:
    first = tags[0]
    if tags == list(range(first, first + len(tags))):  # in order: 20 ns a tag, where looking at each takes 80
        return [(first, tags[-1])]
    return [(tag, tag) for tag in tags]


def _joined(ranges: TagRanges, stale: int) -> TagRanges:
    if stale:
        ranges = [(max(first, stale + 1), last) for first, last in ranges if last > stale]
    if len(ranges) < 2:
        return ranges
    ranges.sort()
    joined = ranges[:1]
    for first, last in ranges[1:]:
        if joined[-1][1] + 1 == first:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined


class TagSettler(Settler, Protocol):
    """The settler of a channel."""

    def tags(self, delivery_tag: int, multiple: bool) -> TagRanges:
        """The ranges of delivery tags that a RabbitMQ verb means."""


class TagVerbs:
    """RabbitMQ's verbs for acks and nacks by delivery tag: part of a channel."""

    _settler: TagSettler

    def basic_ack(self, delivery_tag: int = 0, multiple: bool = False) -> None:
        """Ack a delivery tag, or with `multiple` all up to it (0: all there are).

        A tag that is not unacked on this channel closes the channel, as in RabbitMQ.
        """
        for first, last in self._settler.tags(delivery_tag, multiple):
            self._settler.ack(first, last)

    def basic_nack(
        self, delivery_tag: int = 0, multiple: bool = False, requeue: bool = True, delay_ms: int = 0
    ) -> None:
        """Nack a delivery tag: requeue it, or dead-letter it; with `multiple` all up to it (0: all there are)."""
        for first, last in self._settler.tags(delivery_tag, multiple):
            self._settler.nack(first, last, requeue, delay_ms)

    def basic_renew(self, delivery_tag: int = 0, multiple: bool = False) -> None:
        """Restart a delivery tag's acknowledgement timeout; with `multiple` of all up to it (0: all there are)."""
        for first, last in self._settler.tags(delivery_tag, multiple):
            self._settler.renew(first, last)
