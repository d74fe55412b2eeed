"""Making batches of what a program publishes: the sizes, the checks, and the batch that is being filled."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec
from msgspec.structs import replace

from shardmq.client.core.validation import check_delay, check_names
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

_LEAST_BESIDE: Final = len(records.pack(None, b"")) - 1
"""What a record with an empty body has beside its properties."""

TRANSIENT_MODE: Final = 1
"""AMQP's delivery-mode of a message that need not survive a restart."""


def flags_of(properties: Properties | None, mandatory: bool = False) -> int:
    """A batch's flags: persistent unless the messages' delivery mode says otherwise, and whether they are mandatory."""
    flags = 0 if properties is not None and properties.delivery_mode == TRANSIENT_MODE else PERSISTENT
    return flags | MANDATORY if mandatory else flags


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
        raise _wrong_body(body)
    check_properties(properties)
    if len(body) > body_max:
        raise _too_large(len(body), body_max)
    record = records.pack(properties, body)
    if properties is not None and len(record) - len(body) > PROPERTIES_BYTES_MAX:
        _bytes_beside(properties)
    return record


def _bytes_beside(properties: Properties | None) -> int:
    """Bytes that a record has beside its body, about.

    Raises:
        ContentTooLarge: it is too much.
    """
    size = len(records.pack(properties, b""))
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
    beside = _bytes_beside(properties)
    source = iter(bodies)
    while chunk := list(islice(source, BATCH_RECORDS)):
        if set(map(type, chunk)) != {bytes}:
            raise _wrong_body(next(body for body in chunk if type(body) is not bytes))
        longest = max(map(len, chunk))
        if longest > body_max:
            raise _too_large(longest, body_max)
        for part in _parts(chunk, beside):
            yield len(part), records.pack_many(part, properties)


