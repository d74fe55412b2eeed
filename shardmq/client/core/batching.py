"""Making batches of what a program publishes: the sizes and the checks."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec

from shardmq.client.api.defaults import WINDOW
from shardmq.client.core.validation import unwritable
from shardmq.errors import ContentTooLarge
from shardmq.limits import MESSAGE_BYTES_MAX, PROPERTIES_BYTES_MAX
from shardmq.message import record as records
from shardmq.message.properties import Properties
from shardmq.message.record_batch import MANDATORY, PERSISTENT

BATCH_RECORDS: Final = 500
"""A batch is sent when it has this many records. Past it, a batch costs the broker nothing less per record."""

BATCH_BYTES: Final = 64 << 10
"""A batch being filled by single publishes is sent when it has this many bytes."""

MANY_BYTES: Final = 256 << 10
"""`publish_many` makes batches of about this many bytes at most; the larger of two messages always fits."""

MIXED_BYTES: Final = PROPERTIES_BYTES_MAX
"""What single publishes with properties or keys of their own make batches of at most: a gateway checks them at once."""

_LEAST_BESIDE: Final = len(records.pack(None, b"")) - 1
"""What a record with an empty body has beside its properties."""

QUEUE_WINDOW: Final = 20
"""Messages unconfirmed for each queue, where that is more than the default window. With 10 for each of 1,000 queues,
batches had 3 messages, and one took 33 µs of processor on its whole way; with 20 they have 6 or 7, and it takes 16."""

TRANSIENT_MODE: Final = 1
"""AMQP's delivery-mode of a message that need not survive a restart."""


def flags_of(properties: Properties | None, mandatory: bool = False) -> int:
    """A batch's flags: persistent unless the messages' delivery mode says otherwise, and whether they are mandatory."""
    flags = 0 if properties is not None and properties.delivery_mode == TRANSIENT_MODE else PERSISTENT
    return flags | MANDATORY if mandatory else flags


def window_of(queues: int) -> int:
    """The window of a publisher that publishes to so many queues by their names, unless told otherwise."""
    return max(WINDOW, queues * QUEUE_WINDOW)


def check_properties(properties: Properties | None) -> None:
    """Raise TypeError for what are no properties."""
    if not (properties is None or isinstance(properties, Properties)):
        raise TypeError(f"properties are shardmq.Properties or None, not {type(properties).__name__}")


def record_of(body: bytes, properties: Properties | None, body_max: int = MESSAGE_BYTES_MAX) -> bytes:
    """One message's bytes, checked.

    Args:
        body: of the message.
        properties: of the message.
        body_max: what the broker takes.

    Raises:
        TypeError: the body is not bytes, or the properties are no Properties.
        ContentTooLarge: over the limit, or its properties are.
    """
    if type(body) is not bytes:
        raise wrong_body(body)
    check_properties(properties)
    if len(body) > body_max:
        raise too_large(len(body), body_max)
    record = records.pack(properties, body)
    if properties is not None and len(record) - len(body) > PROPERTIES_BYTES_MAX:
        bytes_beside(properties)
    return record


def bytes_beside(properties: Properties | None) -> int:
    """Bytes that a record has beside its body, about.

    Raises:
        ContentTooLarge: it is too much.
        InvalidRequest: properties have text without UTF-8, or a whole number of more than 64 bits.
        TypeError: a header is of a type that messages cannot have.
    """
    try:
        size = len(records.pack(properties, b""))
    except (UnicodeEncodeError, OverflowError) as fault:
        raise unwritable("the properties of a message", fault) from fault
    if size - _LEAST_BESIDE > PROPERTIES_BYTES_MAX:
        raise ContentTooLarge(
            f"a message with {size - _LEAST_BESIDE} bytes of properties; the limit is {PROPERTIES_BYTES_MAX}"
        )
    return size


