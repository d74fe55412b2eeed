"""Dead letters on their way out: sent to gateways, which route them, and kept until they have arrived."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from shardmq.bus.listener import Peer
from shardmq.bus.messages.dead_letters import DeadLetter, DeadLetterAccepted, DeadLetterRefused
from shardmq.errors import RowDamaged
from shardmq.ranges import RangeSet
from shardmq.shards.queues.dead_letter_outbox import DeadLetter as Dead
from shardmq.shards.state.hosted_queue import HostedQueue
from shardmq.shards.state.shard import ShardState
from shardmq.shards.topics.partition import Partition

LETTERS_MAX: Final = 64
LETTERS_BYTES_MAX: Final = 4 << 20
"""How much may be under way at once; the dead letters beyond that stay where they are, on disk."""

LETTER_BYTES: Final = 64 << 10
"""How much is taken from one queue before the others have their turn. Of small messages that is many letters."""

AGAIN_MS: Final = 1000
"""When a letter that was refused is sent again."""

Ranges = list[tuple[int, int]]

Key = tuple[int, str]
"""Whose dead letters: a queue's id, and the group of a partition, or ""."""


class _Letter:
    """Some messages at a gateway, and which of them it has not answered for."""

    __slots__ = ("bytes", "left", "peer")

    def __init__(self, peer: Peer, first: int, end: int, size: int) -> None:
        self.peer = peer
        self.left = RangeSet([(first, end)])
        self.bytes = size


class DeadLetterSender:
    """The dead letters of a shard.

    Args:
        state: the queues.

    Attributes:
        waiting: the queues that have any to send.
    """

    def __init__(self, state: ShardState) -> None:
        self._state = state
        self._gateways: deque[Peer] = deque()
        self.waiting: dict[Key, HostedQueue] = {}
        self._out: dict[Key, list[_Letter]] = {}
        self._dead_letters = self._bytes = 0
        self.handlers: dict[type, Callable[[Any, Any], None]] = {
            DeadLetterAccepted: self._arrived,
            DeadLetterRefused: self._refused,
        }

    def opened(self, gateway: Peer) -> None:
        """Take in a gateway that dead letters can be sent to."""
        if gateway not in self._gateways:
            self._gateways.append(gateway)

    def lost(self, gateway: Peer) -> None:
        """Send what a lost gateway had to another one: it may not have arrived."""
        if gateway not in self._gateways:
            return
        self._gateways.remove(gateway)
        for key, dead_letters in list(self._out.items()):
            for letter in [letter for letter in dead_letters if letter.peer is gateway]:
                self._retry(key, list(letter.left))
                self._done(key, letter)

    def look(self, hosted: HostedQueue) -> None:
        """Note a queue that may have new dead letters."""
        queue = hosted.queue
        if queue.outbox is not None and queue.outbox.waiting:
            self.waiting[queue.id, ""] = hosted
        elif isinstance(queue, Partition):
            for group in queue.letters:
                self.waiting[queue.id, group] = hosted
            queue.letters.clear()

    def send(self) -> None:
        """Send as many as may be under way, queue by queue, to the gateways in turn."""
        while self.waiting and self._gateways and self._dead_letters < LETTERS_MAX and self._bytes < LETTERS_BYTES_MAX:
            key, hosted = next(iter(self.waiting.items()))
            del self.waiting[key]
            outbox = hosted.outbox(key[1])
            if hosted.is_gone or outbox is None:
                continue
            try:
                dead = outbox.take(min(LETTER_BYTES, LETTERS_BYTES_MAX - self._bytes))
            except RowDamaged as damage:
                self._state.take_out(damage)
                continue
            for dead_letter in dead:
                self._post(key, hosted, dead_letter)
            if outbox.waiting:
                self.waiting[key] = hosted
            elif not dead:
                hosted.close_group(key[1])  # retention has dropped them

    def _post(self, key: Key, hosted: HostedQueue, dead: Dead) -> None:
        """Hand messages that died together to the next gateway."""
        gateway = self._gateways[0]
        self._gateways.rotate(-1)
        number, group = key
        first, reason, delivery_count, batch, producer, gone = dead
        if gone:  # else a crash could bring one of those back: as a dead letter, its new home would take it for seen
            self._state.buffer.demand()
        exchange, routing_key = hosted.letters_go_to(group)
        message = DeadLetter(number, first, reason, batch, delivery_count, producer, gone, group, exchange, routing_key)
        gateway.post(message)
        letter = _Letter(gateway, first, first + batch.count, len(batch.records))
        self._out.setdefault(key, []).append(letter)
        self._dead_letters += 1
        self._bytes += letter.bytes

    def retire(self, number: int) -> None:
        """Forget the dead letters of a queue that is deleted, those under way included."""
        for key in [key for key in self.waiting if key[0] == number]:
            del self.waiting[key]
        for key in [key for key in self._out if key[0] == number]:
            for letter in self._out[key][:]:
                self._done(key, letter)

    def _arrived(self, peer: Peer, message: DeadLetterAccepted) -> None:
        hosted = self._state.queues.get(message.queue)
        outbox = hosted.outbox(message.group) if hosted is not None else None
        parts = self._answered(peer, (message.queue, message.group), message.ranges)
        if hosted is not None and outbox is not None:
            outbox.buried(parts)
            if message.group:
                hosted.close_group(message.group)
            self._state.active[message.queue] = hosted

    def _refused(self, peer: Peer, message: DeadLetterRefused) -> None:
        key = message.queue, message.group
        parts = self._answered(peer, key, message.ranges)
        if parts:
            schedule = self._state.schedule
            schedule.at(schedule.now_ms + AGAIN_MS, partial(self._retry, key, parts))

    def _answered(self, peer: Peer, key: Key, ranges: Ranges) -> Ranges:
        """Note a gateway's answer; returns those of the messages that it had, and had not answered for."""
        found: Ranges = []
        for letter in [letter for letter in self._out.get(key, ()) if letter.peer is peer]:
            for start, end in ranges:
                found += letter.left.within(start, end)
                letter.left.remove(start, end)
            if not letter.left:
                self._done(key, letter)
        return sorted(found)

    def _retry(self, key: Key, ranges: Ranges) -> None:
        hosted = self._state.queues.get(key[0])
        outbox = hosted.outbox(key[1]) if hosted is not None else None
        if hosted is not None and outbox is not None:
            outbox.retry(ranges)
            self.waiting[key] = hosted

    def _done(self, key: Key, letter: _Letter) -> None:
        dead_letters = self._out[key]
        dead_letters.remove(letter)
        if not dead_letters:
            del self._out[key]
        self._dead_letters -= 1
        self._bytes -= letter.bytes
