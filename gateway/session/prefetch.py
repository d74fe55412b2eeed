"""What a channel's consumers may hold: each of them, and all together. What comes beyond that waits, in its order.

Each consumer's shard knows its own limit alone, and every one of them may use up the whole of the channel's: so more
may come than there is room for. It waits until something is settled, and counts as held by its consumer meanwhile.
Consumers without acknowledgements take no room, but get nothing while there is none, as in RabbitMQ; what waits for
them is held by their shard until it is handed out, and so returns to its queue should the channel close.

A channel that has had no room for a while tells the shards of its consumers to send nothing until it has, so that other
consumers of their queues get what comes there. A channel that is busy has room again sooner, and tells nothing.
"""

import asyncio
from collections import deque
from collections.abc import Collection
from typing import Final

import msgspec

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.bus.messages.shard import Delivered, Qos
from shardmq.errors import NotFound
from shardmq.gateway.links.consumer import Consumer
from shardmq.gateway.session.client import Client
from shardmq.message.record_batch import RecordBatch, record_ends

PAUSE_SECONDS: Final = 0.1
"""Without room for so long, a channel's consumers are paused: their shards hear of that ten times a second at most."""

PAUSED: Final = -1
"""The prefetch of a consumer that is to get nothing, as its shard is told."""


class SharedPrefetch:
    """The limit of what a channel's consumers hold together, and what waits for room within it.

    Args:
        limit: how many messages, at least 1.

    Attributes:
        is_paused: whether the consumers are to get nothing.
        is_watched: whether there was no room, and this will be checked again in a while.
    """

    __slots__ = ("_waiting", "is_paused", "is_watched", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.is_paused = self.is_watched = False
        self._waiting: deque[tuple[Consumer, int, Delivered]] = deque()  # with the life of its link

    @property
    def has_waiting(self) -> bool:
        """Whether messages wait for room."""
        return bool(self._waiting)

    def put(self, consumer: Consumer, delivered: Delivered) -> None:
        """Add messages that have come."""
        self._waiting.append((consumer, consumer.link.life, delivered))

    def take(self, room: int | None) -> tuple[Consumer, Delivered] | None:
        """Take the next messages that their shard has not lost meanwhile.

        Args:
            room: how many at most, but for a consumer that takes no room; None for all.

        Returns:
            None where there are none.
        """
        waiting = self._waiting
        while waiting and (room is None or room > 0):
            consumer, life, delivered = waiting.popleft()
            if life != consumer.link.life:
                continue
            if room is not None and not consumer.auto_ack and delivered.batch.count > room:
                delivered, rest = _split(delivered, room)
                waiting.appendleft((consumer, life, rest))
            return consumer, delivered
        return None

    def drop(self, consumer: Consumer, start: int = 0, end: int | None = None) -> list[Delivered]:
        """Drop a consumer's messages [start, end); returns those that its shard has not lost."""
        kept: deque[tuple[Consumer, int, Delivered]] = deque()
        dropped: list[Delivered] = []
        for whose, life, delivered in self._waiting:
            first, last = delivered.first, delivered.first + delivered.batch.count
            low, high = max(first, start), last if end is None else min(last, end)
            if whose is not consumer or low >= high:
                kept.append((whose, life, delivered))
                continue
            if first < low:
                head, delivered = _split(delivered, low - first)
                kept.append((whose, life, head))
            if high < last:
                delivered, tail = _split(delivered, high - low)
                kept.append((whose, life, tail))
            if life == consumer.link.life:
                dropped.append(delivered)
        self._waiting = kept
        return dropped


class PrefetchLimits:
    """How much several consumers may hold, each of them and all together.

    Args:
        client: whose they are.
        number: of their channel.

    Attributes:
        is_open: whether the channel is.
        unacked: messages that the consumers hold together, those of gets apart.
    """

    __slots__ = ("_is_retuned", "_shared", "client", "is_open", "number", "unacked")

    def __init__(self, client: Client, number: int) -> None:
        self.client = client
        self.number = number
        self.is_open = True
        self.unacked = 0
        self._shared: SharedPrefetch | None = None
        self._is_retuned = False

    @property
    def limited(self) -> Collection[Consumer]:
        """The consumers that run."""
        raise NotImplementedError

    @property
    def may_pause(self) -> bool:
        """Whether consumers that have no room are paused, so that others get what comes."""
        raise NotImplementedError

    def pass_on(self, consumer: Consumer, delivered: Delivered) -> None:
        """Number messages that a shard sent, and pass them on."""
        raise NotImplementedError

    def starved(self, consumer: Consumer) -> None:
        """Answer a shard that has messages beyond a consumer's prefetch: there is no more of it."""
        consumer.link.decline(consumer)

    @property
    def has_shared_prefetch(self) -> bool:
        """Whether there is a limit of what all consumers hold together."""
        return self._shared is not None

    def _retune_later(self) -> None:
        """Retune once a pass: a method of twenty bytes may concern thousands of consumers, and the last one counts."""
        if not self._is_retuned:
            self._is_retuned = True
            self.client.state.retune_due(self)

    def retune(self) -> None:
        """Apply the limits that were changed in this pass."""
        self._is_retuned = False
        self._tell_limits()
        if self._shared is not None:
            self._hand_on(self._shared)

    def _prefetch_of(self, consumer: Consumer) -> int:
        """What a consumer's shard is to know as its prefetch."""
        own, shared = consumer.own_prefetch, self._shared
        if shared is None:
            return 0 if consumer.settled_late else own
        if shared.is_paused:
            return PAUSED
        if consumer.auto_ack:
            return 0
        return min(own, shared.limit) if own else shared.limit

    def _tell_limits(self) -> None:
        """Tell shards of their consumers' prefetch, where it is another now; they follow in their time."""
        for consumer in self.limited:
            settled_late = consumer.settled_late or (consumer.auto_ack and self._shared is not None)
            prefetch = self._prefetch_of(consumer)
            if prefetch != consumer.prefetch or settled_late is not consumer.settled_late:
                consumer.prefetch, consumer.settled_late = prefetch, settled_late
                consumer.link.ask(Qos(consumer.number, prefetch, settled_late), _ignore)

    def trace(self, consumer: Consumer, batch: RecordBatch, redelivered: bool) -> None:
        """Copy what the client gets to those who trace it, where its virtual host is traced."""
        client = self.client
        if client.state.firehose is not None:
            client.state.firehose.delivered(client, self.number, consumer.queue, batch, redelivered)

    def _hand_on(self, shared: SharedPrefetch) -> None:
        """Hand out what has waited, as far as there is room for it now; have more of it come if there is room still."""
        if shared is self._shared and not (shared.has_waiting or shared.is_paused) and shared.limit > self.unacked:
            return  # as after most acks
        while (waiting := shared.take(self._room())) is not None:
            self.pass_on(*waiting)
        if self._shared is not shared:
            return
        if self._has_room():
            if shared.is_paused:
                shared.is_paused = False
                self._tell_limits()
        elif not (shared.is_paused or shared.is_watched) and self.may_pause:
            shared.is_watched = True
            asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._pause, shared)

    def _pause(self, shared: SharedPrefetch) -> None:
        """Pause the consumers if there is no room, as there was none a while ago."""
        shared.is_watched = False
        if self.is_open and self._shared is shared and not self._has_room():
            shared.is_paused = True
            self._tell_limits()

    def has_room_for(self, consumer: Consumer, count: int) -> bool:
        """Whether a consumer may hold so many messages more, and none waits before them."""
        if consumer.prefetch and consumer.unacked + count > consumer.prefetch:
            return False
        shared = self._shared
        return shared is None or (not shared.has_waiting and count < shared.limit - self.unacked)

    def _has_room(self) -> bool:
        room = self._room()
        return room is None or room > 0

    def _room(self) -> int | None:
        """For how many messages there is room within the shared limit; None where there is no such limit.

        What basic.get got does not count.
        """
        return None if self._shared is None else self._shared.limit - self.unacked


