"""What tests of features together share: queues with arguments, and what became of their messages."""

from typing import Any

import shardmq
from shardmq import errors

from .traffic import until


def declare(channel: shardmq.Channel, queue: str, dead: str | None = None, **arguments: Any) -> None:
    """A durable queue; arguments as x_max_length=3; what dies in it goes to the queue `dead`."""
    terms = {name.replace("_", "-"): value for name, value in arguments.items()}
    if dead is not None:
        terms |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    channel.queue_declare(queue, durable=True, arguments=terms)


def ranked(priority: int) -> shardmq.Properties:
    return shardmq.Properties(priority=priority)


def get(channel: shardmq.Channel, queue: str) -> shardmq.Message:
    """The next message, unacked, when it is there."""
    message = until(lambda: channel.basic_get(queue), f"a message is in {queue}")
    assert isinstance(message, shardmq.Message)
    return message


def ready(channel: shardmq.Channel, queue: str) -> int:
    return channel.queue_declare(queue, passive=True).messages


def deaths(message: shardmq.Message) -> list[tuple[str, str, int]]:
    """Where, why and how often it died, most recent first."""
    return [
        (death["queue"], death["reason"], death["count"]) for death in (message.properties.headers or {})["x-death"]
    ]


def is_gone(channel: shardmq.Channel, queue: str) -> bool:
    try:
        channel.queue_declare(queue, passive=True)
    except errors.NotFound:
        return True
    return False
