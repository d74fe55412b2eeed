"""Messages of queues, streams and topics, looked at without a trace, chosen by routing key, header and body.

The broker searches. An answer comes after part of a second, and says how far the search is and where the next one
begins: who shows it shows progress, and who asks for no more has ended the search.
"""

import base64
from typing import Final

import msgspec

from shardmq.client.api.message import Message
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import Answer, Endpoint, Right
from shardmq.management.web.errors import ApiError
from shardmq.message.json_values import plain
from shardmq.search.bodies import GZIP, decompressed
from shardmq.search.filters import SearchFilters
from shardmq.topology.entities import PARTITIONS_MAX

COUNT: Final = 20
COUNT_MAX: Final = 200
"""Messages in an answer."""

BODY_BYTES: Final = 16 << 10
"""Of a body in an answer; the rest is cut off, and `is_truncated` says so."""

BODIES_BYTES_MAX: Final = 4 << 20
"""Of all bodies in an answer, where a request asks for more of each."""

PARAMETERS: Final = (
    *("start", "count", "partition", "key", "header", "text", "regex", "json", "id", "since", "until"),
    "body_bytes",
)


def message_row(message: Message, body_bytes: int = BODY_BYTES) -> Row:
    """A message as the page shows it; the body is in Base64, and beside it decompressed where it is compressed."""
    body = bytes(message.body)
    properties = msgspec.to_builtins(message.properties, builtin_types=(bytes,), enc_hook=str)
    row = {
        "position": message.position,
        "id": message.message_id,
        "timestamp_ms": message.timestamp_ms,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "redelivered": message.redelivered,
        "payload_bytes": len(body),
        "payload_base64": base64.b64encode(body[:body_bytes]).decode(),
        "is_truncated": len(body) > body_bytes,
        "properties": {name: plain(value) for name, value in properties.items() if value is not None},
    }
    is_deflate = message.properties.content_encoding == "deflate"
    if is_deflate or body.startswith(GZIP):
        unpacked, is_cut = decompressed(body, is_deflate=is_deflate, limit=body_bytes)
        row["unpacked_base64"] = base64.b64encode(unpacked).decode()
        row["is_truncated"] = is_cut
    return row


def _number(call: Call, name: str, default: int, most: int) -> int:
    text = call.query.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or len(text) > 18:
        raise ApiError.bad_request(f"{name} is '{text[:40]}'; give a whole number")
    return min(int(text), most)


def filters_of(call: Call) -> SearchFilters:
    """What the parameters of a request choose; `header` and `json` may be repeated.

    Raises:
        ApiError: they are too many, or too long.
    """
    headers = [text.partition("=") for text in call.query.getall("header", []) if text]
    given = {
        "key": call.query.get("key", ""),
        "headers": [(name, value if equals else None) for name, equals, value in headers],
        "text": call.query.get("text", ""),
        "regex": call.query.get("regex", ""),
        "json": [text for text in call.query.getall("json", []) if text.strip()],
        "message_id": call.query.get("id", ""),
        "since_ms": _number(call, "since", 0, 1 << 62),
        "until_ms": _number(call, "until", 0, 1 << 62),
    }
    try:
        return msgspec.convert(given, SearchFilters)
    except msgspec.ValidationError as fault:
        raise ApiError.bad_request(f"the filters are too long or too many: {fault}") from fault


async def _search(call: Call, name: str) -> Answer:
    vhost, filters = await call.vhost(), filters_of(call)
    start, count = _number(call, "start", 0, 1 << 62), max(1, _number(call, "count", COUNT, COUNT_MAX))
    body_bytes = _number(call, "body_bytes", BODY_BYTES, BODIES_BYTES_MAX // count if count < COUNT else BODY_BYTES)
    channel = await call.channel(vhost)
    page = await channel.messages_search(name, filters, start, count, _number(call, "partition", 0, PARTITIONS_MAX))
    return Answer(
        {
            "messages": [message_row(message, body_bytes) for message in page.messages],
            "next": page.next,
            "looked_at": page.looked_at,
            "left": page.left,
            "cut": page.cut,
            "partitions": page.partitions,
        }
    )


async def look(call: Call) -> Answer:
    """The ready messages of a queue from a position on, or those of a stream from an offset on, that are wanted."""
    return await _search(call, call.part("queue"))


async def look_into_topic(call: Call) -> Answer:
    """The messages of a topic's partition from an offset on that are wanted."""
    return await _search(call, call.part("topic"))


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/shardmq/queues/{vhost}/{queue}/messages",
        look,
        Right.MANAGEMENT,
        "Messages of a queue, searched without a trace.",
        Row,
        parameters=PARAMETERS,
    ),
    Endpoint(
        "GET",
        "/shardmq/topics/{vhost}/{topic}/messages",
        look_into_topic,
        Right.MANAGEMENT,
        "Messages of a topic, searched without a trace.",
        Row,
        parameters=PARAMETERS,
    ),
)
"""What this file answers."""
