"""Consumers, their credit, and whose turn it is."""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from shardmq.bus.listener import Peer
from shardmq.bus.messages.shard import Delivered, Spent, Wanted
from shardmq.limits import DELIVERY_CREDIT_SHARE, NAME_BYTES_MAX
from shardmq.message.record import cost
from shardmq.ranges import RangeSet
from shardmq.shards.queues.queue import Queue
from shardmq.shards.state.ack_timeouts import AckTimeouts

UNLIMITED: Final = 1 << 62
"""The credit of a consumer without a prefetch."""

SMALL_WINDOW_BYTES: Final = 256 << 10
"""Of a window up to this size, three quarters are to be free before more goes out, as in what is left of it there is
room for a piece of a record batch alone. So much is always free again by itself: see `is_clear`."""


class Consumer:
    """A receiver of one queue's messages: a consumer, or a client of basic.get, which only holds what it got.

    Attributes:
        peer: the gateway it is at.
        number: the gateway's number for it.
        queue: whose messages it gets.
        prefetch: how many it may hold unacked; 0 is no limit.
        auto_ack: whether its client acknowledges nothing.
        settles: whether messages are held for it until they are settled; else they are settled as they go out.
        window: bytes that may be under way to it.
        room: bytes of it that are free now.
        overhead: bytes of it that each message takes beside its record and names; 0 where it takes its record alone.
        permit: bytes that may go in this pass in addition to the window.
        is_asking: whether its gateway was told of a message larger than the window, and has not answered.
        held: numbers of the messages it holds unacked.
        priority: those with a higher one are served before it.
        exclusive: whether it wants to be the queue's only one.
        timeouts: when what it holds is overdue, if that is limited.
        is_active: whether it is served; the others of a queue with a single active consumer wait for their turn.
        is_waiting: whether it is out of turn, because it has no credit.
        fresh_from: what it got from this number on, it got as the first.
    """

    __slots__ = (
        "_room_least",
        "auto_ack",
        "exclusive",
        "fresh_from",
        "held",
        "is_active",
        "is_asking",
        "is_waiting",
        "number",
        "overhead",
        "peer",
        "permit",
        "prefetch",
        "priority",
        "queue",
        "room",
        "settles",
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
        self.prefetch = prefetch
        self.auto_ack = auto_ack
        self.settles = not auto_ack
        self.window = window
        self.room = window
        self._room_least = window * 3 // 4 if window <= SMALL_WINDOW_BYTES else window // 4
        self.overhead = 0
        self.permit = 0
        self.is_asking = False
        self.held = RangeSet()
        self.priority = priority
        self.exclusive = exclusive
        self.timeouts: AckTimeouts | None = None
        self.is_active = False
        self.is_waiting = False
        self.fresh_from = 0

    def credit(self) -> int:
        """Return how many messages it may get now.

        That is 0 while less than a quarter of the window is free, of a small one three: small pieces cut off large
        batches cost more than they bring, and the window is free again when what is under way has arrived.
        """
        if self.room < self._room_least and not self.permit:
            return 0
        return self.prefetch - self.held.count if self.prefetch else UNLIMITED

    def is_clear(self) -> bool:
        """Whether so much of the window is free that nothing need be under way: a message as large as it may go.

        What is not free is then less than the gateway collects before it gives credit back.
        """
        return (self.window - self.room) * DELIVERY_CREDIT_SHARE < self.window

    def release(self, start: int, end: int) -> list[tuple[int, int]]:
        """Take numbers out of what it holds; returns those it really held."""
        return self.held.take(start, end)

    def hold(self, first: int, end: int, again: bool) -> None:
        """Note messages that went out to it, and that it is to settle."""
        self.held.add(first, end)
        if self.timeouts is not None:
            self.timeouts.add(first, end, again)

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
        }


class _Level:
    """Consumers of one priority.

    Attributes:
        priority: theirs.
        turns: those who may have credit, in the order of their turns.
        members: how many there are, with credit or without.
    """

    __slots__ = ("members", "priority", "turns")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.turns: deque[Consumer] = deque()
        self.members = 0