class ChannelPrefetch(PrefetchLimits):
    """How much a channel's consumers may hold.

    Args:
        client: whose channel it is.
        number: of the channel.

    Attributes:
        by_tag: consumers that run.
    """

    __slots__ = ("_cancelled", "_prefetch_of_all", "by_tag")

    def __init__(self, client: Client, number: int) -> None:
        super().__init__(client, number)
        self.by_tag: dict[str, Consumer] = {}
        self._cancelled: dict[Consumer, bool] = {}  # may hold messages; whether their shards have heard
        self._prefetch_of_all: int | None = None  # that running consumers are to have from the end of this pass on

    @property
    def limited(self) -> Collection[Consumer]:
        """The consumers that run."""
        return self.by_tag.values()

    @property
    def may_pause(self) -> bool:
        """Whether there are several: one consumer's shard knows its limit."""
        return len(self.by_tag) + len(self._cancelled) > 1

    def qos(self, tag: str, prefetch: int, reply: Reply) -> None:
        """Change a running consumer's prefetch.

        Raises:
            NotFound: the channel has no consumer of that tag.
        """
        consumer = self.by_tag.get(tag)
        if consumer is None:
            raise NotFound(f"channel {self.number} has no consumer '{tag}'")
        consumer.own_prefetch = prefetch
        consumer.prefetch = self._prefetch_of(consumer)
        consumer.link.ask(Qos(consumer.number, consumer.prefetch), reply)

    def qos_of_all(self, prefetch: int) -> None:
        """Change the prefetch of all running consumers; their shards follow in their time."""
        self._prefetch_of_all = prefetch
        self._retune_later()

    def share(self, prefetch: int) -> None:
        """Limit what all consumers hold together, beside what each may; 0 for no such limit.

        Consumers without acknowledgements hold nothing, but get nothing either while the others have used it up.
        """
        shared = self._shared
        if shared is None and not prefetch:
            return
        if shared is not None and prefetch:
            shared.limit = prefetch
        else:
            self._shared = SharedPrefetch(prefetch) if prefetch else None
            if shared is not None:
                self._hand_on(shared)
        self._retune_later()

    def retune(self) -> None:
        """Apply the limits that were changed in this pass."""
        prefetch, self._prefetch_of_all = self._prefetch_of_all, None
        if prefetch is not None:
            for consumer in self.by_tag.values():
                consumer.own_prefetch = prefetch
        super().retune()


def _split(delivered: Delivered, count: int) -> tuple[Delivered, Delivered]:
    """The first `count` messages, and the others."""
    batch = delivered.batch
    place = record_ends(batch.records, count)[-1]
    replace = msgspec.structs.replace
    head = replace(batch, count=count, records=batch.records[:place])
    tail = replace(batch, serial=batch.serial + count, count=batch.count - count, records=batch.records[place:])
    return replace(delivered, batch=head), replace(delivered, first=delivered.first + count, batch=tail)


def _ignore(_outcome: Outcome) -> None:
    """Ignore an outcome: a shard that was away when it was asked hears all of a consumer when it is back."""