def _parts(chunk: list[bytes], beside: int) -> Iterator[list[bytes]]:
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
Producer 0: the channel numbers it, or the transaction whose publisher it comes from."""


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
_SPECIAL: Final = object()


class BatchBuilder:
    """Messages waiting to be sent that share exchange, routing key and properties.

    Attributes:
        exchange: of them.
        routing_key: of them.
        properties: of them; the same object for the next message is the quick way.
        plain: the properties, for those who publish without extras to compare; nobody's where these have extras.
        extras: of them.
        flags: of them.
        bodies: their bodies, as they are: packed together they take half the time of one by one.
        size: bytes of the bodies; where several threads add, about.
        body_max: the largest body that the broker takes.
        beside: what a record of these has beside its body, about.
    """

    __slots__ = (
        "beside",
        "bodies",
        "body_max",
        "exchange",
        "extras",
        "flags",
        "plain",
        "properties",
        "routing_key",
        "size",
    )

    def __init__(
        self,
        exchange: str,
        routing_key: str,
        properties: Properties | None,
        extras: PublishOptions,
        body_max: int = MESSAGE_BYTES_MAX,
    ) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.properties = properties
        self.plain: object = properties if extras is NO_EXTRAS else _SPECIAL
        self.extras = extras
        self.flags = flags_of(properties, extras.mandatory)
        self.bodies: list[bytes] = []
        self.size = 0
        self.body_max = body_max
        self.beside = _bytes_beside(properties)

    def is_like(self, exchange: str, routing_key: str, properties: Properties | None, extras: PublishOptions) -> bool:
        """Whether a message published like that may join this batch."""
        return (
            self.properties is properties
            and self.routing_key == routing_key
            and self.exchange == exchange
            and self.extras == extras
        )

    def check(self, body: bytes) -> None:
        """Raise for what cannot be added: TypeError for no bytes, ContentTooLarge over the limit."""
        if type(body) is not bytes:
            raise _wrong_body(body)
        if len(body) > self.body_max:
            raise _too_large(len(body), self.body_max)

    def take(self) -> list[bytes]:
        """Take all bodies; what another thread adds meanwhile stays."""
        count = len(self.bodies)
        taken = self.bodies[:count]
        del self.bodies[:count]
        self.size = 0
        return taken


class BatchCollector:
    """Collects single publishes until they are sent as batches.

    Any thread may append to `filling.bodies` without a lock, if it looks afterwards whether `filling` is still the one:
    where another thread has turned to a new one meanwhile, what was appended may have been left behind, and `sweep`
    gets it. Everything else here wants the publisher's lock. (With the lock here, a publish took twice as long.)

    Neighbours whose properties differ still share a batch: what is there is packed when the properties change.

    Args:
        producer: whose messages are numbered by the program, 0 for none.
        body_max: says how large a body the broker takes; after a loss another one may be there.
    """

    __slots__ = ("_body_max", "_packed", "_packed_bytes", "filling", "packed_count")

    def __init__(self, producer: int = 0, body_max: Callable[[], int] = lambda: MESSAGE_BYTES_MAX) -> None:
        self._body_max = body_max
        self.filling = BatchBuilder(
            "", "", None, PublishOptions(producer=producer) if producer else NO_EXTRAS, body_max()
        )
        self.packed_count = 0
        self._packed: list[bytes] = []
        self._packed_bytes = 0

    def turn_to(
        self, exchange: str, routing_key: str, properties: Properties | None, extras: PublishOptions = NO_EXTRAS
    ) -> list[PublishBatch]:
        """Collect messages published like that from now on; returns what is to be sent before them.

        Raises:
            TypeError, InvalidRequest: a name or the properties cannot be; nothing has changed then.
            ContentTooLarge: the properties are too large; the same.
        """
        check_properties(properties)
        old = self.filling
        is_same_route = (
            old.routing_key == routing_key
            and old.exchange == exchange
            and old.extras == extras
            and not extras.producer
            and old.flags == flags_of(properties, extras.mandatory)
        )
        if not is_same_route:
            check_names(exchange=exchange, routing_key=routing_key)
            check_delay(extras.delay_ms)
        self.filling = BatchBuilder(exchange, routing_key, properties, extras, self._body_max())
        if not is_same_route:
            return self._batches(old)
        if bodies := old.take():
            self._pack(bodies, old.properties)
        if self.packed_count >= BATCH_RECORDS or self._packed_bytes >= BATCH_BYTES:
            return self._batches(old)
        return []

    def take(self) -> list[PublishBatch]:
        """Take everything collected, as batches."""
        return self._batches(self.filling)

    def sweep(self, old: BatchBuilder) -> list[PublishBatch]:
        """Take what another thread added to a builder that is no longer filled, behind what was packed of it."""
        return [*self._batches(self.filling), *self._batches(old)]

    def next_sequence(self) -> int:
        """The number that the next numbered message needs to share a batch with those before it."""
        return self.filling.extras.sequence + len(self.filling.bodies)

    def _batches(self, filling: BatchBuilder) -> list[PublishBatch]:
        bodies = filling.take()
        batches: list[PublishBatch] = []
        for index, part in enumerate(_parts(bodies, filling.beside) if bodies else ()):
            if index:
                batches.append(self._batch(filling))
            self._pack(part, filling.properties)
        if self.packed_count:
            batches.append(self._batch(filling))
        return batches

    def _pack(self, bodies: list[bytes], properties: Properties | None) -> None:
        packed = records.pack(properties, bodies[0]) if len(bodies) == 1 else records.pack_many(bodies, properties)
        self._packed.append(packed)
        self._packed_bytes += len(packed)
        self.packed_count += len(bodies)

    def _batch(self, route: BatchBuilder) -> PublishBatch:
        packed, count = self._packed, self.packed_count
        self._packed, self._packed_bytes, self.packed_count = [], 0, 0
        joined = packed[0] if len(packed) == 1 else b"".join(packed)
        extras = route.extras
        batch = (
            route.exchange,
            route.routing_key,
            route.flags,
            count,
            joined,
            extras.delay_ms,
            extras.producer,
            extras.sequence,
            0,
        )
        if extras.producer:
            route.extras = replace(extras, sequence=extras.sequence + count)
        return batch


def _wrong_body(body: object) -> TypeError:
    return TypeError(f"a message's body is bytes, not {type(body).__name__}; encode it first, as text.encode()")


def _too_large(size: int, body_max: int) -> ContentTooLarge:
    return ContentTooLarge(
        f"a message of {size} bytes was not sent: the broker takes {body_max} at most (its --message-size-max)"
    )
