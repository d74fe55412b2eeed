"""The consumers' processes. They note what arrived and when; it is evaluated afterwards.

Few queues have a thread each. More are consumed over one channel of the asyncio SDK, by a task each, as a program with
many queues would: with 1,000 threads, changing from one to the next was two thirds of what was measured.
"""

import asyncio
import threading
import time
from array import array
from collections.abc import Callable
from typing import Final

import shardmq.aio
from shardmq.client.api.message import Batch
from shardmq.client.sync.connection import Connection
from shardmq.cmd.bench.settings import STAMP, Settings
from shardmq.errors import ShardmqError, Timeout

IDLE_SECONDS: Final = 0.3
"""A consumer that gets nothing for this long checks whether other consumers have got the rest."""

THREADS_MAX: Final = 16
"""So many queues are consumed by a thread each."""


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

    def add(self, batch: Batch) -> int:
        """Note a batch, and ack it; returns how many messages it has."""
        self.times.append(time.monotonic_ns())
        bodies = batch.bodies
        head = STAMP.size
        self.heads.append(b"".join([body[:head] for body in bodies]))  # 60 ns a message
        self.counts.append(len(bodies))
        if batch.redelivered:
            self.redelivered += len(bodies)
        batch.ack()
        return len(bodies)


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
    deadline = time.monotonic() + settings.timeout
    batches = channel.consume_batches(queue, prefetch=settings.prefetch, inactivity_timeout=IDLE_SECONDS)
    ready.wait()
    while not is_done():
        for batch in batches:
            note(notes.add(batch))
            if is_done():
                break
        else:
            if time.monotonic() > deadline:
                raise Timeout(f"queue '{queue}' did not deliver everything within {settings.timeout:.0f} s")
            batches = channel.consume_batches(queue, prefetch=settings.prefetch, inactivity_timeout=IDLE_SECONDS)
    channel.close()


async def consume_many(
    queues: dict[int, str],
    settings: Settings,
    begin: Callable[[], None],
    note: Callable[[int, int], None],
    is_done: Callable[[int], bool],
) -> Notes:
    """Consume many queues until all their messages were delivered, over one channel.

    Args:
        queues: number to name.
        settings: of the measurement.
        begin: as `consume` has it.
        note: as `consume` has it.
        is_done: whether all messages of a queue were delivered.

    Raises:
        ShardmqError: the first failure.
        BrokenBarrierError: another process failed.
    """
    notes = Notes()
    async with await shardmq.aio.connect(settings.url) as connection:
        channel = await connection.channel()

        async def read(queue: int) -> None:
            async for batch in channel.consume_batches(queues[queue], prefetch=settings.prefetch):
                note(queue, notes.add(batch))

        readers = [asyncio.create_task(read(queue)) for queue in queues]
        try:
            await asyncio.sleep(0)  # each asks for its consumer
            await channel.queue_declare(next(iter(queues.values())), passive=True)  # answered behind all of them
            await asyncio.to_thread(begin)
            await _until_done(readers, queues, settings, is_done)
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
    return notes


async def _until_done(
    readers: list[asyncio.Task[None]], queues: dict[int, str], settings: Settings, is_done: Callable[[int], bool]
) -> None:
    """Wait until all messages of the queues were delivered.

    Raises:
        ShardmqError: one of the readers failed, or a queue did not deliver everything in time.
    """
    deadline = time.monotonic() + settings.timeout
    left = list(queues)
    while left:
        failed, _ = await asyncio.wait(readers, timeout=IDLE_SECONDS, return_when=asyncio.FIRST_EXCEPTION)
        for reader in failed:
            reader.result()
        left = [queue for queue in left if not is_done(queue)]
        if left and time.monotonic() > deadline:
            name = queues[left[0]]
            raise Timeout(f"queue '{name}' did not deliver everything within {settings.timeout:.0f} s")
