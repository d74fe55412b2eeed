"""A consumer of a group, without waiting: what came for it, which partitions it has, what of it is handled.

    deliver, assigned, revoked, broken, end ──► came ──► step ──► a message, a change of partitions, or None: wait

The connection puts in what comes; one thread or task of the program takes steps. A change is taken before all
deliveries that came with it: those of a partition that is to be let go are dropped, and go to whoever has it next.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec.structs import replace

from shardmq.client.api.message import Batch, Delivery, Message, Settler
from shardmq.client.core.groups.changes import Assigned, Change, Ended, Entry, Revoked
from shardmq.client.core.groups.handed_out import HandedOut
from shardmq.errors import PreconditionFailed, ShardmqError
from shardmq.message.record_batch import record_ends
from shardmq.protocol.native.operations.basic import BasicDeliver


class ChannelOfGroup(Settler, Protocol):
    """The settler of the channel that a consumer is on."""

    def taken(self, delivery: Delivery) -> None:
        """Count a delivery as in the program's hands."""


class Membership:
    """What came for a consumer of a group, and what the program has of it.

    Args:
        channel: the settler of its channel.
        guard: a lock, where several threads settle messages.
        wake: called when something came.

    Attributes:
        handed_out: settles its messages.
        offsets: by number, the offset of the next message of each partition that it has.
        read: by partition, the offset behind what was handed out and not committed by a transaction.
        abandoned: partitions that were taken with such messages: a transaction cannot commit them.
        repeated: partitions of which messages were handed out twice, before the first transaction.
        is_transactional: whether transactions commit what was read.
        ended: how it ended, if it has, and all that came before was taken.
    """

    def __init__(
        self, channel: ChannelOfGroup, guard: AbstractContextManager[object], wake: Callable[[], object]
    ) -> None:
        self.handed_out = HandedOut(channel, guard)
        self.offsets: dict[int, int] = {}
        self.read: dict[int, int] = {}
        self.abandoned: set[int] = set()
        self.repeated: set[int] = set()
        self.is_transactional = False
        self.ended: Ended | None = None
        self._fresh: set[int] = set()  # partitions of which messages were handed out since the last commit
        self._gone: set[int] = set()  # taken partitions: what of theirs was on its way goes to others
        self._committed: dict[int, int] = {}  # by partition, the offset below which a transaction has committed
        self._channel = channel
        self._wake = wake
        self._came: deque[Entry] = deque()  # put by the connection
        self._changes_put = self._changes_taken = self._breaks_put = self._breaks_taken = 0
        self._entries: deque[Entry] = deque()  # taken from there
        self._current: Delivery | None = None  # in hand
        self._partition = -1  # of it
        self._at = 0  # the offset of its next message
        self._messages: Iterator[Message] = iter(())

    @property
    def is_calm(self) -> bool:
        """Whether no change of partitions waits to be taken."""
        return self._changes_put == self._changes_taken

    def deliver(self, delivery: Delivery) -> None:
        """Take messages that have come."""
        self._came.append(delivery)
        self._wake()

    def assigned(self, partitions: list[tuple[int, int]]) -> None:
        """Note partitions that the consumer has from now on."""
        self._put_change(Assigned(partitions))

    def revoked(self, partitions: list[int], is_lost: bool) -> None:
        """Note partitions that it is to let go of, or has lost."""
        self._put_change(Revoked(partitions, is_lost))

    def broken(self) -> None:
        """Note that it has nothing any more: the connection was lost, and it joins the group again with the next."""
        self._breaks_put += 1
        self._put_change(Revoked(None, is_lost=True))

    def end(self, error: ShardmqError | None) -> None:
        """Note that nothing comes any more, and why."""
        self._came.append(Ended(error))
        self._wake()

    def committed(self, offsets: Mapping[int, int], tags: list[tuple[int, int]]) -> None:
        """Note that a transaction has committed offsets, and with them the messages of these delivery tags."""
        for number, offset in offsets.items():
            if self.read.get(number) == offset:
                del self.read[number]
            if number in self.offsets:
                self._committed[number] = offset
        for first, last in tags:
            self.handed_out.ack(first, last)

    def uncommitted(self, *, is_shared: bool) -> list[int]:
        """The partitions of which something was handed out since the last commit, and which were not taken since.

        Args:
            is_shared: whether the group is: no partitions are taken from its members.
        """
        return sorted(self._fresh if is_shared else self._fresh & self.read.keys())

    def note_commit(self, partitions: Iterable[int]) -> None:
        """Note that all that was handed out of partitions is committed, or nacked."""
        self._fresh.difference_update(partitions)
        frame = None if self._current is None else self._current.frame
        if frame is not None and self._partition >= 0 and self._at < (frame.offset or 0) + frame.count:
            self._fresh.add(self._partition)  # the rest of the delivery in hand is still to be handed out

    def check_acked(self, topic: str, group: str, had_acks: bool) -> None:
        """Check that the acks of what was handed out went to a broker that knew it.

        Args:
            topic: what it reads.
            group: its name.
            had_acks: whether there were any.

        Raises:
            PreconditionFailed: the connection was lost before the broker had answered.
        """
        if had_acks and self._breaks_put != self._breaks_taken:
            raise PreconditionFailed(
                f"the connection was lost before what group '{group}' read of topic '{topic}' was acknowledged: "
                "what is not comes again"
            )

    def check_committed(self, topic: str, group: str, offsets: Mapping[int, int]) -> None:
        """Check that its ordered group is as far as what was handed out, all of which was acked; or what was nacked.

        Args:
            topic: what it reads.
            group: its name.
            offsets: by partition, where the group is.

        Raises:
            PreconditionFailed: acks had no effect: partitions were lost before, or their shard was away.
        """
        behind = []
        for number in self.uncommitted(is_shared=False):
            offset = self.read[number]
            at = offsets.get(number, 0)
            waits_at = self.handed_out.waits_at(number, at)
            if at < offset and (waits_at is None or at < waits_at):
                behind.append(number)
        if behind:
            raise PreconditionFailed(
                f"group '{group}' is behind what was read of partitions {behind} of topic '{topic}': they were taken "
                "from this consumer, or their shard was away; what is not committed comes again"
            )

    def has_lost(self) -> bool:
        """Whether partitions were lost with messages that were read, though the program has not heard of that yet."""
        self._take_in()
        lost = [entry for entry in self._entries if isinstance(entry, Revoked) and entry.is_lost]
        return bool(self.read) and any(
            each.partitions is None or not self.read.keys().isdisjoint(each.partitions) for each in lost
        )

    def abandon(self, partitions: Iterable[int]) -> None:
        """Note that partitions are taken: what was read of them is read again by somebody else."""
        for number in partitions:
            self._committed.pop(number, None)
            if self.read.pop(number, None) is not None:
                self.abandoned.add(number)

    def _put_change(self, change: Change) -> None:
        self._came.append(change)
        self._changes_put += 1
        self._wake()

    def change(self) -> Change | None:
        """Take the next change of partitions, before all deliveries; None where there is none."""
        if self._changes_put == self._changes_taken:
            return None
        self._take_in()
        before: list[Entry] = []
        while self._entries:
            entry = self._entries.popleft()
            if isinstance(entry, Assigned | Revoked):
                self._changes_taken += 1
                kept = self._follow(entry, before)
                self._entries.extendleft(reversed(kept))
                return entry
            before.append(entry)
        self._entries.extend(before)
        return None

    def _follow(self, change: Change, before: list[Entry]) -> list[Entry]:
        """Have a change take effect; returns what is left of the deliveries before it."""
        if isinstance(change, Assigned):
            self.offsets.update(dict(change.partitions))
            for number, _ in change.partitions:
                self.handed_out.begin_anew(number)
            back = self._gone.intersection(self.offsets)
            self._gone -= back
            return self._without_those_of(back, before)
        if change.partitions is None:
            change.partitions = list(self.offsets)
            gone = None
            self._breaks_taken += 1
            self.handed_out.take_all()
        else:
            gone = set(change.partitions)
        for number in change.partitions:
            self.offsets.pop(number, None)
        self._gone.update(change.partitions)
        if gone is None or self._partition in gone:
            self._messages, self._partition = iter(()), -1
        return self._without_those_of(gone, before)

    def _without_those_of(self, partitions: set[int] | None, entries: list[Entry]) -> list[Entry]:
        """Drop the deliveries of partitions that are let go of, of all where None; returns the other entries."""
        kept: list[Entry] = []
        for entry in entries:
            if isinstance(entry, Delivery) and (partitions is None or entry.frame.partition in partitions):
                self._channel.taken(entry)
            else:
                kept.append(entry)
        return kept

    def message(self) -> Message | None:
        """Take the next message; None where there is none now."""
        while True:
            message = next(self._messages, None)
            if message is not None:
                self.handed_out.hand_out(message.delivery_tag)
                self._read_to(self._at + 1)
                return message
            delivery = self._delivery()
            if delivery is None:
                return None
            self._messages = iter(delivery.messages())

    def batch(self) -> Batch | None:
        """Take the next messages that came together; None where there are none now."""
        rest = len(list(self._messages))  # of a delivery whose first messages were taken one by one
        delivery = self._current if rest else self._delivery()
        if delivery is None:
            return None
        if rest and rest < delivery.frame.count:
            frame = _without(delivery.frame, delivery.frame.count - rest)
            delivery = Delivery(frame, delivery.settler, delivery.queue)
        frame = delivery.frame
        self.handed_out.add(frame.tag, frame.tag + frame.count - 1)
        self._read_to(self._at + frame.count)
        return Batch(delivery)

    def _read_to(self, offset: int) -> None:
        self._at = offset
        number = self._partition
        if number in self.offsets:
            self.offsets[number] = self.read[number] = offset
        else:
            self.abandoned.add(number)

    def _delivery(self) -> Delivery | None:
        entries = self._entries
        if not entries:
            self._take_in()
        if not entries or self.ended is not None:
            return None
        entry = entries.popleft()
        while isinstance(entry, Delivery) and entry.frame.partition in self._gone:  # it was on its way meanwhile
            self._channel.taken(entry)
            if not entries:
                return None
            entry = entries.popleft()
        if isinstance(entry, Ended):
            self.ended = entry
            return None
        if not isinstance(entry, Delivery):  # a change that came just now: it is taken first
            entries.appendleft(entry)
            return None
        self._channel.taken(entry)
        self._partition = -1 if entry.frame.partition is None else entry.frame.partition
        if entry.frame.redelivered and not self._take_copies(entry):
            return self._delivery()
        entry.settler = self.handed_out
        self._at = entry.frame.offset or 0
        self.handed_out.take_in_hand(entry, self._partition, self._at)
        self._fresh.add(self._partition)
        self._current = entry
        return entry

    def _take_copies(self, delivery: Delivery) -> bool:
        """Take out what the program has already, and got again as its shard was away; returns whether others are left.

        Only where transactions commit what was read: they commit the copies, too. Where messages are acked one by one,
        those that came again are to be, as their first copies cannot be acked any more.
        """
        frame, place = delivery.frame, self.offsets.get(self._partition, 0)
        if frame.offset is None or frame.offset >= place:
            return True
        if not self.is_transactional:
            self.repeated.add(self._partition)
            return True
        count = min(frame.count, place - frame.offset)
        done = max(0, min(count, self._committed.get(self._partition, 0) - frame.offset))
        if done:
            self._channel.ack(frame.tag, frame.tag + done - 1)
        if done < count:
            self.handed_out.add(frame.tag + done, frame.tag + count - 1)
        if count < frame.count:
            delivery.frame = _without(frame, count)
        return count < frame.count

    def _take_in(self) -> None:
        came, entries = self._came, self._entries
        while came:
            entries.append(came.popleft())

    def unseen(self) -> list[tuple[int, int]]:
        """Take all that was delivered and not handed out, as ranges of delivery tags: it is given back."""
        self._take_in()
        ranges = [(message.delivery_tag, message.delivery_tag) for message in self._messages]
        for entry in self._entries:
            if isinstance(entry, Delivery):
                self._channel.taken(entry)
                ranges.append((entry.frame.tag, entry.frame.tag + entry.frame.count - 1))
        self._entries.clear()
        return ranges


def _without(frame: BasicDeliver, count: int) -> BasicDeliver:
    """A delivery without its first `count` messages."""
    return replace(
        frame,
        tag=frame.tag + count,
        serial=frame.serial + count,
        offset=None if frame.offset is None else frame.offset + count,
        count=frame.count - count,
        records=frame.records[record_ends(frame.records, count)[-1] :],
    )
