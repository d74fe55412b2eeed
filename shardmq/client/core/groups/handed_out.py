"""What a consumer of a group has handed out and nobody has settled."""

from contextlib import AbstractContextManager

from shardmq.client.api.message import Delivery, Settler
from shardmq.client.core.groups.nacked import Nacked
from shardmq.client.core.validation import check_nack
from shardmq.ranges import RangeSet


class HandedOut:
    """The settler of a group consumer's messages: each is settled once, by the program or by the next step.

    Args:
        channel: the channel's settler.
        guard: held while ranges change: with threads, messages are settled by any of them.
    """

    __slots__ = ("_channel", "_guard", "_nacked", "_newest", "_tags")

    def __init__(self, channel: Settler, guard: AbstractContextManager[object]) -> None:
        self._channel = channel
        self._guard = guard
        self._nacked = Nacked()
        self._tags = RangeSet()
        self._newest = 0  # kept beside them: mostly it is settled before the next one comes, at a third of the cost

    def take_in_hand(self, delivery: Delivery, partition: int, offset: int) -> None:
        """Note where the messages of a delivery are, of which the program gets the first now."""
        frame = delivery.frame
        if self._nacked.note(frame.tag, frame.count, partition, offset):
            with self._guard:
                self._fold()
                self._nacked.tidy(self._tags)
        if frame.redelivered:
            with self._guard:
                self._nacked.came_again(partition, offset, offset + frame.count)

    def begin_anew(self, partition: int) -> None:
        """Note that a partition begins, at what its group has settled."""
        with self._guard:
            self._nacked.forget(partition)

    def waits_at(self, partition: int, at: int) -> int | None:
        """The offset of the first nacked message that a group at an offset may wait for; None where there is none."""
        with self._guard:
            return self._nacked.waits_at(partition, at)

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
        with self._guard:
            self._fold()
            ranges = self._tags.take(first, last + 1)
        for start, end in ranges:
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
        check_nack(requeue, delay_ms)  # before they are taken: what is refused can be settled in another way
        with self._guard:
            self._fold()
            ranges = self._tags.take(first, last + 1)
            for start, end in ranges:
                self._nacked.add(start, end)
        for start, end in ranges:
            self._channel.nack(start, end - 1, requeue, delay_ms)

    def renew(self, first: int, last: int) -> None:
        """Begin the acknowledgement timeout of the delivery tags first to last anew."""
        self._channel.renew(first, last)
