"""Publishing and getting messages, and whether that works at all."""

import base64
import binascii
from typing import Any, Final, Literal

import msgspec

from shardmq.client.aio.channel import Channel
from shardmq.client.api.message import Message
from shardmq.errors import NotFound, Unroutable
from shardmq.management.api.exchanges import exchange_name
from shardmq.management.web.body import flag, number, table, text
from shardmq.management.web.call import LARGE_BYTES_MAX, Call, Row
from shardmq.management.web.endpoint import Answer, Endpoint, Right
from shardmq.management.web.errors import ApiError
from shardmq.message.json_values import plain
from shardmq.message.properties import Properties

GET_MESSAGES_MAX: Final = 1000
"""Messages that one request gets at most."""

GET_BYTES_MAX: Final = 64 << 20
"""Bytes of bodies that one request gets, and one message more."""

ACK_MODES: Final = ("ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false")

CLUSTER_ID: Final = "cluster_id"
"""A property of AMQP that is deprecated; what is given for it is left out."""

ALIVENESS_QUEUE: Final = "aliveness-test"


async def publish(call: Call) -> Answer:
    """Publish a message, and answer when it is confirmed."""
    vhost, exchange, body = call.part("vhost"), exchange_name(call.part("exchange")), await call.body()
    routing_key, payload = text(body, "routing_key"), payload_in(body)
    properties = properties_in(table(body, "properties"))
    channel = await call.channel(vhost)
    try:
        await channel.basic_publish(exchange, routing_key, payload, properties, mandatory=True)
    except Unroutable:
        return Answer({"routed": False})
    return Answer({"routed": True})


def payload_in(body: Row) -> bytes:
    """The body of a message that a request gives.

    Raises:
        ApiError: it makes no sense.
    """
    payload, encoding = text(body, "payload"), text(body, "payload_encoding", "string")
    if encoding == "string":
        return payload.encode()
    if encoding != "base64":
        raise ApiError.bad_request(f"payload_encoding is '{encoding:.20}'; give string or base64")
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError) as fault:
        raise ApiError.bad_request(f"payload is no base64: {fault}") from fault


def properties_in(given: Row) -> Properties:
    """A message's properties; numbers may be texts, as rabbitmqadmin sends them.

    Raises:
        ApiError: they make no sense.
    """
    read = {name: value for name, value in given.items() if name != CLUSTER_ID}
    for name in ("delivery_mode", "priority", "timestamp"):
        if name in read:
            read[name] = number(read, name)
    if isinstance(read.get("expiration"), int):
        read["expiration"] = str(read["expiration"])
    if "headers" in read:
        read["headers"] = table(read, "headers")
    try:
        return msgspec.convert(read, Properties)
    except msgspec.ValidationError as fault:
        raise ApiError.bad_request(f"properties: {fault}") from fault


async def get_messages(call: Call) -> Answer:
    """Get messages of a queue, which return to it or not."""
    vhost, queue, body = call.part("vhost"), call.part("queue"), await call.body()
    count, mode = number(body, "count", 1), _ack_mode(body)
    encoding = text(body, "encoding", "auto")
    truncate = number(body, "truncate", GET_BYTES_MAX)
    if not 1 <= count <= GET_MESSAGES_MAX:
        raise ApiError.bad_request(f"count is {count}; give 1 to {GET_MESSAGES_MAX}")
    if encoding not in ("auto", "base64") or truncate < 0:
        raise ApiError.bad_request("encoding is auto or base64, and truncate a number of bytes")
    channel = await call.channel(vhost, own=True)
    async with channel:
        return Answer(await _got(channel, queue, count, mode, lambda message: _shown(message, encoding, truncate)))


def _ack_mode(body: Row) -> str:
    if "ackmode" not in body and "requeue" in body:  # clients of RabbitMQ before 3.7
        return "ack_requeue_true" if flag(body, "requeue") else "ack_requeue_false"
    mode = text(body, "ackmode", "ack_requeue_true")
    if mode not in ACK_MODES:
        raise ApiError.bad_request(f"ackmode is '{mode:.40}'; give one of {', '.join(ACK_MODES)}")
    return mode


async def _got(channel: Channel, queue: str, count: int, mode: str, show: Any) -> list[Row]:
    found: list[Message] = []
    shown: list[Row] = []
    size = 0
    while len(found) < count and size < GET_BYTES_MAX:
        message = await channel.basic_get(queue)
        if message is None:
            break
        found.append(message)
        size += len(message.body)
        shown.append(show(message))
    left = (await channel.queue_declare(queue, passive=True)).messages if found else 0
    for place, row in enumerate(shown):
        row["message_count"] = left + len(shown) - place - 1
    for message in found:
        if mode == "ack_requeue_false":
            message.ack()
        else:
            message.nack(requeue=mode.endswith("true"))
    return shown


def _shown(message: Message, encoding: str, truncate: int) -> Row:
    body = bytes(message.body)
    cut = body[:truncate]
    try:
        payload, kind = (cut.decode(), "string") if encoding == "auto" else ("", "")
    except UnicodeDecodeError:
        payload, kind = "", ""
    if not kind:
        payload, kind = base64.b64encode(cut).decode(), "base64"
    properties = plain(msgspec.to_builtins(message.properties, builtin_types=(bytes,), enc_hook=lambda value: value))
    properties.setdefault("delivery_mode", 2 if message.persistent else 1)
    return {
        "payload_bytes": len(body),
        "redelivered": message.redelivered,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "message_count": 0,
        "properties": properties,
        "payload": payload,
        "payload_encoding": kind,
    }


async def aliveness_test(call: Call) -> Answer:
    """Publish a message and get it back."""
    channel = await call.channel(call.part("vhost"))
    try:
        await channel.queue_declare(ALIVENESS_QUEUE, passive=True)
    except NotFound:
        await channel.queue_declare(ALIVENESS_QUEUE)
    await channel.basic_publish("", ALIVENESS_QUEUE, b"test_message", Properties(delivery_mode=1), mandatory=True)
    got = await channel.basic_get(ALIVENESS_QUEUE, auto_ack=True)
    if got is None:
        raise ApiError(503, "failed", f"queue '{ALIVENESS_QUEUE}' took a message, and does not give it back")
    return Answer({"status": "ok"})


class PublishBody(msgspec.Struct):
    """A message."""

    routing_key: str
    payload: str
    properties: Row = {}
    payload_encoding: Literal["string", "base64"] = "string"


class GetBody(msgspec.Struct):
    """How many messages, and what becomes of them."""

    count: int = 1
    ackmode: Literal["ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false"] = (
        "ack_requeue_true"
    )
    encoding: Literal["auto", "base64"] = "auto"
    truncate: int | None = None


ENDPOINTS: Final = (
    Endpoint(
        "POST",
        "/exchanges/{vhost}/{exchange}/publish",
        publish,
        Right.MANAGEMENT,
        "Publish.",
        Row,
        body=PublishBody,
        body_bytes_max=LARGE_BYTES_MAX,
    ),
    Endpoint(
        "POST", "/queues/{vhost}/{queue}/get", get_messages, Right.MANAGEMENT, "Get messages.", list[Row], body=GetBody
    ),
    Endpoint("GET", "/aliveness-test/{vhost}", aliveness_test, Right.MANAGEMENT, "Publish and get a message.", Row),
)
"""What this file answers."""
