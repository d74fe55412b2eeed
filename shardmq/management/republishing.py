"""A changed copy of one message, published; for the HTTP API and the command line.

    read it, or reserve it where it is to go ─► publish the copy ─► confirmed ─► acknowledge the original, if asked

The copy is there before the original goes: where this process or the broker ends in between, both are there.
"""

import contextlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from shardmq.errors import NotFound, ShardmqError, Unroutable

if TYPE_CHECKING:
    from shardmq.client.aio.channel import Channel
    from shardmq.client.api.message import Message
    from shardmq.message.properties import Properties

LEASE_MS: Final = 30_000
"""After which an original that was to go is back, where this process ends."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is different in a copy.

    Attributes:
        properties: makes the copy's out of the original's.
        exchange: it is published to; None for the original's.
        routing_key: likewise.
        body: of the copy; None for the original's.
    """

    properties: "Callable[[Properties], Properties]"
    exchange: str | None = None
    routing_key: str | None = None
    body: bytes | None = None


async def publish_copy(channel: "Channel", message: "Message", change: Change) -> bool:
    """Publish a copy; returns whether a queue took it."""
    exchange = message.exchange if change.exchange is None else change.exchange
    key = message.routing_key if change.routing_key is None else change.routing_key
    body = message.body if change.body is None else change.body
    try:
        await channel.basic_publish(exchange, key, body, change.properties(message.properties), mandatory=True)
    except Unroutable:
        return False
    return True


async def republish(channel: "Channel", queue: str, position: int, change: Change, partition: int = 0) -> bool:
    """Publish a copy of a message that stays; returns whether a queue took it.

    Args:
        channel: of the caller.
        queue: that has the message; or a stream or topic.
        position: of the message; an offset in a stream.
        change: what is different in the copy.
        partition: of a topic.

    Raises:
        NotFound: the message is not there, or not any more.
    """
    found = (await channel.messages_search(queue, None, position, 1, partition)).messages
    if not found or found[0].position != position:
        raise _missing(queue, position)
    return await publish_copy(channel, found[0], change)


async def replace(channel: "Channel", queue: str, position: int, change: Change) -> bool:
    """Publish a copy of a message, and remove the original when it is confirmed; returns whether a queue took it.

    Args:
        channel: of the caller.
        queue: that has the message.
        position: of the message.
        change: what is different in the copy.

    Raises:
        NotFound: the message is not there, or not any more.
    """
    reservation = f"republish-{uuid.uuid4().hex}"
    reserved = await channel.queue_reserve(queue, reservation, 0, LEASE_MS, [(position, position + 1)])
    is_done = False
    try:
        found, _ = (
            await channel.queue_read(queue, position, position + 1, 1, reservation) if reserved.messages else ([], None)
        )
        if not found:
            raise _missing(queue, position)
        is_done = await publish_copy(channel, found[0], change)
    finally:
        if is_done:
            await channel.reservation_end(queue, reservation, acknowledge=True)
        else:
            with contextlib.suppress(ShardmqError):  # the lease ends it, and what failed is told
                await channel.reservation_end(queue, reservation, acknowledge=False)
    return is_done


def _missing(queue: str, position: int) -> NotFound:
    return NotFound(f"queue '{queue}' has no ready message at position {position}: somebody has it, or it is gone")
