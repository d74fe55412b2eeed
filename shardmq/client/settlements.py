"""Acks and nacks on their way to the broker, as ranges of delivery tags."""

from shardmq.wire.operations import BasicAck, BasicNack, Ranges, encode


class Settlements:
    """What one channel's user has settled and the broker was not told yet.

    In order, an ack extends the last range; out of order (several threads), ranges are sorted and joined when they are
    taken. A tag settled twice stays twice: it is the broker's to object.
    """

    __slots__ = ("_acked", "_dropped", "_returned", "count")

    def __init__(self) -> None:
        self._acked: list[tuple[int, int]] = []
        self._returned: list[tuple[int, int]] = []
        self._dropped: list[tuple[int, int]] = []
        self.count = 0

    def ack(self, first: int, last: int) -> None:
        """These are done with."""
        self.count += last - first + 1
        acked = self._acked
        if acked and acked[-1][1] + 1 == first:
            acked[-1] = (acked[-1][0], last)
        else:
            acked.append((first, last))

    def nack(self, first: int, last: int, requeue: bool) -> None:
        """These are not."""
        self.count += last - first + 1
        (self._returned if requeue else self._dropped).append((first, last))

    def take(self, channel: int) -> tuple[list[bytes], Ranges]:
        """The frames that tell the broker, and the ranges in them; nothing is pending then."""
        frames, ranges = [], []
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
        self.count = 0
        return frames, ranges


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
