"""A group's cursor in a partition: which messages it has acknowledged, whose the partition is.

    offset    0 ...... acknowledged ......|.. unacked ..|acked|. unacked .|.. not delivered .......... next
                                          ^ floor                         ^ where it reads on

Between members it is small: a floor, and what is acknowledged above. While there are members, or messages wait for a
delay or as dead letters, `deliveries` has the rest of it (group_deliveries.py). What is stored is always the former: a
start finds the group as if all its members had left.
"""

from typing import Final

from shardmq.bus.messages.groups import GroupState
from shardmq.ranges import RangeSet
from shardmq.shards.segments.delivery_counts import DeliveryCounts
from shardmq.shards.storage.entries import CursorRow, GroupSettings
from shardmq.shards.storage.write_buffer import WriteBuffer
from shardmq.shards.topics.group_deliveries import GroupDeliveries
from shardmq.shards.topics.partition import Partition

ROW_RANGES: Final = 12
"""Ranges to a hundred bytes of a row."""


class GroupCursor:
    """A group's cursor.

    Args:
        partition: what is read.
        buffer: where its changes are written down.
        name: of the group.
        row: what is stored of it, or is to be.

    Attributes:
        partition: what is read.
        name: of the group.
        settings: of the group; None where no member has consumed yet.
        epoch: the newest.
        mark: what was delivered is below it.
        acked: what is acknowledged above the floor, while there are no deliveries; None for nothing.
        counts: how often messages were returned; None where none was.
        letters: whose messages its dead letters are published as.
        lost: how many messages retention dropped before the group had read them.
        partitions_at_begin: how many the topic had when the group began; 0 where that is not known.
        is_consumed: whether it has members, so that its deliveries are to stay.
        deliveries: what its members have, and what they get; None between members.
    """

    __slots__ = (
        "_buffer",
        "_offset",
        "acked",
        "counts",
        "deliveries",
        "epoch",
        "is_consumed",
        "letters",
        "lost",
        "mark",
        "name",
        "partition",
        "partitions_at_begin",
        "settings",
    )

    def __init__(self, partition: Partition, buffer: WriteBuffer, name: str, row: CursorRow) -> None:
        self.partition = partition
        self._buffer = buffer
        self.name = name
        self._offset = row.offset
        self.epoch = row.epoch
        self.mark = row.offset if row.mark == row.offset else row.mark  # one number in memory, mostly
        self.settings: GroupSettings | None = row.settings
        self.letters = row.letters
        self.lost = row.lost
        self.partitions_at_begin = row.partitions_at_begin
        begin = row.offset
        self.acked = RangeSet([(begin + start, begin + end) for start, end in row.acked]) if row.acked else None
        self.counts = DeliveryCounts(row.counts) if row.counts else None
        self.is_consumed = False
        self.deliveries: GroupDeliveries | None = None
        delays = [(due, *run) for due, start, end in row.delays for run in partition.present(start, end)]
        if delays:
            self.open().adopt(delays)

    @property
    def floor(self) -> int:
        """Return the lowest message that is not acknowledged; where the group reads on, where there is none."""
        return self._offset if self.deliveries is None else self.deliveries.floor

    @property
    def offset(self) -> int:
        """Return what the group reads next: its floor, or the oldest message where that was dropped."""
        return max(self.floor, self.partition.first)

    def open(self) -> GroupDeliveries:
        """Return its deliveries; there are some from here on."""
        if self.deliveries is None:
            self.deliveries = GroupDeliveries(self, self._offset)
            self.acked = None
        return self.deliveries

    def close(self) -> None:
        """Forget its deliveries, where nothing is to come of them: the last member has left."""
        deliveries = self.deliveries
        if deliveries is None or self.is_consumed or not deliveries.is_idle:
            return
        self._offset = deliveries.floor
        acked = deliveries.acked_above()
        self.acked = RangeSet(acked) if acked else None
        self.mark = deliveries.reached
        self.deliveries = None
        self.moved()

    def commit(self, offset: int) -> None:
        """Acknowledge all messages below an offset."""
        self.open().advance(offset)
        self.close()
        self.keep()

    def reset(self, offset: int) -> None:
        """Go on elsewhere; what members had is forgotten."""
        self.open().reset(offset)
        self.close()
        self.keep()

    def moved(self) -> None:
        """Have it written, as other acknowledgements are."""
        self._buffer.move(self.partition.id, self.name, self)

    def keep(self) -> None:
        """Have it written with this pass."""
        self._buffer.keep(self.partition.id, self.name, self)

    def lose(self) -> None:
        """Have it deleted."""
        self._buffer.lose(self.partition.id, self.name)

    def mark_exactly(self) -> None:
        """Write down exactly what was delivered and what was passed over, at a clean stop."""
        if self.deliveries is not None:
            self.mark = self.deliveries.reached
            self.keep()

    @property
    def row_size(self) -> int:
        """Return about how large its row is, in hundreds of bytes."""
        ranges = self.deliveries.ranges if self.deliveries is not None else len(self.acked or ())
        return 1 + ranges // ROW_RANGES

    def row(self) -> CursorRow:
        """Return what is stored of it."""
        floor, deliveries = self.floor, self.deliveries
        acked = list(self.acked or ()) if deliveries is None else deliveries.acked_above()
        return CursorRow(
            floor,
            self.epoch,
            self.mark,
            self.settings,
            self.letters,
            self.lost,
            [(start - floor, end - floor) for start, end in acked],
            list(self.counts or ()),
            [] if deliveries is None else deliveries.delays,
            self.partitions_at_begin,
        )

    def state(self, consumers: int = 0, member: str = "") -> GroupState:
        """Return what it looks like.

        Args:
            consumers: how many its group has here.
            member: whose the partition is.
        """
        offset, deliveries = self.offset, self.deliveries
        letters = deliveries.letters if deliveries is not None else None
        unread = offset - self._offset if deliveries is None else 0  # dropped since somebody looked
        acked = list(self.acked or ()) if deliveries is None else deliveries.acked_above()
        return GroupState(
            self.name,
            self.settings.is_shared if self.settings is not None else None,
            offset,
            self.epoch,
            member,
            consumers,
            deliveries.unsettled.count if deliveries is not None else 0,
            sum([end - max(start, offset) for start, end in acked if end > offset]),
            deliveries.delayed if deliveries is not None else 0,
            letters.count if letters is not None else 0,
            self.lost + unread,
            partitions_at_begin=self.partitions_at_begin,
        )
