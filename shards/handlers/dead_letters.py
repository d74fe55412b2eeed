"""Dead letters on their way to their next home: posted to gateways, which route them, and kept until they are there."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from shardmq.bus.listener import Peer
from shardmq.bus.messages.shard import DeadLetter, DeadLetterAccepted, DeadLetterRefused
from shardmq.errors import RowDamaged
from shardmq.ranges import RangeSet
from shardmq.shards.state.hosted_queue import HostedQueue
from shardmq.shards.state.shard import ShardState

LETTERS_MAX: Final = 64
LETTERS_BYTES_MAX: Final = 4 << 20
"""What may be under way at once: what dies faster than its next home takes it stays where it is, on disk."""

LETTER_BYTES: Final = 64 << 10
"""What is taken from one queue at a time; the others have their turn then. Of small messages that is many letters."""

AGAIN_MS: Final = 1000
"""When a letter that was refused is sent again."""

Ranges = list[tuple[int, int]]


class _Letter:
    """Some messages at a gateway, and which of them it has not answered for."""

    __slots__ = ("bytes", "left", "peer")

    def __init__(self, peer: Peer, first: int, end: int, size: int) -> None:
        self.peer = peer
        self.left = RangeSet([(first, end)])
        self.bytes = size


class DeadLetterSender:
    """All dead letters of a shard.

    Args:
        holdings: the queues.
    """

    def __init__(self, holdings: ShardState) -> None:
        self._holdings = holdings
        self._gateways: deque[Peer] = deque()
        self._waiting: dict[int, HostedQueue] = {}
        self._out: dict[int, list[_Letter]] = {}
        self._letters = self._bytes = 0
        self.handlers: dict[type, Callable[[Peer, Any], None]] = {
            DeadLetterAccepted: self._arrived,
            DeadLetterRefused: self._refused,
        }

    def opened(self, gateway: Peer) -> None:
        """One more gateway to send them by."""
        if gateway not in self._gateways:
            self._gateways.append(gateway)

    def lost(self, gateway: Peer) -> None:
        """What it had may have arrived or not: another has to see to it."""
        if gateway not in self._gateways:
            return
        self._gateways.remove(gateway)
        for number, letters in list(self._out.items()):
            for letter in [letter for letter in letters if letter.peer is gateway]:
                self._retry(number, list(letter.left))
                self._done(number, letter)

    def look(self, hosted: HostedQueue) -> None:
        """Something may have died in a queue that has a way out for it."""
        deaths = hosted.queue.deaths
        if deaths is not None and deaths.waiting:
            self._waiting[hosted.queue.id] = hosted

    def send(self) -> None:
        """Send as many as may be under way, queue by queue, to the gateways in turn."""
        while self._waiting and self._gateways and self._letters < LETTERS_MAX and self._bytes < LETTERS_BYTES_MAX:
            number, hosted = next(iter(self._waiting.items()))
            del self._waiting[number]
            deaths = hosted.queue.deaths
            if hosted.is_gone or deaths is None:
                continue
            try:
                dead = deaths.take(min(LETTER_BYTES, LETTERS_BYTES_MAX - self._bytes))
            except RowDamaged as damage:
                self._holdings.take_out(damage)
                continue
            for death in dead:
                gateway = self._gateways[0]
                self._gateways.rotate(-1)
                first, reason, deliveries, run, producer, gone = death
                gateway.post(DeadLetter(number, first, reason, run, deliveries, producer, gone))
                letter = _Letter(gateway, first, first + run.count, len(run.records))
                self._out.setdefault(number, []).append(letter)
                self._letters += 1
                self._bytes += letter.bytes
            self.look(hosted)

    def retire(self, number: int) -> None:
        """A queue is deleted, and what was under way is nobody's."""
        self._waiting.pop(number, None)
        for letter in self._out.get(number, [])[:]:
            self._done(number, letter)

    def _arrived(self, peer: Peer, message: DeadLetterAccepted) -> None:
        hosted = self._holdings.queues.get(message.queue)
        deaths = hosted.queue.deaths if hosted is not None else None
        parts = self._answered(peer, message.queue, message.ranges)
        if hosted is not None and deaths is not None:
            deaths.buried(parts)
            self._holdings.active[message.queue] = hosted

    def _refused(self, peer: Peer, message: DeadLetterRefused) -> None:
        parts = self._answered(peer, message.queue, message.ranges)
        if parts:
            agenda = self._holdings.agenda
            agenda.at(agenda.now_ms + AGAIN_MS, partial(self._retry, message.queue, parts))

    def _answered(self, peer: Peer, number: int, ranges: Ranges) -> Ranges:
        """Those of these messages that this gateway had and has not answered for."""
        found: Ranges = []
        for letter in [letter for letter in self._out.get(number, ()) if letter.peer is peer]:
            for start, end in ranges:
                found += letter.left.within(start, end)
                letter.left.remove(start, end)
            if not letter.left:
                self._done(number, letter)
        return sorted(found)

    def _retry(self, number: int, ranges: Ranges) -> None:
        hosted = self._holdings.queues.get(number)
        if hosted is not None and hosted.queue.deaths is not None:
            hosted.queue.deaths.retry(ranges)
            self._waiting[number] = hosted

    def _done(self, number: int, letter: _Letter) -> None:
        letters = self._out[number]
        letters.remove(letter)
        if not letters:
            del self._out[number]
        self._letters -= 1
        self._bytes -= letter.bytes
