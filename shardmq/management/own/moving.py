"""Messages moved from one queue to another: each is acknowledged when its copy is confirmed."""

from typing import TYPE_CHECKING, Any, Final

from shardmq.client.api.message import properties_of_copy
from shardmq.errors import ShardmqError
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import Answer, Endpoint, Right
from shardmq.management.web.errors import ApiError

if TYPE_CHECKING:
    from shardmq.client.aio.channel import Channel

PREFETCH: Final = 500
"""Messages on their way at once; so many may be there twice where a move is broken off."""

IDLE_SECONDS: Final = 1.0
"""A queue that gives nothing for so long has nothing left that others do not hold."""

MOVED_MAX: Final = 100_000
"""Messages of one request; `left` says how many of those that were ready are still there."""


async def move_all(channel: "Channel", source: str, destination: str, limit: int) -> int:
    """Move up to `limit` messages in order; returns how many it were.

    Raises:
        ShardmqError: a message was not taken; the text says how many were moved before.
    """
    moved = 0
    consumer = channel.consume_batches(source, prefetch=min(limit, PREFETCH), inactivity_timeout=IDLE_SECONDS)
    async with channel.publisher(window=PREFETCH) as publisher:
        async for batch in consumer:
            messages = batch.messages[: limit - moved]
            try:
                for message in messages:
                    await publisher.publish("", destination, message.body, properties_of_copy(message), mandatory=True)
                await publisher.flush()
            except ShardmqError as fault:
                raise fault.with_text(f"{fault.text}; {moved} messages moved before") from fault
            for message in messages:
                message.ack()
            moved += len(messages)
            if moved >= limit:
                break
    return moved


def _limit(value: Any) -> int:
    if value is None:
        return MOVED_MAX
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ApiError.bad_request(f"limit is {value!r}; give a whole number from 1 on, or none")
    return min(value, MOVED_MAX)


async def move(call: Call) -> Answer:
    """Move the messages of a queue to another of the same virtual host."""
    vhost, source = await call.vhost(), call.part("queue")
    body = await call.body()
    destination, limit = body.get("to"), _limit(body.get("limit"))
    if not isinstance(destination, str) or not destination:
        raise ApiError.bad_request('the body names no queue to move to; give {"to": "name"}')
    if destination == source:
        raise ApiError.bad_request(f"queue '{source}' cannot be moved to itself")
    channel = await call.channel(vhost, own=True)
    try:
        ready = (await channel.queue_declare(source, passive=True)).messages
        await channel.queue_declare(destination, passive=True)
        moved = await move_all(channel, source, destination, min(limit, ready)) if ready else 0
    finally:
        await channel.close()
    return Answer({"moved": moved, "left": ready - moved})


ENDPOINTS: Final = (
    Endpoint(
        "POST",
        "/shardmq/queues/{vhost}/{queue}/move",
        move,
        Right.MANAGEMENT,
        "Move the messages of a queue to another.",
        Row,
        Row,
    ),
)
"""What this file answers."""
