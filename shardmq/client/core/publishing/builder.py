"""Messages waiting to be sent that share exchange, routing key and properties."""

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from operator import is_
from typing import Any, ClassVar, Final, cast

from msgspec import Raw
from msgspec.structs import replace

from shardmq.client.core.batching import (
    NO_EXTRAS,
    PublishBatch,
    PublishOptions,
    bytes_beside,
    flags_of,
    numbering_of,
    parts_of,
    too_large,
    wrong_body,
)
from shardmq.limits import MESSAGE_BYTES_MAX
from shardmq.message import record as records
from shardmq.message.properties import Properties

Content = bytes | tuple[Raw, bytes] | tuple[Raw, bytes, str]
"""A body that waits, alone or behind its encoded properties, and before its routing key."""

_SPECIAL: Final = object()
_NO_HEADS: Final[dict[int, Raw]] = {}


class Encoded:
    """Properties encoded as they are now: the program may change the headers in them, and publish with them again.

    Args:
        properties: whose.

    Attributes:
        head: their bytes.
    """

    __slots__ = ("_headers", "head")

    _STEADY: Final = frozenset({str, int, float, bool, bytes, type(None), Decimal, datetime})
    """Values of these types do not change in themselves."""

    def __init__(self, properties: Properties | None) -> None:
        self.head = records.pack_properties(properties)
        headers = properties.headers if properties is not None else None
        is_steady = headers is not None and self._STEADY.issuperset(map(type, headers.values()))
        self._headers = dict(headers) if headers is not None and is_steady else None

    def is_of(self, headers: dict[str, Any]) -> bool:
        """Whether the headers are surely what they were. 0.2 µs, where to encode three takes 0.4.

        Values are compared by what they are, and not by what they equal: 1 and True are stored as two different things.
        """
        kept = self._headers
        return kept is not None and all(map(is_, kept.values(), headers.values())) and kept == headers


class BatchBuilder:
    """Messages waiting to be sent that share exchange, routing key and properties.

    Attributes:
        exchange: of them.
        routing_key: of them.
        properties: of them; the same object for the next message is the quick way.
        plain: the properties, for those who publish without extras to compare; nobody's where these have extras, or
            headers, which may have changed.
        extras: of them.
        flags: of them.
        numbering: who numbers them where they have no producer.
        heads: the encoded properties that a body is to wait with, by the identity of its properties; of none here.
        bodies: their bodies, as they are: packed together they take half the time of one by one.
        encoded: the properties, where they have headers: as they were when the batch was begun; of several, the newest.
        counted: how many of the bodies are counted by the collector.
        size: bytes of bodies that are not; where several threads add, about.
        body_max: the largest body that the broker takes.
        beside: what a record of these has beside its body, about.
        is_keyed: whether each of them waits with its own routing key.
        packed: records of messages before them with the same route; packed_bytes and packed_count: how many.
    """

    __slots__ = (
        "beside",
        "bodies",
        "body_max",
        "counted",
        "encoded",
        "exchange",
        "extras",
        "flags",
        "heads",
        "numbering",
        "packed",
        "packed_bytes",
        "packed_count",
        "plain",
        "properties",
        "routing_key",
        "size",
    )
    is_keyed: ClassVar = False

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
        self.beside = bytes_beside(properties)
        self.encoded = None if properties is None or properties.headers is None else Encoded(properties)
        self.plain: object = properties if extras is NO_EXTRAS and self.encoded is None else _SPECIAL
        self.extras = extras
        self.flags = flags_of(properties, extras.mandatory)
        self.numbering = extras.producer or numbering_of(exchange, properties)
        self.heads = _NO_HEADS
        self.bodies: list[Content] = []
        self.counted = 0
        self.size = 0
        self.body_max = body_max
        self.packed: list[bytes] = []
        self.packed_bytes = self.packed_count = 0

    def is_like(self, exchange: str, routing_key: str, properties: Properties | None, extras: PublishOptions) -> bool:
        """Whether a message published like that may join this batch."""
        return (
            self.has(properties)
            and self.routing_key == routing_key
            and self.exchange == exchange
            and self.extras == extras
        )

    def has(self, properties: Properties | None) -> bool:
        """Whether these are its properties, with the headers that they had."""
        if self.properties is not properties or self.encoded is None or properties is None:
            return self.properties is properties
        return properties.headers is not None and self.encoded.is_of(properties.headers)

    def head_for(self, properties: Properties | None) -> Raw | None:
        """The properties, encoded, as bodies that come with them are to wait here; None where they are not known."""
        return self.heads.get(id(properties))

    def check(self, body: bytes) -> None:
        """Raise for what cannot be added: TypeError for no bytes, ContentTooLarge over the limit."""
        if type(body) is not bytes:
            raise wrong_body(body)
        if len(body) > self.body_max:
            raise too_large(len(body), self.body_max)

    def continues(self, other: "BatchBuilder") -> bool:
        """Whether its messages may share a batch with those of another one, and differ in properties alone."""
        return (
            self.routing_key == other.routing_key
            and self.exchange == other.exchange
            and self.extras == other.extras
            and not self.extras.producer
            and self.flags == other.flags
            and self.numbering == other.numbering
            and not other.is_keyed
        )

    def follow(self, other: "BatchBuilder") -> None:
        """Take over what another one has, before its own."""
        if bodies := other.take():
            other.pack(bodies)
        self.packed, other.packed = other.packed, []
        self.packed_bytes, other.packed_bytes = other.packed_bytes, 0
        self.packed_count, other.packed_count = other.packed_count, 0

    def pack(self, bodies: list[Content]) -> None:
        """Pack some of its bodies."""
        plain = cast("list[bytes]", bodies)
        properties = self.properties
        if self.encoded is not None:
            packed = records.pack_packed([(self.encoded.head, body) for body in plain])
        else:
            packed = records.pack(properties, plain[0]) if len(plain) == 1 else records.pack_many(plain, properties)
        self._add_packed(packed, len(plain))

    def _add_packed(self, packed: bytes, count: int) -> None:
        self.packed.append(packed)
        self.packed_bytes += len(packed)
        self.packed_count += count

    def parts(self, bodies: list[Content]) -> Iterable[list[Content]]:
        """Cut bodies into batches."""
        return cast("Iterable[list[Content]]", parts_of(cast("list[bytes]", bodies), self.beside))

    def take(self) -> list[Content]:
        """Take all bodies; what another thread adds meanwhile stays."""
        bodies = self.bodies
        count = len(bodies)
        taken = bodies[:count]
        del bodies[:count]
        self.counted = self.size = 0
        return taken

    def batches(self) -> list[PublishBatch]:
        """Take everything, as batches."""
        bodies = self.take()
        batches: list[PublishBatch] = []
        for index, part in enumerate(self.parts(bodies) if bodies else ()):
            if index:
                batches.append(self._batch())
            self.pack(part)
        if self.packed_count:
            batches.append(self._batch())
        return batches

    def _batch(self) -> PublishBatch:
        packed, count = self.packed, self.packed_count
        self.packed, self.packed_bytes, self.packed_count = [], 0, 0
        joined = packed[0] if len(packed) == 1 else b"".join(packed)
        extras = self.extras
        if extras.producer:
            self.extras = replace(extras, sequence=extras.sequence + count)
        return (
            self.exchange,
            self.routing_key,
            self.flags,
            count,
            joined,
            extras.delay_ms,
            self.numbering,
            extras.sequence,
            0,
        )
