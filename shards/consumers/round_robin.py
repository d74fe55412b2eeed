"""Consumers of a queue, in turn."""

from collections import deque
from collections.abc import Iterator
from typing import Final

from shardmq.shards.consumers.alone import plain, serve_alone
from shardmq.shards.consumers.consumer import Consumer
from shardmq.shards.consumers.serving import Source, serve, serve_each

EACH_MIN: Final = 3
"""So many consumers get a message each at once; for two, taking the messages together gains nothing."""


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

    Args:
        source: what they are served from.
        single: whether one is served at a time, and the others wait for their turn.

    Attributes:
        exclusive: the consumer that wants to be the only one, if there is one.
    """

    __slots__ = ("_active", "_consumers", "_levels", "_plain", "_single", "_source", "exclusive")

    def __init__(self, source: Source, single: bool = False) -> None:
        self._source = source
        self._plain = plain(source)
        self._single = single
        self._active: Consumer | None = None  # of a single active consumer
        self._consumers: dict[Consumer, None] = {}  # oldest first
        self._levels: list[_Level] = []  # highest priority first
        self.exclusive: Consumer | None = None

    def __len__(self) -> int:
        return len(self._consumers)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(list(self._consumers))

    def serve_from(self, source: Source) -> None:
        """Serve the consumers from another object with the same messages from now on."""
        self._source = source
        self._plain = plain(source)

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

    @property
    def has_turns(self) -> bool:
        """Return whether somebody may have credit."""
        return any(level.turns for level in self._levels)

    def credit(self) -> int:
        """Return how many messages consumers would take at once."""
        return sum([max(0, consumer.credit()) for level in self._levels for consumer in level.turns])

    def deliver(self) -> None:
        """Hand out what is ready to those with credit, in turn and in equal shares, the highest priority first."""
        source, levels, queue = self._source, self._levels, self._plain
        if queue is not None:
            if not queue.ready:
                return
            if len(levels) == 1 and len(levels[0].turns) == 1 and serve_alone(queue, levels[0].turns[0]):
                return
        for level in levels:
            turns = level.turns
            while turns and (ready := source.ready):
                if len(turns) > 1:
                    self._round(turns, ready)
                elif not self._serve_alone(turns, ready):
                    break

    def _serve_alone(self, turns: deque[Consumer], ready: int) -> bool:
        """Give the only consumer its turn; returns whether it may get more. As `_round`, in a third of the time."""
        consumer = turns[0]
        credit = consumer.credit()
        if credit > 0 and serve(self._source, consumer, min(ready, credit)):
            return True
        if credit <= 0 or self._source.ready:
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
        if share == 1 and len(able) >= EACH_MIN and (served := serve_each(self._source, able)):
            turns.extendleft(reversed(able[served:]))
            turns.extend(able[:served])
            return
        for place, consumer in enumerate(able):
            if serve(self._source, consumer, min(share, consumer.credit())):
                turns.append(consumer)
            elif self._source.ready:
                consumer.is_waiting = True  # the next message does not fit, until what is under way to it has arrived
            else:
                turns.extendleft(reversed(able[place:]))
                return

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
