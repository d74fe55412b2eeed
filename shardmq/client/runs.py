"""Making runs of what a program publishes: the sizes, the checks, and the run that is being filled."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from shardmq import records
from shardmq.client.arguments import check_names
from shardmq.errors import ContentTooLarge
from shardmq.limits import MESSAGE_BYTES_MAX
from shardmq.records import PERSISTENT, Properties

RUN_RECORDS: Final = 500
"""A run is sent when it has this many records. Past it, a run costs the broker nothing less per record."""

RUN_BYTES: Final = 64 << 10
"""A run being filled by single publishes is sent when it has this many bytes."""

MANY_BYTES: Final = 256 << 10
"""`publish_many` makes runs of about this many bytes at most; the larger of two messages always fits."""

TRANSIENT_MODE: Final = 1
"""AMQP's delivery-mode of a message that need not survive a restart."""


def flags_of(properties: Properties | None) -> int:
    """A run's flags, from its messages' delivery mode; persistent when not set."""
    return 0 if properties is not None and properties.delivery_mode == TRANSIENT_MODE else PERSISTENT


def record_of(body: bytes, properties: Properties | None) -> bytes:
    """One message's bytes, checked.

    Raises:
        TypeError: the body is not bytes, or the properties are no Properties.
        ContentTooLarge: over the limit.
    """
    if type(body) is not bytes:
        raise _wrong_body(body)
    if properties is not None and not isinstance(properties, Properties):
        raise TypeError(f"properties are shardmq.Properties or None, not {type(properties).__name__}")
    record = records.pack(properties, body)
    if len(record) > MESSAGE_BYTES_MAX:
        raise _too_large(len(record))
    return record


def runs_of(bodies: Iterable[bytes], properties: Properties | None) -> Iterator[tuple[int, bytes]]:
    """The runs for many messages that share exchange, key and properties: (count, records).

    Raises:
        As `record_of`.
    """
    if isinstance(bodies, bytes | str):
        raise TypeError(f"publish_many takes an iterable of bodies, not one {type(bodies).__name__}; use publish")
    source = iter(bodies)
    while chunk := list(islice(source, RUN_RECORDS)):
        if set(map(type, chunk)) != {bytes}:
            raise _wrong_body(next(body for body in chunk if type(body) is not bytes))
        for part in _parts(chunk):
            packed = records.pack_many(part, properties)
            if len(packed) > MESSAGE_BYTES_MAX and len(part) == 1:
                raise _too_large(len(packed))
            yield len(part), packed


def _parts(chunk: list[bytes]) -> Iterator[list[bytes]]:
    if sum(map(len, chunk)) <= MANY_BYTES:
        yield chunk
        return
    part: list[bytes] = []
    size = 0
    for body in chunk:
        if part and size + len(body) > MANY_BYTES:
            yield part
            part, size = [], 0
        part.append(body)
        size += len(body)
    yield part


def _wrong_body(body: object) -> TypeError:
    return TypeError(f"a message's body is bytes, not {type(body).__name__}; encode it first, as text.encode()")


def _too_large(size: int) -> ContentTooLarge:
    return ContentTooLarge(f"a message of {size} bytes with its properties; the limit is {MESSAGE_BYTES_MAX}")


class Filling:
    """The run that single publishes are being added to: neighbours with the same exchange, key and flags share it."""

    __slots__ = ("_records", "exchange", "flags", "routing_key", "size")

    def __init__(self) -> None:
        self.exchange = ""
        self.routing_key = ""
        self.flags = PERSISTENT
        self.size = 0
        self._records: list[bytes] = []

    def __len__(self) -> int:
        return len(self._records)

    def add(self, record: bytes) -> bool:
        """Put a record in; returns whether the run is full."""
        self._records.append(record)
        self.size += len(record)
        return self.size >= RUN_BYTES or len(self._records) >= RUN_RECORDS

    def begin(self, exchange: str, routing_key: str, flags: int) -> None:
        """Start over for messages published like that; what was in must have been taken.

        Raises:
            TypeError, InvalidRequest: names that cannot be.
        """
        check_names(exchange=exchange, routing_key=routing_key)
        self.exchange = exchange
        self.routing_key = routing_key
        self.flags = flags

    def take(self) -> tuple[int, bytes]:
        """All of it, (count, records); the run is empty then."""
        taken = self._records
        self._records = []
        self.size = 0
        return len(taken), b"".join(taken)
