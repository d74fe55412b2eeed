"""Messages moved from one queue to another: each arrives once, whatever ends meanwhile."""

from functools import partial
from typing import Any, Final

from shardmq.management.moving import Mover, copy_to
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import Answer, Endpoint, Right
from shardmq.management.web.errors import ApiError

MOVED_MAX: Final = 100_000
"""Messages of one request; `left` says how many of those that were ready are still there."""


def _limit(value: Any) -> int:
    if value is None:
        return MOVED_MAX
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ApiError.bad_request(f"limit is {value!r:.40}; give a whole number from 1 on, or none")
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
        await channel.queue_declare(source, passive=True)
        await channel.queue_declare(destination, passive=True)
        async with call.facts.moving(vhost, source, call.user):
            mover = Mover(channel, source, call.user)
            await mover.begin()
            ready = (await channel.queue_declare(source, passive=True)).messages
            moved = await mover.move_all(min(limit, ready), partial(copy_to, "", destination))
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
