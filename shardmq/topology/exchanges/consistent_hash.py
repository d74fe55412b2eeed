"""Consistent-hash exchanges: a message goes to one destination, chosen by a hash.

The hash is that of the routing key, or of a header or property that the exchange's arguments name, as with RabbitMQ's
plugin rabbitmq_consistent_hash_exchange.

A binding's key is its weight: a destination bound with "2" gets twice as many messages as one bound with "1". The
choice is by weighted rendezvous hashing: each destination gets a score from the hash of its name and the value, and the
best score wins. A new destination takes its share from all others, and nothing moves between those; the share of a
removed one is spread in the same way. The choice takes half a microsecond a destination; the router remembers routes by
routing key.
"""

from collections.abc import Collection, Mapping, Sequence
from math import log
from typing import Any, Final

import msgspec
from xxhash import xxh3_64_intdigest

from shardmq.errors import PreconditionFailed
from shardmq.message.properties import Properties
from shardmq.topology.exchanges.exchange_type import NONE, Destination, ExchangeType

HASH_HEADER: Final = "hash-header"
"""The argument that names a header to hash."""

HASH_PROPERTY: Final = "hash-property"
"""The argument that names a property to hash."""

PROPERTIES: Final = ("message_id", "correlation_id", "timestamp")
"""The values of `hash-property`."""

_UNIT: Final = 2.0**-52
_encode = msgspec.msgpack.Encoder().encode


class ConsistentHash(ExchangeType):
    """Destinations, each with a seed and the sum of its bindings' weights."""

    __slots__ = ("_header", "_property", "_seeds", "_weights")

    def __init__(self, arguments: Mapping[str, Any] = NONE) -> None:
        self._header: str | None = arguments.get(HASH_HEADER)
        self._property: str | None = arguments.get(HASH_PROPERTY)
        self._weights: dict[Destination, int] = {}
        self._seeds: dict[Destination, int] = {}

    def add(self, key: str, destination: Destination, arguments: dict[str, Any]) -> None:  # noqa: ARG002
        self._weights[destination] = self._weights.get(destination, 0) + int(key)
        self._seeds[destination] = xxh3_64_intdigest(_encode(destination))

    def remove(self, key: str, destination: Destination, arguments: dict[str, Any]) -> None:  # noqa: ARG002
        self._weights[destination] -= int(key)
        if not self._weights[destination]:
            del self._weights[destination]
            del self._seeds[destination]

    def match(self, routing_key: str, properties: Properties | None = None) -> Collection[Destination]:
        weights = self._weights
        if len(weights) < 2:
            return weights
        value = self._hashed(routing_key, properties)
        best: Destination = 0
        best_score = -float("inf")
        for destination, seed in self._seeds.items():
            drawn = ((xxh3_64_intdigest(value, seed) >> 12) + 0.5) * _UNIT  # between 0 and 1, never either
            score = log(drawn) / weights[destination]
            if score > best_score:
                best, best_score = destination, score
        return (best,)

    def match_any(self, routing_keys: Sequence[str], properties: Properties | None = None) -> Collection[Destination]:
        """The destination of a message, by its first routing key alone: one message, one destination."""
        return self.match(routing_keys[0], properties)

    @property
    def is_empty(self) -> bool:
        return not self._weights

    @property
    def needs_message(self) -> bool:
        return self._header is not None or self._property is not None

    @staticmethod
    def check_binding(key: str, arguments: Mapping[str, Any]) -> None:  # noqa: ARG004
        if not (key.isascii() and key.isdigit() and int(key) > 0):
            raise PreconditionFailed(
                f"binding key '{key}' is no weight; give an x-consistent-hash exchange a whole number from 1"
            )

    def _hashed(self, routing_key: str, properties: Properties | None) -> bytes:
        """The value to hash; messages without one have one destination in common."""
        if self._header is not None:
            headers = properties.headers if properties is not None else None
            return _bytes((headers or NONE).get(self._header))
        if self._property is not None:
            return _bytes(getattr(properties, self._property, None))
        return routing_key.encode("utf-8", "surrogatepass")


def _bytes(value: Any) -> bytes:
    """A header's value as bytes. Tables and arrays count as none: some have keys without an order, or nest too deep."""
    if isinstance(value, str):
        return value.encode()
    return _encode(None if isinstance(value, dict | list) else value)
