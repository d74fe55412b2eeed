"""Consumers and their credit."""

from typing import Any, Final, Protocol

from shardmq.bus.listener import Peer
from shardmq.bus.messages.columns import FORWARDED
from shardmq.limits import DELIVERY_CREDIT_SHARE
from shardmq.ranges import RangeSet
from shardmq.shards.consumers.ack_latency import ARMED, AckLatency
from shardmq.shards.consumers.ack_timeouts import AckTimeouts
from shardmq.shards.consumers.forwarded_numbers import ForwardedNumbers
from shardmq.shards.queues.queue import Queue
from shardmq.shards.segments.segment import Ranges
from shardmq.shards.topics.cursor import Cursor
from shardmq.shards.topics.partition import Partition

UNLIMITED: Final = 1 << 62
"""The credit of a consumer without a prefetch."""

NONE_FRESH: Final = 1 << 63
"""Above every number: all messages that are put back were delivered before."""

SMALL_WINDOW_BYTES: Final = 256 << 10
"""Of a window up to this size, three quarters are to be free before more goes out, as in what is left of it there is
room for a piece of a record batch alone. So much is always free again by itself: see `is_clear`."""


class Settler(Protocol):
    """Who keeps account of what a consumer holds: its queue, or its group's deliveries in a partition."""

    def settle(self, ranges: Ranges) -> None:
        """Settle messages."""

    def requeue(self, ranges: Ranges) -> None:
        """Make messages ready again, at their place."""

    def reject(self, ranges: Ranges) -> None:
        """Dead-letter messages, or drop them."""

    def time_out(self, ranges: Ranges) -> None:
        """Take messages back that were held for too long."""

    def put_back(self, ranges: Ranges, fresh_from: int) -> None:
        """Make messages ready again, as no delivery limit counts; those from `fresh_from` on as never delivered."""