def batches_of(
    bodies: Iterable[bytes], properties: Properties | None, body_max: int = MESSAGE_BYTES_MAX
) -> Iterator[tuple[int, bytes]]:
    """Record batches of many messages that share exchange, key and properties: (count, records).

    Args:
        bodies: of the messages.
        properties: of all of them.
        body_max: what the broker takes.

    Raises:
        TypeError: a body is not bytes, or the properties are no Properties.
        ContentTooLarge: a body is over the limit, or the properties are.
    """
    if isinstance(bodies, bytes | str):
        raise TypeError(f"publish_many takes an iterable of bodies, not one {type(bodies).__name__}; use publish")
    check_properties(properties)
    beside = bytes_beside(properties)
    source = iter(bodies)
    while chunk := list(islice(source, BATCH_RECORDS)):
        if set(map(type, chunk)) != {bytes}:
            raise wrong_body(next(body for body in chunk if type(body) is not bytes))
        longest = max(map(len, chunk))
        if longest > body_max:
            raise too_large(longest, body_max)
        for part in parts_of(chunk, beside):
            yield len(part), records.pack_many(part, properties)


def parts_of(chunk: list[bytes], beside: int) -> Iterator[list[bytes]]:
    """Cut bodies into batches; each record has `beside` bytes more, of properties."""
    if sum(map(len, chunk)) + beside * len(chunk) <= MANY_BYTES:
        yield chunk
        return
    part: list[bytes] = []
    size = 0
    for body in chunk:
        if part and size + len(body) + beside > MANY_BYTES:
            yield part
            part, size = [], 0
        part.append(body)
        size += len(body) + beside
    yield part


PublishBatch = tuple[str, str, int, int, bytes, int, int, int, int]
"""What a BasicPublish says: exchange, routing key, flags, count, records, delay in ms, producer, sequence, transaction.
Producer 0: the channel numbers it, or the transaction whose publisher it comes from; BY_QUEUE: the channel does, for
the queue of its routing key alone."""

BY_QUEUE: Final = -1
"""The producer of a batch that goes to no queue but the one that is called like its routing key."""


def numbering_of(exchange: str, properties: Properties | None) -> int:
    """Who numbers messages without a producer: BY_QUEUE where their routing key names their only queue, else 0.

    A queue then has the numbers 1 to n of its producer, which is one range; of numbers that count for a thousand queues
    it would have every thousandth, and each range costs its shard time and disk.
    """
    if exchange:
        return 0
    headers = properties.headers if properties is not None else None
    return 0 if headers and ("CC" in headers or "BCC" in headers) else BY_QUEUE


def batch_of_one(
    exchange: str, routing_key: str, record: bytes, properties: Properties | None, mandatory: bool, delay_ms: int
) -> PublishBatch:
    """The batch of a single message, with its record and what it was packed of."""
    if properties is None and not mandatory:
        return exchange, routing_key, PERSISTENT, 1, record, delay_ms, 0 if exchange else BY_QUEUE, 0, 0
    numbering = numbering_of(exchange, properties)
    return exchange, routing_key, flags_of(properties, mandatory), 1, record, delay_ms, numbering, 0, 0


class PublishOptions(msgspec.Struct, frozen=True):
    """What few messages are published with.

    Attributes:
        mandatory: they come back where no queue takes them.
        delay_ms: they join their queues so much later.
        producer: who numbers them, 0 for the channel.
        sequence: the first message's number.
    """

    mandatory: bool = False
    delay_ms: int = 0
    producer: int = 0
    sequence: int = 0


NO_EXTRAS: Final = PublishOptions()


def wrong_body(body: object) -> TypeError:
    """The error for a body that is not bytes."""
    return TypeError(f"a message's body is bytes, not {type(body).__name__}; encode it first, as text.encode()")


def too_large(size: int, body_max: int) -> ContentTooLarge:
    """The error for a body over the limit."""
    return ContentTooLarge(
        f"a message of {size} bytes was not sent: the broker takes {body_max} at most (its --message-size-max)"
    )
