"""Delayed messages, and messages that were returned with a delay, in the order they are due."""

import heapq
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import islice
from operator import itemgetter
from typing import Final

import msgspec

from shardmq.message.record_batch import RecordBatch
from shardmq.shards.storage.entries import Timer
from shardmq.shards.storage.rows import Rows
from shardmq.shards.storage.schema import (
    NUMBER,
    PLACE,
    RETURNED,
    SPILLED_TIMERS,
    TIMER,
    TIMERS,
    timer_key,
    timers_of,
)
from shardmq.storage.checksums import CHECKSUM_BYTES
from shardmq.storage.engine import Engine

_DATABASES: Final = (TIMERS, SPILLED_TIMERS)
_decode_batch: Final = msgspec.msgpack.Decoder(RecordBatch).decode
_timer_of: Final = itemgetter(0)


class TimerTable:
    """Reads timers.

    Args:
        engine: where they are.
        rows: checks them.
    """

    def __init__(self, engine: Engine, rows: Rows) -> None:
        self._engine = engine
        self._rows = rows

    def all(self) -> Iterator[Timer]:
        """Yield all that survive a restart, in order of queue and time, without their messages."""
        for key in self._engine.keys(TIMERS):
            yield self._timer(TIMERS, key)

    def due(
        self, queue: int, since_ms: int, until_ms: int, count_max: int, bytes_max: int
    ) -> tuple[list[Timer], int | None]:
        """Read the first timers of a queue that are due.

        Args:
            queue: its id.
            since_ms: none is due before, so that those deleted lately need not be passed over.
            until_ms: what time it is.
            count_max: how many at most.
            bytes_max: of their messages; about where to end.

        Returns:
            The timers, and when the next one is due; None where there is none.
        """
        timers: list[Timer] = []
        size = 0
        following = None
        streams = [self._of_queue(database, queue, since_ms) for database in _DATABASES]
        try:
            for timer, value in heapq.merge(*streams, key=_timer_of):
                if timer.due_ms > until_ms or len(timers) >= count_max or size >= bytes_max:
                    following = timer.due_ms
                    break
                size += len(value)
                timers.append(timer if timer.is_return else timer._replace(batch=self._messages(timer, value)))
        finally:
            for stream in streams:
                stream.close()
        return timers, following

    def of_queue(self, queue: int, count_max: int) -> list[Timer]:
        """Read some timers of a queue, without their messages."""
        timers: list[Timer] = []
        for database in _DATABASES:
            with closing(self._engine.keys(database, NUMBER.pack(queue), NUMBER.pack(queue + 1))) as keys:
                timers += [self._timer(database, key) for key in islice(keys, count_max - len(timers))]
        return timers

    def _of_queue(self, database: int, queue: int, since_ms: int) -> Generator[tuple[Timer, memoryview]]:
        for key, value in self._engine.scan(database, PLACE.pack(queue, since_ms), NUMBER.pack(queue + 1)):
            yield self._timer(database, key), value

    def _timer(self, database: int, key: bytes) -> Timer:
        if len(key) != TIMER.size:
            raise self._rows.damage(database, key, f"the key of a delayed message has {len(key)} bytes")
        queue, due_ms, serial, count = TIMER.unpack(key)
        return Timer(queue, due_ms, serial, count & ~RETURNED, count & RETURNED != 0, database == TIMERS)

    def _messages(self, timer: Timer, value: memoryview) -> RecordBatch:
        with value[CHECKSUM_BYTES:] as body:  # behind the checksum of the key
            return self._rows.body(timers_of(timer.durable), timer_key(timer), body, _decode_batch, timer)
