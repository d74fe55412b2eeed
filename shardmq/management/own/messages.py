"""Messages of a queue, looked at without a trace, chosen by routing key, header and body.

Looking is done in portions: an answer says how far it came, and where the next one begins.
"""

import base64
from typing import Final

import msgspec

from shardmq.client.api.message import Message
from shardmq.management.dead_letters.chosen import Wanted
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import Answer, Endpoint, Right
from shardmq.management.web.errors import ApiError
from shardmq.message.json_values import plain

COUNT: Final = 20
COUNT_MAX: Final = 200
"""Messages in an answer."""

LOOKED_AT_MAX: Final = 5000
"""Messages looked at for one answer; a search goes on where it ended."""

PORTION: Final = 200
"""Messages taken from the broker at once."""

BODY_BYTES: Final = 16 << 10
"""Of a body in an answer; the rest is cut off, and `is_truncated` says so."""


def message_row(message: Message, position: int) -> Row:
    """A message as the page shows it; the body is in Base64."""
    body = bytes(message.body)
    properties = msgspec.to_builtins(message.properties, builtin_types=(bytes,), enc_hook=str)
    return {
        "position": position,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "redelivered": message.redelivered,
        "payload_bytes": len(body),
        "payload_base64": base64.b64encode(body[:BODY_BYTES]).decode(),
        "is_truncated": len(body) > BODY_BYTES,
        "properties": {name: plain(value) for name, value in properties.items() if value is not None},
    }


def _number(call: Call, name: str, default: int, most: int) -> int:
    text = call.query.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or len(text) > 18:
        raise ApiError.bad_request(f"{name} is '{text[:40]}'; give a whole number")
    return min(int(text), most)


async def look(call: Call) -> Answer:
    """The ready messages of a queue from a position on, those that are wanted."""
    vhost, queue = await call.vhost(), call.part("queue")
    start, count = _number(call, "start", 0, 1 << 62), max(1, _number(call, "count", COUNT, COUNT_MAX))
    wanted = Wanted(*(call.query.get(name, "") for name in ("key", "header", "text")))
    channel = await call.channel(vhost)
    found: list[Row] = []
    position = start
    is_end = False
    while not is_end and len(found) < count and position - start < LOOKED_AT_MAX:
        messages = await channel.queue_peek(queue, position, PORTION)
        is_end = not messages
        for message in messages:
            if wanted.has(message):
                found.append(message_row(message, position))
            position += 1
            if len(found) == count:
                break
    return Answer({"messages": found, "next": None if is_end else position, "looked_at": position - start})


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/shardmq/queues/{vhost}/{queue}/messages",
        look,
        Right.MANAGEMENT,
        "Messages of a queue, looked at without a trace.",
        Row,
        parameters=("start", "count", "key", "header", "text"),
    ),
)
"""What this file answers."""
