"""What begins and changes consumers, and calls that wait for an answer, as values."""

import secrets
from typing import Final

from msgspec.structs import replace

from shardmq.client.core.batching import TRANSIENT_MODE
from shardmq.client.core.requests.request import Arguments, Request, nothing
from shardmq.client.core.validation import check_names, check_prefetch, table
from shardmq.limits import DELAY_MS_MAX
from shardmq.message.properties import Properties
from shardmq.protocol.native.operations.basic import BasicConsume, BasicQos
from shardmq.topology.entities import REPLY_QUEUES

REPLY_TOKEN_BYTES: Final = 24


def basic_consume(
    queue: str, consumer_tag: str, prefetch: int, auto_ack: bool, exclusive: bool, arguments: Arguments
) -> BasicConsume:
    """Begin a consumer; its inbox is handed to `ConnectionCore.consume`."""
    check_names(queue=queue, consumer_tag=consumer_tag)
    check_prefetch(prefetch)
    return BasicConsume(0, 0, queue, consumer_tag, auto_ack, prefetch, table("arguments", arguments), exclusive)


def basic_qos(consumer_tag: str, prefetch: int) -> Request[None]:
    """Change a consumer's prefetch."""
    check_names(consumer_tag=consumer_tag)
    check_prefetch(prefetch)
    return Request(
        f"changing the prefetch of consumer '{consumer_tag}'", nothing, BasicQos(0, 0, consumer_tag, prefetch)
    )


def reply_queue() -> str:
    """A new name for a queue of answers, which nobody guesses; consuming it makes the queue."""
    return REPLY_QUEUES + secrets.token_urlsafe(REPLY_TOKEN_BYTES)


def call_properties(properties: Properties | None, reply_to: str, correlation_id: str, seconds: float) -> Properties:
    """The properties of a request whose answer is waited for, for so many seconds."""
    given = properties or Properties()
    return replace(
        given,
        reply_to=reply_to,
        correlation_id=correlation_id,
        delivery_mode=TRANSIENT_MODE if given.delivery_mode is None else given.delivery_mode,
        expiration=str(int(min(seconds * 1000, DELAY_MS_MAX))) if given.expiration is None else given.expiration,
    )
