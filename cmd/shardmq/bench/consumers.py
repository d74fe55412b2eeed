"""The consumers' processes. They note what arrived and when; it is evaluated afterwards."""

import threading
import time
from array import array
from collections.abc import Callable
from typing import Final

from shardmq.client.sync.connection import Connection
from shardmq.cmd.bench.settings import STAMP, Settings
from shardmq.errors import ShardmqError, Timeout

IDLE_SECONDS: Final = 0.3
"""A consumer that gets nothing for this long checks whether other consumers have got the rest."""


class Notes:
    """What one consumer process received.

    Attributes:
        heads: the heads of all bodies.
        times: when each batch arrived, CLOCK_MONOTONIC in ns.
        counts: how many messages each batch had.
        redelivered: messages that had been delivered before.
    """

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.times = array("q")
        self.counts = array("q")
        self.redelivered = 0


def consume(
    connection: Connection,
    queues: dict[int, str],
    settings: Settings,
    begin: Callable[[], None],
    note: Callable[[int, int], None],
    is_done: Callable[[int], bool],
) -> Notes:
    """Consume queues until all their messages were delivered.

    Args:
        connection: of this process.
        queues: number to name.
        settings: of the measurement.
        begin: called when all queues are ready to be consumed; returns when every process is ready.
        note: called with (queue, number of messages) for each batch.
        is_done: whether all messages of a queue were delivered.

    Raises:
        ShardmqError: the first failure.
        BrokenBarrierError: another process failed.
    """
    notes = [Notes() for _ in queues]
    faults: list[ShardmqError | threading.BrokenBarrierError] = []
    ready = threading.Barrier(len(queues), action=begin)

    def read(queue: int, into: Notes) -> None:
        try:
            _read(
                connection,
                queues[queue],
                settings,
                into,
                ready,
                lambda count: note(queue, count),
                lambda: is_done(queue),
            )
        except (ShardmqError, threading.BrokenBarrierError) as fault:
            faults.append(fault)
            ready.abort()

    threads = [threading.Thread(target=read, args=pair) for pair in zip(queues, notes, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    merged = notes[0]
    for more in notes[1:]:
        merged.heads += more.heads
        merged.times += more.times
        merged.counts += more.counts
        merged.redelivered += more.redelivered
    return merged


def _read(
    connection: Connection,
    queue: str,
    settings: Settings,
    notes: Notes,
    ready: threading.Barrier,
    note: Callable[[int], None],
    is_done: Callable[[], bool],
) -> None:
    channel = connection.channel()
    head = STAMP.size
    deadline = time.monotonic() + settings.timeout
    batches = channel.consume_batches(queue, prefetch=settings.prefetch, inactivity_timeout=IDLE_SECONDS)
    ready.wait()
    while not is_done():
        for batch in batches:
            notes.times.append(time.monotonic_ns())
            bodies = batch.bodies
            notes.heads.append(b"".join([body[:head] for body in bodies]))  # 60 ns a message
            notes.counts.append(len(bodies))
            if batch.redelivered:
                notes.redelivered += len(bodies)
            batch.ack()
            note(len(bodies))
            if is_done():
                break
        else:
            if time.monotonic() > deadline:
                raise Timeout(f"queue '{queue}' did not deliver everything within {settings.timeout:.0f} s")
            batches = channel.consume_batches(queue, prefetch=settings.prefetch, inactivity_timeout=IDLE_SECONDS)
    channel.close()
