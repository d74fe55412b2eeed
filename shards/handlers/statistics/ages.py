"""How long messages have waited: those at the heads of queues, and the oldest ones that consumers hold.

Nothing is kept for it: record batches say when they came. Those on the disk are read a few at a time, so the first
answers after a start leave some out.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from shardmq.shards.queues.delivery import SUBQUEUE_BITS
from shardmq.shards.queues.queue import Queue
from shardmq.shards.queues.subqueue import Subqueue
from shardmq.shards.segments.segment import place_of
from shardmq.shards.state.hosted_queue import HostedQueue
from shardmq.shards.storage.write_buffer import WriteBuffer

READS_MAX: Final = 4
"""Segments that are read from the disk for one answer: each has up to 1 MB, and everybody else waits for it."""

KNOWN_MAX: Final = 10_000
"""Messages whose time is known though they are on the disk: 1 MB."""


class Ages:
    """Says when messages came.

    Args:
        buffer: has their bodies, or reads them.
    """

    def __init__(self, buffer: WriteBuffer) -> None:
        self._buffer = buffer
        self._known: dict[tuple[int, int], int] = {}
        self._reads_left = 0

    def begin(self) -> None:
        """Begin an answer."""
        self._reads_left = READS_MAX

    def head_at(self, queue: Queue) -> int | None:
        """When the oldest ready message came, ms since 1970; None where none waits, or it is on the disk."""
        return _earliest(self._at(subqueue, head) for subqueue in queue.subqueues if (head := _head(subqueue)) >= 0)

    def unacked_at(self, hosted: HostedQueue) -> list[int | None]:
        """When the oldest unacked message of each consumer came, in their order."""
        queue = hosted.queue
        return [
            _earliest(
                self._at(subqueue, start)
                for subqueue in queue.subqueues
                for start, _ in islice(consumer.held.walk(subqueue.number << SUBQUEUE_BITS, subqueue.next), 1)
            )
            for consumer in hosted.consumers
        ]

    def _at(self, subqueue: Subqueue, number: int) -> int | None:
        place = subqueue.index.place(number)
        if place == len(subqueue.index.segments):
            return None
        segment = subqueue.index.segments[place]
        key = subqueue.id, number
        batches = segment.batches
        if batches is None:
            if key in self._known:
                return self._known[key]
            if not self._reads_left:
                return None
            self._reads_left -= 1
            batches = self._buffer.read_once(segment)
        found = place_of(batches, number)
        if found == len(batches):
            return None
        at = batches[found][1].timestamp_ms
        if segment.batches is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[key] = at
        return at


def first_unacked(hosted: HostedQueue) -> int | None:
    """The lowest number that a consumer holds; None where none holds any."""
    return min([consumer.held.first()[0] for consumer in hosted.consumers if consumer.held], default=None)


def _head(subqueue: Subqueue) -> int:
    """The number of the next message, or one before it that is gone; -1 without any."""
    if subqueue.returned:
        return subqueue.returned.first()[0]
    return subqueue.cursor if subqueue.fresh else -1


def _earliest(times: Iterator[int | None]) -> int | None:
    return min([at for at in times if at is not None], default=None)
