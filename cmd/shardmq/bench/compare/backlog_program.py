"""The backlog of `bench compare`: a broker of its own, one queue filled by the SDK, and a restart.

python -m shardmq.cmd.bench.compare.backlog_program MESSAGES SHARDS FOLDER
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from shardmq.client.sync.connection import connect
from shardmq.cmd.run.broker import Broker
from shardmq.errors import ShardmqError

if TYPE_CHECKING:
    from shardmq.client.sync.publisher import Publisher

QUEUE: Final = "backlog"
STEP: Final = 500
"""Messages of one call."""

WINDOW: Final = 50_000

AS_INSTALLED: Final = {"PYTHONDONTWRITEBYTECODE": ""}
"""An installed package is compiled. Where Python may not write down what it compiles, each of the processes compiles
all of it, and that is half of what a start takes."""


def fill(publisher: "Publisher", messages: int) -> float:
    """Publish messages of 100 bytes and wait for their confirms; returns messages a second."""
    bodies = [bytes(100)] * STEP
    began = time.perf_counter()
    for start in range(0, messages, STEP):
        publisher.publish_many("", QUEUE, bodies[: min(STEP, messages - start)])
    publisher.flush()
    return messages / (time.perf_counter() - began)


def measure(broker: Broker, messages: int) -> dict[str, float]:
    """Fill a queue, start the broker again, and look at what it takes.

    Raises:
        ShardmqError: the queue does not have all messages.
    """
    tenth = max(1, messages // 10)
    with connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare(QUEUE, durable=True)
        with channel.publisher(window=WINDOW) as publisher:
            rates = [fill(publisher, tenth) for _ in range(10)]
        processes = connection.status()["processes"]
    broker.stop()
    began = time.perf_counter()
    broker.start()
    restarted = time.perf_counter() - began
    with connect(broker.url) as connection:
        found = connection.channel().queue_declare(QUEUE, passive=True).messages
    if found != 10 * tenth:
        raise ShardmqError(f"of a backlog of {10 * tenth:,} messages {found:,} are there after a restart")
    seconds = sum(tenth / rate for rate in rates)
    return {
        "messages": found,
        "publish_msgs_per_s": found / seconds,
        "last_tenth": rates[-1] / rates[0],
        "shard_bytes": max(process["rss_bytes"] for process in processes if process["role"] == "shard"),
        "restart_ms": 1000 * restarted,
        "seconds": seconds,
    }


def main() -> None:
    """Measure, and print one line of JSON."""
    messages, shards, folder = sys.argv[1:]
    with (
        tempfile.TemporaryDirectory(prefix="backlog-", dir=folder) as own,
        Broker(Path(own) / "data", shards=int(shards), variables=AS_INSTALLED) as broker,
    ):
        figures = measure(broker, int(messages))
    sys.stdout.write(msgspec.json.encode(figures).decode() + "\n")


if __name__ == "__main__":
    main()
