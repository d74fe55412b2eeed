"""What a consumer of a group has handed out and nobody has settled."""

from contextlib import AbstractContextManager

from shardmq.client.api.message import Settler
from shardmq.ranges import RangeSet


class HandedOut:
    """The settler of a group consumer's messages: each is settled once, by the program or by the next step.

    Args:
        channel: the channel's settler.
        guard: held while ranges change: with threads, messages are settled by any of them.

    Attributes:
        has_nacked: whether messages were returned or rejected: its group may wait for them, whatever else it acks.
    """

    __slots__ = ("_channel", "_guard", "_newest", "_tags", "has_nacked")

    def __init__(self, channel: Settler, guard: AbstractContextManager[object]) -> None:
        self._channel = channel
        self._guard = guard
        self.has_nacked = False
        self._tags = RangeSet()
        self._newest = 0  # kept beside them: mostly it is settled before the next one comes, at a third of the cost

    def hand_out(self, tag: int) -> None:
        """Note the delivery tag of a message that the program gets."""
        with self._guard:
            if self._newest:
                self._fold()
            self._newest = tag

    def add(self, first: int, last: int) -> None:
        """Note delivery tags that the program got."""
        with self._guard:
            self._tags.add(first, last + 1)

    def _fold(self) -> None:
        if self._newest:
            self._tags.add(self._newest, self._newest + 1)
            self._newest = 0

    def _take(self, first: int, last: int) -> list[tuple[int, int]]:
        with self._guard:
            self._fold()
            return self._tags.take(first, last + 1)

    def ack_one(self, tag: int) -> None:
        """Ack a delivery tag, unless it is settled."""
        with self._guard:
            is_held = tag == self._newest
            if is_held:
                self._newest = 0
            else:
                is_held = bool(self._tags.take(tag, tag + 1))
        if is_held:
            self._channel.ack_one(tag)

    def ack(self, first: int, last: int) -> None:
        """Ack the delivery tags first to last, but for those that are settled."""
        for start, end in self._take(first, last):
            self._channel.ack(start, end - 1)

    def ack_all(self) -> None:
        """Ack all that was handed out and not settled."""
        with self._guard:
            is_newest_alone = not self._tags
            if is_newest_alone:
                newest, self._newest = self._newest, 0
        if not is_newest_alone:
            for first, last in self.take_all():
                self._channel.ack(first, last)
        elif newest:
            self._channel.ack_one(newest)

    def held(self) -> list[tuple[int, int]]:
        """What was handed out and not settled, as ranges of delivery tags."""
        with self._guard:
            self._fold()
            return [(start, end - 1) for start, end in self._tags]

    def take_all(self) -> list[tuple[int, int]]:
        """Forget all that was handed out and not settled; returns it as ranges of delivery tags."""
        with self._guard:
            self._fold()
            ranges = [(start, end - 1) for start, end in self._tags]
            self._tags.clear()
        return ranges

    def nack(self, first: int, last: int, requeue: bool, delay_ms: int = 0) -> None:
        """Nack the delivery tags first to last, but for those that are settled."""
        self.has_nacked = True
        for start, end in self._take(first, last):
            self._channel.nack(start, end - 1, requeue, delay_ms)

    def renew(self, first: int, last: int) -> None:
        """Begin the acknowledgement timeout of the delivery tags first to last anew."""
        self._channel.renew(first, last)
