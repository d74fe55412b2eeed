"""Which messages of a group a consumer has nacked: the group may wait for them, whatever else is acked."""

from bisect import bisect_right
from operator import itemgetter
from typing import Final

from shardmq.ranges import RangeSet

PLACES_MIN: Final = 128
"""With so many deliveries in mind, and again when they have doubled, those of which all is settled are forgotten."""

RANGES_MAX: Final = 1024
"""Where a partition has more ranges of nacked offsets, all between the lowest and the highest counts as nacked."""


Place = tuple[int, int, int, int]
"""Where the messages of a delivery are: delivery tags [first, end), in a partition, from an offset on."""

_FIRST: Final = itemgetter(0)
_END: Final = itemgetter(1)


class Nacked:
    """The offsets of messages that a consumer of a group has nacked and that were not handed out again.

    A nack says delivery tags; so where the messages of each delivery are is kept until all of them are settled.
    """

    __slots__ = ("_offsets", "_places", "_places_max")

    def __init__(self) -> None:
        self._places: list[Place] = []  # their tags rise
        self._places_max = PLACES_MIN
        self._offsets: dict[int, RangeSet] = {}

    def note(self, tag: int, count: int, partition: int, offset: int) -> bool:
        """Note where a delivery's messages are; returns whether `tidy` is wanted. Needs no lock."""
        self._places.append((tag, tag + count, partition, offset))
        return len(self._places) > self._places_max

    def tidy(self, unsettled: RangeSet) -> None:
        """Forget deliveries of which all is settled, but for the newest: its messages are yet to be handed out."""
        *earlier, newest = self._places
        lowest = unsettled.first()[0] if unsettled else newest[0]
        rest = earlier[bisect_right(earlier, lowest, key=_END) :]  # mostly nothing
        kept = [place for place in rest if next(unsettled.walk(*place[:2]), None) is not None]
        self._places = [*kept, newest]
        self._places_max = max(PLACES_MIN, 2 * len(kept))

    def add(self, first: int, end: int) -> None:
        """Note that the delivery tags [first, end) are nacked."""
        places = self._places
        for begin, stop, partition, offset in places[max(bisect_right(places, first, key=_FIRST) - 1, 0) :]:
            if begin >= end:
                break
            shift = offset - begin
            offsets = self._offsets.setdefault(partition, RangeSet())
            offsets.add(max(first, begin) + shift, min(end, stop) + shift)
            if len(offsets) > RANGES_MAX:
                offsets.add(offsets.first()[0], offsets.end)

    def came_again(self, partition: int, first: int, end: int) -> None:
        """Note that the messages at the offsets [first, end) are with the consumer again."""
        if partition in self._offsets:
            self._offsets[partition].remove(first, end)

    def forget(self, partition: int) -> None:
        """Note that the partition begins anew, at what its group has settled."""
        self._offsets.pop(partition, None)

    def waits_at(self, partition: int, at: int) -> int | None:
        """The lowest nacked offset that a group at an offset may wait for; None where there is none."""
        offsets = self._offsets.get(partition)
        if not offsets:
            return None
        offsets.remove(0, at)
        return offsets.first()[0] if offsets else None
