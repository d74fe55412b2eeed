"""A changed copy of one message, published; for the HTTP API and the command line.

read it ─► publish the copy                                    where the original stays
reserve it ─► the copy in a transaction ─► acknowledge it      where it goes: each is there once (`moving.py`)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardmq.errors import NotFound, PreconditionFailed, Unroutable
from shardmq.management.moving import Copy, Mover

if TYPE_CHECKING:
    from shardmq.client.aio.channel import Channel
    from shardmq.client.api.message import Message
    from shardmq.message.properties import Properties


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


def copy_of(change: Change, message: "Message") -> Copy:
    """The copy of a message."""
    return Copy(
        message.exchange if change.exchange is None else change.exchange,
        message.routing_key if change.routing_key is None else change.routing_key,
        message.body if change.body is None else change.body,
        change.properties(message.properties),
    )


async def republish(
    channel: "Channel", queue: str, position: int, change: Change, partition: int = 0, message_id: str = ""
) -> bool:
    """Publish a copy of a message that stays; returns whether a queue took it.

    Args:
        channel: of the caller.
        queue: that has the message; or a stream or topic.
        position: of the message; an offset in a stream.
        change: what is different in the copy.
        partition: of a topic.
        message_id: that the message has to have; "" for any.

    Raises:
        NotFound: the message is not there, or not any more.
        PreconditionFailed: another one is there.
    """
    found = (await channel.messages_search(queue, None, position, 1, partition)).messages
    if not found or found[0].position != position:
        raise _missing(queue, position)
    _check_identity(found[0], queue, message_id)
    exchange, key, body, properties = copy_of(change, found[0])
    try:
        await channel.basic_publish(exchange, key, body, properties, mandatory=True)
    except Unroutable:
        return False
    return True


async def replace(
    channel: "Channel", queue: str, position: int, change: Change, user: str, message_id: str = ""
) -> bool:
    """Publish a copy of a message in its place, whatever ends meanwhile; returns whether a queue took it.

    Args:
        channel: of the caller.
        queue: that has the message.
        position: of the message.
        change: what is different in the copy.
        user: the caller.
        message_id: that the message has to have; "" for any.

    Raises:
        NotFound: the message is not there, or not any more.
        PreconditionFailed: another one is there.
    """
    mover = Mover(channel, queue, user)
    await mover.begin()
    taken = await mover.take(1, at=position)
    if not taken:
        raise _missing(queue, position)
    try:
        _check_identity(taken[0], queue, message_id)
        await mover.move(taken, lambda message: copy_of(change, message))
    except Unroutable:
        return False
    except PreconditionFailed:
        if not mover.moved:
            await mover.release()
            raise
    return True


def _check_identity(message: "Message", queue: str, message_id: str) -> None:
    """Make sure that a message is the one that was looked at.

    Raises:
        PreconditionFailed: it is another one.
    """
    if message_id not in ("", message.message_id):
        raise PreconditionFailed(
            f"at position {message.position} of queue '{queue}' is message '{message.message_id}', not '{message_id}': "
            "look again where it is"
        )


def _missing(queue: str, position: int) -> NotFound:
    return NotFound(f"queue '{queue}' has no ready message at position {position}: somebody has it, or it is gone")
