"""What a channel's consumers may hold: each of them, and all together. What comes beyond that waits, in its order.

Each consumer's shard knows its own limit alone, and every one of them may use up the whole of the channel's: so more
may come than there is room for. It waits until something is settled, and counts as held by its consumer meanwhile.
Consumers without acknowledgements take no room, but get nothing while there is none, as in RabbitMQ; what waits for
them is held by their shard until it is handed out, and so returns to its queue should the channel close.

A channel that has had no room for a while tells the shards of its consumers to send nothing until it has, and gives
back what waits: other consumers of their queues get it. When there is room again, those whose messages went back are
served before the others, and shards are told of that room, not of the whole limit: all of them send for it, and what
finds none goes back once more. A channel that is busy has room again sooner, and tells nothing.

               no room for 0.1 s            room                    answered, and room is left
    the limit ──────────────────► nothing ───────► the room, to those ────────────────────────► the room, to all
        ▲                            ▲             whose messages                                    │
        │                            │             went back │                                       │
        │                            └───────────────────────┴─────── 0.1 s later: no room ──────────┤
        └─────────────────────────────────────────────────────────── 0.1 s later: room ──────────────┘
"""

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from shardmq.bus.coordinator_link import Outcome
from shardmq.bus.messages.shard import Delivered, Qos
from shardmq.gateway.links.consumer import Consumer
from shardmq.gateway.session import large_messages
from shardmq.gateway.session.client import Client
from shardmq.gateway.session.prefetch.waiting import SharedPrefetch, numbers_of
from shardmq.message.record_batch import RecordBatch

PAUSE_SECONDS: Final = 0.1
"""Without room for so long, a channel's consumers are paused: their shards hear of that ten times a second at most."""

PAUSED: Final = -1
"""The prefetch of a consumer that is to get nothing, as its shard is told."""


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

    @property
    def gives_back(self) -> bool:
        """Whether what waits for long is given back, for others."""
        raise NotImplementedError

    def pass_on(self, consumer: Consumer, delivered: Delivered) -> None:
        """Number messages that a shard sent, and pass them on."""
        raise NotImplementedError

    def starved(self, consumer: Consumer) -> None:
        """Answer a shard that has messages beyond a consumer's prefetch: there is no more of it."""
        consumer.link.decline(consumer)

    @property
    def shared_prefetch(self) -> int:
        """How many messages all consumers may hold together; 0 for no such limit."""
        return 0 if self._shared is None else self._shared.limit

    def _retune_later(self) -> None:
        """Retune once a pass: a method of twenty bytes may concern thousands of consumers, and the last one counts."""
        if not self._is_retuned:
            self._is_retuned = True
            self.client.state.retune_due(self)

    def retune(self) -> None:
        """Apply the limits that were changed in this pass."""
        self._is_retuned = False
        shared = self._shared
        if shared is None or not shared.is_for_first:
            self._tell_limits()
        if shared is not None:
            self._hand_on(shared)

    def _prefetch_of(self, consumer: Consumer) -> int:
        """What a consumer's shard is to know as its prefetch."""
        own, shared = consumer.own_prefetch, self._shared
        if shared is None:
            return 0 if consumer.settled_late else own
        if shared.is_paused and not (shared.is_resuming and consumer in shared.first):
            return PAUSED
        if consumer.auto_ack:
            return 0
        limit = shared.limit
        if shared.is_resuming:
            limit = consumer.unacked + limit - self.unacked
            if limit <= 0:
                return PAUSED
        return min(own, limit) if own else limit

    def _tell_limits(self) -> None:
        """Tell shards of their consumers' prefetch, where it is another now; they follow in their time."""
        shared = self._shared
        for consumer in self.limited:
            settled_late = consumer.settled_late or (consumer.auto_ack and shared is not None)
            prefetch = self._prefetch_of(consumer)
            if prefetch != consumer.prefetch or settled_late is not consumer.settled_late:
                consumer.prefetch, consumer.settled_late = prefetch, settled_late
                reply = _ignore
                if shared is not None and shared.is_for_first:
                    shared.unheard.add(consumer)
                    reply = partial(self._heard, shared.unheard, consumer)
                consumer.link.ask(Qos(consumer.number, prefetch, settled_late), reply)

    def _heard(self, unheard: set[Consumer], consumer: Consumer, _outcome: Outcome) -> None:
        """Note that a shard has sent what it has for a consumer that comes first; when all have, others may follow."""
        unheard.discard(consumer)
        if not unheard and self.is_open:
            self._retune_later()  # once what came with the answer was handed out

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
                self._resume(shared)
        elif self.may_pause and (
            not shared.is_paused or shared.is_resuming or (shared.has_waiting and self.gives_back)
        ):
            self._watch(shared)

    def _watch(self, shared: SharedPrefetch) -> None:
        """Look in a while whether there is room."""
        if not shared.is_watched:
            shared.is_watched = True
            asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._look_for_room, shared, shared.handed_on)

    def _look_for_room(self, shared: SharedPrefetch, handed_on: int) -> None:
        """Pause the consumers if there is no room, as there was none a while ago; else let them have all there is."""
        shared.is_watched = False
        if not self.is_open or self._shared is not shared:
            return
        has_room = self._has_room()
        if has_room and not shared.is_resuming:
            return
        if shared.is_resuming:
            shared.first.clear()  # they had their turn
        shared.is_paused, shared.is_resuming = not has_room, False
        self._tell_limits()
        if has_room or not self.gives_back:
            return
        if shared.waits_long(handed_on):
            for consumer, messages in shared.drop_all(with_unasked=False).items():
                shared.first[consumer] = None
                self._put_back(consumer, messages)
        elif shared.has_waiting:
            self._watch(shared)

    def _resume(self, shared: SharedPrefetch) -> None:
        """There is room after a pause: have it used by those whose messages went back, or else by all."""
        if shared.is_resuming:
            if shared.unheard:
                return
            shared.is_paused = False
        elif self.gives_back:
            shared.first = {consumer: None for consumer in shared.first if consumer.running}
            shared.unheard = set()  # what was asked before does not matter any more
            shared.is_paused, shared.is_resuming = bool(shared.first), True
            self._watch(shared)
        else:
            shared.is_paused = False
        self._tell_limits()

    def _put_back(self, consumer: Consumer, messages: Sequence[Delivered]) -> None:
        """Have messages that the client has not seen return to their queue as they were."""
        if messages:
            for each in messages:
                large_messages.count_sent(self.client, consumer, each.batch)
            consumer.link.put_back(consumer, numbers_of(messages))
            if self.client.front.is_writable:
                consumer.link.taken(consumer)
            self.client.state.changed()

    def _put_all_back(self) -> None:
        """Have all that waits return to its queues as it was: the consumers are about to be released."""
        if self._shared is not None:
            for consumer, messages in self._shared.drop_all(with_unasked=True).items():
                consumer.link.put_back(consumer, numbers_of(messages))

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


def _ignore(_outcome: Outcome) -> None:
    """Ignore an outcome: a shard that was away when it was asked hears all of a consumer when it is back."""
