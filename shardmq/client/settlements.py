"""Acks and nacks on their way to the broker, as ranges of delivery tags."""

from shardmq.wire.operations import BasicAck, BasicNack, Ranges, encode


class Settlements:
    """What one channel's user has settled and the broker was not told yet.

    Tags become ranges when they are taken. A tag settled twice stays twice: it is the broker's to object.

    Attributes:
        singles: tags acked one by one. Any thread may append without a lock; everything else wants the channel's.
    """

    __slots__ = ("_acked", "_count", "_dropped", "_returned", "singles")

    def __init__(self) -> None:
        self.singles: list[int] = []
        self._acked: list[tuple[int, int]] = []
        self._returned: list[tuple[int, int]] = []
        self._dropped: list[tuple[int, int]] = []
        self._count = 0

    @property
    def count(self) -> int:
        """How many tags are pending."""
        return self._count + len(self.singles)

    def ack(self, first: int, last: int) -> None:
        """These are done with."""
        self._count += last - first + 1
        self._acked.append((first, last))

    def nack(self, first: int, last: int, requeue: bool) -> None:
        """These are not."""
        self._count += last - first + 1
        (self._returned if requeue else self._dropped).append((first, last))

    def take(self, channel: int) -> tuple[list[bytes], Ranges]:
        """The frames that tell the broker, and the ranges in them; nothing is pending then."""
        frames, ranges = [], []
        if self.singles:
            taken = len(self.singles)
            self._acked += _ranges(self.singles[:taken])
            del self.singles[:taken]
        if self._acked:
            joined = _joined(self._acked)
            frames.append(encode(BasicAck(channel, joined)))
            ranges += joined
        for nacked, requeue in ((self._returned, True), (self._dropped, False)):
            if nacked:
                joined = _joined(nacked)
                frames.append(encode(BasicNack(channel, joined, requeue)))
                ranges += joined
        self._acked, self._returned, self._dropped = [], [], []
        self._count = 0
        return frames, ranges


def _ranges(tags: list[int]) -> Ranges:
    first = tags[0]
    if tags == list(range(first, first + len(tags))):  # in order: 20 ns a tag, where looking at each takes 80
        return [(first, tags[-1])]
    return [(tag, tag) for tag in tags]


def _joined(ranges: Ranges) -> Ranges:
    if len(ranges) == 1:
        return ranges
    ranges.sort()
    joined = ranges[:1]
    for first, last in ranges[1:]:
        if joined[-1][1] + 1 == first:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined
