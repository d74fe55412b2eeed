"""The loads of the SDK on streams, and what a long stream takes: to start with it, to find a time in it."""

import datetime
import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shardmq.cmd.bench.compare.comparison import cpu_seconds
from shardmq.cmd.bench.compare.load import Contestant, Figures, new_name
from shardmq.cmd.bench.streams.rows import KEYS, PARTITIONS, READERS
from shardmq.errors import ShardmqError

if TYPE_CHECKING:
    from shardmq.client.sync.channel import Channel

STEP: Final = 500
"""Messages of one call."""

BODY_BYTES: Final = 100
STREAM: Final = {"x-queue-type": "stream"}
START_SECONDS: Final = 60.0


SMALL: Final = 10_000
"""With fewer messages a measurement is tried out: groups have a twentieth of their members and partitions."""


def scaled(full: int, messages: int) -> int:
    """How many members or partitions a measurement of so many messages has."""
    return full if messages >= SMALL else full // 20


def append(who: Contestant, messages: int, is_stream: bool) -> Figures:
    """Publish messages to a stream or a queue of its own, in batches."""
    from shardmq.client.sync.connection import connect

    assert who.url is not None
    name = new_name()
    with connect(who.url) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True, arguments=STREAM if is_stream else None)
        before, start = cpu_seconds(who.pids), time.monotonic()
        publish(channel, name, messages)
        seconds = time.monotonic() - start
        used = cpu_seconds(who.pids) - before
        channel.queue_delete(name)
    return {"publish_msgs_per_s": messages / seconds, "seconds": seconds, "cpu_us": used * 1e6 / messages}


def publish(channel: "Channel", name: str, messages: int) -> None:
    """Publish so many messages, each with its number; they are confirmed when this returns."""
    with channel.publisher(window=50_000) as publisher:
        for start in range(0, messages, STEP):
            numbers = range(start, min(start + STEP, messages))
            publisher.publish_many("", name, [number.to_bytes(8, "big").ljust(BODY_BYTES) for number in numbers])


def append_keys(who: Contestant, messages: int, is_many: bool) -> Figures:
    """Publish messages with a thousand keys in turn to a topic of their own, in calls of one or of many."""
    from shardmq.client.sync.connection import connect

    assert who.url is not None
    name, body = new_name(), bytes(BODY_BYTES)
    pairs = [(f"customer-{number % KEYS}", body) for number in range(messages)]
    with connect(who.url) as connection:
        channel = connection.channel()
        channel.topic_declare(name, PARTITIONS)
        before, start = cpu_seconds(who.pids), time.monotonic()
        with channel.publisher() as publisher:
            if is_many:
                publisher.publish_keyed(name, pairs)
            else:
                for key, _ in pairs:
                    publisher.publish(name, key, body)
        seconds = time.monotonic() - start
        used = cpu_seconds(who.pids) - before
        channel.topic_delete(name)
    return {"publish_msgs_per_s": messages / seconds, "seconds": seconds, "cpu_us": used * 1e6 / messages}


def read_together(who: Contestant, messages: int) -> Figures:
    """Have several processes read all of a stream at the same time.

    Raises:
        ShardmqError: a reader got something else than all messages in order.
    """
    from shardmq.client.sync.connection import connect

    assert who.url is not None
    name = new_name()
    with connect(who.url) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True, arguments=STREAM)
        publish(channel, name, messages)
        context = multiprocessing.get_context("spawn")
        ready = context.Barrier(READERS + 1)
        pipes: list[Any] = []
        processes: list[Any] = []
        for _ in range(READERS):
            ours, theirs = context.Pipe()
            processes.append(context.Process(target=_read, args=(who.url, name, messages, ready, theirs), daemon=True))
            processes[-1].start()
            pipes.append(ours)
        ready.wait(START_SECONDS)
        before, start = cpu_seconds(who.pids), time.monotonic()
        faults = [pipe.recv() for pipe in pipes]
        seconds = time.monotonic() - start
        used = cpu_seconds(who.pids) - before
        for process in processes:
            process.join()
        channel.queue_delete(name)
    for fault in filter(None, faults):
        raise ShardmqError(fault)
    total = messages * READERS
    return {"read_msgs_per_s": total / seconds, "seconds": seconds, "cpu_us": used * 1e6 / total}


def _read(url: str, name: str, messages: int, ready: Any, pipe: Pipe) -> None:
    """The main function of a reader's process; sends "" or what went wrong."""
    from shardmq.client.sync.connection import connect

    got, fault = 0, ""
    with connect(url) as connection:
        channel = connection.channel()
        ready.wait(START_SECONDS)
        for batch in channel.consume_batches(name, auto_ack=True, arguments={"x-stream-offset": "first"}):
            bodies = batch.bodies
            if batch.offset != got or int.from_bytes(bodies[0][:8], "big") != got:
                fault = f"a reader got offset {batch.offset} where {got} was due"
                break
            got += len(bodies)
            if got >= messages:
                break
    pipe.send(fault)


def long_stream(folder: Path, messages: int, turns: int, say: Callable[[str], None]) -> list[dict[str, Figures]]:
    """Fill a stream of a broker of its own, start that again, and find times in it.

    Args:
        folder: for its data.
        messages: of the stream.
        turns: how often it is started and asked.
        say: told what is being done.

    Returns:
        For each turn the figures of the rows "restart" and "seek".
    """
    from shardmq.client.sync.connection import connect
    from shardmq.cmd.run.broker import Broker

    name = new_name()
    broker = Broker(folder / "long")
    with broker:
        say(f"publishing {messages:,} messages")
        times = []
        with connect(broker.url) as connection:
            channel = connection.channel()
            channel.queue_declare(name, durable=True, arguments=STREAM)
            for _ in range(turns):
                times.append(whole_second())
                publish(channel, name, messages // turns)
    measured = []
    for turn in range(turns):
        forget_pages(folder / "long")
        start = time.monotonic()
        with broker:
            restart_ms = (time.monotonic() - start) * 1000
            with connect(broker.url) as connection:
                seek_ms = _seek(connection.channel(), name, times[turn], messages // turns * turn)
        measured.append({"restart": {"restart_ms": restart_ms}, "seek": {"seek_ms": seek_ms}})
    return measured


def whole_second() -> datetime.datetime:
    """Wait for the next whole second; returns it."""
    time.sleep(1 - time.time() % 1)
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


def _seek(channel: "Channel", name: str, when: datetime.datetime, expected: int) -> float:
    """The time from pulling from a time to having the first message from there, in ms.

    Raises:
        ShardmqError: it is another message.
    """
    start = time.monotonic()
    (message,) = channel.pull(name, 0, when, 1).messages
    seek_ms = (time.monotonic() - start) * 1000
    if message.offset != expected:
        raise ShardmqError(f"at {when} is offset {message.offset} in place of {expected}")
    return seek_ms


def forget_pages(folder: Path) -> None:
    """Have the system forget what it has of files in memory: they are read from the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
