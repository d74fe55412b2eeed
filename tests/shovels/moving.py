"""What tests of shovels do: fill queues, set shovels, wait, and look at what became of messages."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import shardmq

PATIENCE_SECONDS = 60.0
MOVING_SECONDS = 120.0
RETRY = {"reconnect-delay": 0.2}


def until(check: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := check()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return found


def ready(connection: shardmq.Connection, queue: str) -> int:
    return sum(row["ready"] or 0 for row in connection.topology("queues") if row["name"] == queue)


def messages(connection: shardmq.Connection, queue: str) -> int:
    return next(row["messages"] for row in connection.topology("queues") if row["name"] == queue)


def shovel(connection: shardmq.Connection, name: str) -> dict[str, Any]:
    return next((row for row in connection.topology("shovels") if row["name"] == name), {})


def until_none(count: Callable[[], int | None], where: str) -> None:
    """Wait until a shovel has moved all: for as long as it goes on, as many messages take long on a busy machine.

    Args:
        count: messages that are left; None while nobody can say.
        where: they are.
    """
    deadline = time.monotonic() + MOVING_SECONDS
    least: int | None = None

    def moves_on() -> bool:
        nonlocal least
        found = count()
        if found is None or (least is not None and found >= least):
            return False
        least = found
        return True

    while least != 0:
        until(moves_on, f"{least} messages stay {where}")
        assert time.monotonic() < deadline, f"{least} messages are still {where}"


def until_empty(connection: shardmq.Connection, queue: str) -> None:
    """Wait until a shovel has moved all messages of a queue."""
    until_none(lambda: messages(connection, queue), f"in '{queue}'")


def put(connection: shardmq.Connection, name: str, source: str, destination: str, **more: Any) -> None:
    value = {"src-uri": "amqp://", "src-queue": source, "dest-uri": "amqp://", "dest-queue": destination, **RETRY}
    value |= {key.replace("_", "-"): setting for key, setting in more.items()}
    connection.parameter_put("/", "shovel", name, {key: each for key, each in value.items() if each is not None})


def fill(channel: shardmq.Channel, queue: str, bodies: Iterable[bytes]) -> None:
    channel.queue_declare(queue, durable=True)
    with channel.publisher() as publisher:
        publisher.publish_many("", queue, bodies)


def taken(channel: shardmq.Channel, queue: str) -> list[shardmq.Message]:
    found = []
    while (message := channel.basic_get(queue, auto_ack=True)) is not None:
        found.append(message)
    return found
