"""What the tests of this folder do all the time."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import shardmq
from shardmq.limits import PREFETCH_MAX

PATIENCE_SECONDS = 60.0
INACTIVITY_SECONDS = 0.3
MANY = 1000
"""From here on, to ask for messages one after the other takes longer than to consume them."""


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> Any:
    """Ask again and again until the answer is true; returns it."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.01)
    return answer


def numbers(first: int, end: int) -> list[bytes]:
    """Bodies that can be told apart."""
    return [b"%d" % number for number in range(first, end)]


def publish_all(
    channel: shardmq.Channel,
    queue: str,
    bodies: Iterable[bytes],
    properties: shardmq.Properties | None = None,
    exchange: str = "",
) -> None:
    """Publish to a queue, or with that routing key to an exchange, confirmed."""
    with channel.publisher() as publisher:
        publisher.publish_many(exchange, queue, bodies, properties)


def take(channel: shardmq.Channel, queue: str) -> list[shardmq.Message]:
    """All that is ready, in order, acked; where that is much, by a consumer, except for what comes meanwhile."""
    taken = []
    ready = channel.queue_declare(queue, passive=True).messages
    if ready >= MANY:
        for message in channel.consume(queue, prefetch=min(ready, PREFETCH_MAX)):
            taken.append(message)
            message.ack()
            if len(taken) == ready:
                break
    while (message := channel.basic_get(queue, auto_ack=True)) is not None:
        taken.append(message)
    return taken


def bodies(channel: shardmq.Channel, queue: str) -> list[bytes]:
    """The bodies of all that is ready; they are acked."""
    return [message.body for message in take(channel, queue)]


def counts(connection: shardmq.Connection, queue: str) -> dict[str, Any]:
    """A queue's table in the status; empty while its shard is away."""
    tables = [table for table in connection.status()["queues"] if table["name"] == queue]
    return tables[0] if tables else {}


def shard_of(connection: shardmq.Connection, queue: str) -> str:
    """The name of the process that has a queue."""
    [shard] = [table["shard"] for table in connection.topology("queues") if table["name"] == queue]
    return f"shard-{shard}"
