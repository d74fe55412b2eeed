"""Mandatory messages that no queue took."""

import msgspec

from shardmq.errors import Unroutable, from_broker
from shardmq.message import keyed_records
from shardmq.message import record as records
from shardmq.message.properties import Properties
from shardmq.message.record_batch import KEYED
from shardmq.protocol.native.operations.basic import BasicReturn


class ReturnedMessage(msgspec.Struct, frozen=True):
    """A mandatory message that came back.

    Attributes:
        body: the bytes that were published.
        properties: what was published with it.
        exchange: where it was published to.
        routing_key: the key it was published with.
        code: why, a reply code: 312 is NO_ROUTE.
        text: why, in words.
    """

    body: bytes
    properties: Properties
    exchange: str
    routing_key: str
    code: int
    text: str


def returned_messages(frame: BasicReturn) -> list[ReturnedMessage]:
    """All that one BasicReturn brings."""
    found: list[tuple[Properties | None, bytes, str]]
    if frame.flags & KEYED:
        keyed = keyed_records.unpack(frame.records, frame.count)
        found = [(record.properties, record.body, record.key) for record in keyed]
    else:
        unpacked = records.unpack(frame.records, frame.count)
        found = [(record.properties, record.body, frame.routing_key) for record in unpacked]
    return [
        ReturnedMessage(body, properties or Properties(), frame.exchange, key, frame.code, frame.text)
        for properties, body, key in found
    ]


def unroutable(frame: BasicReturn) -> Unroutable:
    """The exception for what came back; it carries the first message."""
    first = returned_messages(frame)[0]
    error = from_broker(
        Unroutable(
            f"no queue took what was published to '{first.exchange}' with '{first.routing_key}', and it was mandatory"
        )
    )
    error.message = first
    return error
