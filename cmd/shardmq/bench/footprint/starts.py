"""What a start takes that looks through a full store, more than one that finds nothing."""

import statistics
import time
from pathlib import Path
from typing import Any, Final

from shardmq.client.sync.connection import connect
from shardmq.cmd.bench.compare.backlog_program import AS_INSTALLED
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.terminal.output import Say

QUEUES: Final = tuple(f"stored-{number}" for number in range(1000))
"""Batches go to them in turn. In one queue, those that are on their way together would become one segment."""

RECORDS: Final = 100
"""Messages of a stored segment: those of one publish."""

WINDOW: Final = 50_000
STARTS: Final = 5
BODY: Final = bytes(100)
LONG_MS: Final = 86_400_000
"""For how long a message is delayed; each one a little longer than the one before, so none is due with another."""


def rows(folder: Path, segments: int, delayed: int, say: Say) -> list[dict[str, Any]]:
    """Measure; returns the rows of a file of results.

    Args:
        folder: on the disk that the broker writes to.
        segments: stored in a thousand queues, each of 100 messages of 100 bytes.
        delayed: messages that wait for a day, besides.
        say: is told each row.
    """
    with Broker(folder / "starts", shards=1, variables=AS_INSTALLED) as broker:
        empty = seconds_of_start(broker)
        fill(broker, segments)
        full = seconds_of_start(broker) - empty
        delay(broker, delayed)
        with_delayed = seconds_of_start(broker) - empty
    what = f"{segments:,} stored segments ({segments * RECORDS:,} messages)"
    found = [
        {"id": "segments", "what": what, "seconds": round(max(full, 0.0), 1)},
        {
            "id": "delayed",
            "what": f"the same with {delayed:,} delayed messages",
            "seconds": round(max(with_delayed, 0.0), 1),
        },
    ]
    for row in found:
        say(f"a start with {row['what']}: {row['seconds']:.1f} s more than one with nothing")
    return found


def fill(broker: Broker, segments: int) -> None:
    """Publish batches to queues in turn, and wait for their confirms."""
    bodies = [BODY] * RECORDS
    with connect(broker.url, timeout=120.0) as connection:
        channel = connection.channel()
        for queue in QUEUES:
            channel.queue_declare(queue, durable=True)
        with channel.publisher(window=WINDOW) as publisher:
            for number in range(segments):
                publisher.publish_many("", QUEUES[number % len(QUEUES)], bodies)


def delay(broker: Broker, messages: int) -> None:
    """Publish messages that wait, each for a time of its own."""
    with connect(broker.url, timeout=120.0) as connection, connection.channel().publisher(window=WINDOW) as publisher:
        for number in range(messages):
            publisher.publish("", QUEUES[0], BODY, delay_ms=LONG_MS + number)


def seconds_of_start(broker: Broker) -> float:
    """How long a start takes, the median of several."""
    found = []
    for _ in range(STARTS):
        broker.stop()
        began = time.perf_counter()
        broker.start()
        found.append(time.perf_counter() - began)
    return statistics.median(found)
