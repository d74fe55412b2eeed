"""A client of a broker on several hosts, which says when what was confirmed; it goes on until SIGTERM.

    python -m shardmq.cmd.bench.hosts.traffic_program MODE URL QUEUE

sdk      shardmq's SDK publishes messages of 100 bytes, each confirmed before the next.
amqp     pika does the same, from one address of the URL to the next when its connection is lost.
load     The SDK publishes messages of 1 KB in batches, as fast as they are confirmed.
consume  The SDK consumes and acks them.

Each line has the time (CLOCK_MONOTONIC) and the number of messages confirmed, or 0 for one that was refused.
"""

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from shardmq.client.sync.connection import connect
from shardmq.errors import PublishRefused

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel

SMALL: Final = bytes(100)
LARGE: Final = bytes(1024)
BATCH: Final = 100
"""Messages of a batch: 100 KB."""

BATCHES: Final = 8
"""Under way at a time."""

AGAIN_SECONDS: Final = 0.02
"""Before what was refused is sent again."""

SOCKET_SECONDS: Final = 1.0
"""For a connection to an address, before the next is tried."""


class Stop(BaseException):
    """SIGTERM."""


def stop(_number: int, _frame: Any) -> None:
    """Handle SIGTERM."""
    raise Stop


def say(count: int) -> None:
    """Say that so many were confirmed, or with 0 that one was refused."""
    sys.stdout.write(f"{time.monotonic():.6f} {count}\n")
    sys.stdout.flush()


def publish_one_by_one(url: str, queue: str) -> None:
    """Each is confirmed before the next, with the SDK."""
    with connect(url) as connection:
        channel = connection.channel()
        while True:
            try:
                channel.basic_publish("", queue, SMALL)
            except PublishRefused:
                say(0)
                time.sleep(AGAIN_SECONDS)
            else:
                say(1)


def publish_many(url: str, queue: str) -> None:
    """Batches, of which some are under way."""
    bodies = [LARGE] * BATCH
    with connect(url) as connection, connection.channel().publisher(window=BATCH * BATCHES) as publisher:
        while True:
            try:
                for _ in range(BATCHES):
                    publisher.publish_many("", queue, bodies)
                publisher.flush()
            except PublishRefused:
                say(0)
                time.sleep(AGAIN_SECONDS)
            else:
                say(BATCH * BATCHES)


def consume(url: str, queue: str) -> None:
    """All that comes."""
    with connect(url) as connection:
        for batch in connection.channel().consume_batches(queue, prefetch=10_000):
            batch.ack()


def publish_with_pika(url: str, queue: str) -> None:
    """Each is confirmed before the next, with pika."""
    from pika.exceptions import AMQPError

    channels = channels_of(url)
    channel = next(channels)
    while True:
        try:
            channel.basic_publish("", queue, SMALL)
        except AMQPError:
            say(0)
            time.sleep(AGAIN_SECONDS)
            if not channel.is_open:
                channel = next(channels)
        else:
            say(1)


def channels_of(url: str) -> "Iterator[BlockingChannel]":
    """Channels with confirms, each on a connection of its own to one address after the other."""
    import pika
    from pika.exceptions import AMQPError

    parts = urlsplit(url)
    user, _, hosts = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    addresses = [host.partition(":") for host in hosts.split(",")]
    while True:
        for host, _, port in addresses:
            with contextlib.suppress(AMQPError):
                parameters = pika.ConnectionParameters(
                    host,
                    int(port),
                    credentials=pika.PlainCredentials(name, password),
                    socket_timeout=SOCKET_SECONDS,
                    heartbeat=0,
                )
                channel = pika.BlockingConnection(parameters).channel()
                channel.confirm_delivery()
                yield channel


MODES: Final = {"sdk": publish_one_by_one, "amqp": publish_with_pika, "load": publish_many, "consume": consume}


def main() -> None:
    """Publish or consume until SIGTERM."""
    signal.signal(signal.SIGTERM, stop)
    mode, url, queue = sys.argv[1:]
    with contextlib.suppress(Stop):
        MODES[mode](url, queue)


if __name__ == "__main__":
    main()