class Consumer:
    """A receiver of one queue's messages: a consumer, or a client of basic.get, which only holds what it got.

    Attributes:
        peer: the gateway it is at.
        number: the gateway's number for it.
        queue: whose messages it gets.
        settler: who keeps account of what it holds: the queue, or its group's deliveries.
        prefetch: how many it may hold unacked; 0 is no limit.
        auto_ack: whether its client acknowledges nothing.
        settles: whether messages are held for it until they are settled; else they are settled as they go out.
        window: bytes that may be under way to it.
        room: bytes of it that are free now.
        overhead: bytes of it that each message takes beside its record and names; 0 where it takes its record alone.
        permit: bytes that may go in this pass in addition to the window.
        is_asking: whether its gateway was told of a message larger than the window, and has not answered.
        held: numbers of the messages it holds unacked.
        forwarded: the numbers by which it knows those that its gateway forwarded.
        priority: those with a higher one are served before it.
        exclusive: whether it wants to be the queue's only one.
        timeouts: when what it holds is overdue, if that is limited.
        cursor: where it is in the partition that it reads; None where it consumes a queue.
        is_active: whether it is served; the others of a queue with a single active consumer wait for their turn.
        is_waiting: whether it is out of turn, because it has no credit.
        is_tallied: whether what it gets is counted here (`tally`): it acknowledges nothing, or reads a partition.
        stale: what it held when its group was sent elsewhere: settling it has no effect; None for nothing.
        is_behind_stale: whether some of that is to be delivered again: it gets nothing before all of it is settled.
        fresh_from: what it got from this number on, it got as the first.
        latency: how long it takes to acknowledge.
    """

    __slots__ = (
        "_room_least",
        "auto_ack",
        "cursor",
        "exclusive",
        "forwarded",
        "fresh_from",
        "held",
        "is_active",
        "is_asking",
        "is_behind_stale",
        "is_tallied",
        "is_waiting",
        "latency",
        "number",
        "overhead",
        "peer",
        "permit",
        "prefetch",
        "priority",
        "queue",
        "room",
        "settler",
        "settles",
        "stale",
        "timeouts",
        "window",
    )

    def __init__(
        self,
        peer: Peer,
        number: int,
        queue: Queue,
        prefetch: int,
        auto_ack: bool,
        window: int,
        priority: int = 0,
        exclusive: bool = False,
    ) -> None:
        self.peer = peer
        self.number = number
        self.queue = queue
        self.settler: Settler = queue
        self.prefetch = prefetch
        self.auto_ack = auto_ack
        self.settles = not auto_ack
        self.is_tallied = auto_ack or isinstance(queue, Partition)
        self.window = window
        self.room = window
        self._room_least = window * 3 // 4 if window <= SMALL_WINDOW_BYTES else window // 4
        self.overhead = 0
        self.permit = 0
        self.forwarded = ForwardedNumbers()
        self.is_asking = False
        self.held = RangeSet()
        self.priority = priority
        self.exclusive = exclusive
        self.timeouts: AckTimeouts | None = None
        self.cursor: Cursor | None = None
        self.is_active = False
        self.is_waiting = False
        self.fresh_from = 0
        self.stale: RangeSet | None = None
        self.is_behind_stale = False
        self.latency = AckLatency()

    def move_to(self, queue: Queue) -> None:
        """Get the same queue's messages from another object that has them from now on."""
        if self.settler is self.queue:
            self.settler = queue
        self.queue = queue

    def credit(self) -> int:
        """Return how many messages it may get now.

        That is 0 while less than a quarter of the window is free, of a small one three: small pieces cut off large
        batches cost more than they bring, and the window is free again when what is under way has arrived.
        """
        if self.room < self._room_least and not self.permit:
            return 0
        if self.is_behind_stale:
            return 0
        if not self.prefetch:
            return UNLIMITED
        held = self.held.count
        return self.prefetch - (held if self.stale is None else held + self.stale.count)

    def is_clear(self) -> bool:
        """Whether so much of the window is free that nothing need be under way: a message as large as it may go.

        What is not free is then less than the gateway collects before it gives credit back.
        """
        return (self.window - self.room) * DELIVERY_CREDIT_SHARE < self.window

    def release(self, start: int, end: int) -> list[tuple[int, int]]:
        """Take numbers out of what it holds; returns those it really held."""
        if start >= FORWARDED:
            return [part for found in self.forwarded.numbers(start, end) for part in self.release(*found)]
        if start <= self.latency.timed < end:
            self.latency.end()
        if self.stale is None:
            return self.held.take(start, end)
        stale = self.stale.take(start, end)
        if not self.stale:
            self.stale, self.is_behind_stale = None, False
        return [part for gap in RangeSet(stale).gaps(start, end) for part in self.held.take(*gap)]

    def requeue_unhandled(self, ranges: Ranges) -> None:
        """Requeue messages that its client had not given back itself, or gives back without having looked at them.

        A queue's delivery limit counts that, as RabbitMQ's does. A group's does not: most of them lay in the member's
        inbox when it ended, or when its partition was given to another.
        """
        if self.settler is self.queue:
            self.settler.requeue(ranges)
        elif ranges:
            self.settler.put_back(ranges, NONE_FRESH)

    def holds(self, start: int, end: int) -> bool:
        """Whether it holds all of the messages that it knows as [start, end)."""
        known = self.forwarded.numbers(start, end) if start >= FORWARDED else [(start, end)]
        held = [part for found in known for part in self.held.within(*found)]
        return sum([stop - first for first, stop in held]) == end - start

    def forget(self, offset: int) -> None:
        """Hold nothing: its group was sent elsewhere. What it settles next of these messages is of no effect.

        Messages from `offset` on are delivered now. Where it has some of them already it gets nothing before it has
        settled those: nobody could tell for which delivery of a message an acknowledgement is.
        """
        if self.held:
            self.stale = self.stale or RangeSet()
            self.stale.unite(list(self.held))
            self.held.clear()
        self.is_behind_stale = self.stale is not None and self.stale.end > offset

    def hold(self, first: int, end: int, again: bool) -> None:
        """Note messages that went out to it, and that it is to settle."""
        self.held.add(first, end)
        if self.timeouts is not None:
            self.timeouts.add(first, end, again)
        if self.latency.timed == ARMED:
            self.latency.begin(first)

    def tally_delivered(self, count: int) -> None:
        """Count messages that go out to it."""
        tally = self.queue.tally
        tally.delivered += count
        if self.auto_ack:
            tally.no_ack += count
            if not self.settles:
                self.tally_settled(count)

    def tally_settled(self, count: int) -> None:
        """Count messages of it that are settled."""
        tally = self.queue.tally
        tally.acked += count
        if self.auto_ack:
            tally.unasked += count

    def table(self) -> dict[str, Any]:
        """Return what `shardmq consumer list` shows of it."""
        return {
            "gateway": self.peer.name,
            "consumer": self.number,
            "prefetch": self.prefetch,
            "auto_ack": self.auto_ack,
            "priority": self.priority,
            "exclusive": self.exclusive,
            "active": self.is_active,
            "unacked": self.held.count,
            **self.latency.table(),
        }