class RoundRobin:
    """The consumers of a queue, in the order of their turns.

    A consumer without credit is out of turn until `wake`, so that a thousand busy consumers are not asked again for
    every message.

    Attributes:
        exclusive: the consumer that wants to be the only one, if there is one.
    """

    __slots__ = ("_active", "_consumers", "_levels", "_queue", "_single", "exclusive")

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._single = queue.arguments.single_active_consumer
        self._active: Consumer | None = None  # of a single active consumer
        self._consumers: dict[Consumer, None] = {}  # oldest first
        self._levels: list[_Level] = []  # highest priority first
        self.exclusive: Consumer | None = None

    def __len__(self) -> int:
        return len(self._consumers)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(list(self._consumers))

    def join(self, consumer: Consumer) -> None:
        """Add a consumer, last in turn."""
        self._consumers[consumer] = None
        if consumer.exclusive:
            self.exclusive = consumer
        if not self._single:
            self._enter(consumer)
        elif self._active is None:
            self._active = consumer
            self._enter(consumer)

    def leave(self, consumer: Consumer) -> None:
        """Remove a consumer, if it is there."""
        if consumer not in self._consumers:
            return
        del self._consumers[consumer]
        if self.exclusive is consumer:
            self.exclusive = None
        if consumer.is_active:
            self._exit(consumer)
        if self._active is consumer:
            # The highest priority; of equals, max() takes the first, and that is the oldest.
            self._active = max(self._consumers, key=lambda other: other.priority, default=None)
            if self._active is not None:
                self._enter(self._active)

    def wake(self, consumer: Consumer) -> None:
        """Put a consumer back in turn: it may have credit again."""
        if consumer.is_waiting:
            consumer.is_waiting = False
            self._level(consumer.priority).turns.append(consumer)

    def credit(self) -> int:
        """Return how many messages consumers would take at once."""
        return sum([max(0, consumer.credit()) for level in self._levels for consumer in level.turns])

    def deliver(self) -> None:
        """Hand out what is ready to those with credit, in turn and in equal shares, the highest priority first."""
        queue = self._queue
        for level in self._levels:
            turns = level.turns
            while turns and (ready := queue.ready):
                if len(turns) > 1:
                    self._round(turns, ready)
                elif not self._serve_alone(turns, ready):
                    break

    def _serve_alone(self, turns: deque[Consumer], ready: int) -> bool:
        """Give the only consumer its turn; returns whether it may get more. As `_round`, in a third of the time."""
        consumer = turns[0]
        credit = consumer.credit()
        if credit > 0 and self._serve(consumer, min(ready, credit)):
            return True
        if credit <= 0 or self._queue.ready:
            consumer.is_waiting = True
            turns.popleft()
        return False

    def _round(self, turns: deque[Consumer], ready: int) -> None:
        """Give each consumer one turn, while there are messages. One that cannot be served is out of turn."""
        able: list[Consumer] = []
        while turns and len(able) < ready:
            consumer = turns.popleft()
            if consumer.credit() > 0:
                able.append(consumer)
            else:
                consumer.is_waiting = True
        if not able:
            return
        share = -(-ready // len(able))
        for place, consumer in enumerate(able):
            if self._serve(consumer, min(share, consumer.credit())):
                turns.append(consumer)
            elif self._queue.ready:
                consumer.is_waiting = True  # the next message does not fit, until what is under way to it has arrived
            else:
                turns.extendleft(reversed(able[place:]))
                return

    def _serve(self, consumer: Consumer, limit: int) -> bool:
        """Hand out `limit` messages at most; returns whether there were any that may go."""
        queue = self._queue
        room = max(consumer.room, consumer.permit)
        stored = queue.stored_bytes()
        if stored > max(room, consumer.window):  # not read before it may go
            self._may_go(consumer, stored)
            return False
        if consumer.overhead:
            limit = min(limit, max(1, room // (consumer.overhead + 2 * NAME_BYTES_MAX)))
        deliveries = queue.take(limit, room, alone=False)
        if not deliveries and queue.ready and self._may_go(consumer, queue.head_bytes()):
            deliveries = queue.take(1, consumer.window, alone=False)
        post = consumer.peer.post
        if consumer.permit and deliveries:
            self._spend(consumer, sum([len(batch.records) for *_, batch in deliveries]))
        for first, redelivered, delivery_count, batch in deliveries:
            end = first + batch.count
            consumer.room -= cost(batch, consumer.overhead)
            if not consumer.settles:
                queue.settle([(first, end)])
            elif consumer.timeouts is None:
                consumer.held.add(first, end)
            else:
                consumer.hold(first, end, redelivered)
            if redelivered and end > consumer.fresh_from:
                consumer.fresh_from = end
            post(Delivered(consumer.number, first, redelivered, batch, delivery_count))
        return bool(deliveries)

    def _may_go(self, consumer: Consumer, size: int) -> bool:
        """Tell whether a message may go that does not fit into the free part of the window.

        One as large as the window may go when nothing else is under way; a larger one needs a permit.
        """
        if size <= consumer.window:
            return consumer.is_clear()
        if not consumer.is_asking:
            consumer.is_asking = True
            consumer.peer.post(Wanted(consumer.number, size))
        return False

    def _spend(self, consumer: Consumer, size: int) -> None:
        """Charge what goes now to the permit, and not to the window."""
        consumer.peer.post(Spent(consumer.number, consumer.permit, size))
        consumer.room += size
        consumer.permit = 0

    def _enter(self, consumer: Consumer) -> None:
        level = self._level(consumer.priority)
        level.members += 1
        level.turns.append(consumer)
        consumer.is_active = True

    def _exit(self, consumer: Consumer) -> None:
        level = self._level(consumer.priority)
        level.members -= 1
        if not consumer.is_waiting:
            level.turns.remove(consumer)
        consumer.is_active = consumer.is_waiting = False
        if not level.members:
            self._levels.remove(level)

    def _level(self, priority: int) -> _Level:
        for level in self._levels:
            if level.priority == priority:
                return level
        level = _Level(priority)
        self._levels.append(level)
        self._levels.sort(key=lambda other: -other.priority)
        return level
