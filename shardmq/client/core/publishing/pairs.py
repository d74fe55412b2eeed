"""Batches of many messages, each with a routing key of its own."""

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from operator import itemgetter
from typing import Final

from shardmq.client.api.results import ServerProperties
from shardmq.client.core.batching import (
    MANY_BYTES,
    PublishBatch,
    bytes_beside,
    check_properties,
    flags_of,
    numbering_of,
    too_large,
    wrong_body,
)
from shardmq.client.core.validation import check_names
from shardmq.message import keyed_records
from shardmq.message import record as records
from shardmq.message.properties import Properties
from shardmq.message.record_batch import KEYED

PAIRS_MAX: Final = 2000
"""Messages of a batch: those for each partition of a topic are a batch of their own from the gateway on."""

Pair = tuple[str, bytes]
"""Routing key and body of a message."""


def batches_of_pairs(
    exchange: str, messages: Iterable[Pair], properties: Properties | None, mandatory: bool, server: ServerProperties
) -> Iterator[PublishBatch]:
    """Record batches of many messages that share exchange and properties.

    Args:
        exchange: where to.
        messages: routing key and body of each.
        properties: of all of them.
        mandatory: whether they come back where no queue takes them.
        server: what the broker said of itself; where it does not take keys of messages, a batch has one key.

    Raises:
        TypeError: a message is no such pair, or the properties are no Properties.
        InvalidRequest: a key is too long.
        ContentTooLarge: a body is over the limit, or the properties are.
    """
    check_properties(properties)
    beside = bytes_beside(properties)
    flags = flags_of(properties, mandatory)
    source = iter(messages)
    while chunk := list(islice(source, PAIRS_MAX)):
        _check(chunk, server.message_max)
        for part in _parts(chunk, beside):
            if exchange and server.record_keys and len({key for key, _ in part}) > 1:
                head = records.pack_properties(properties)
                packed = keyed_records.pack([(head, body, key) for key, body in part])
                yield exchange, "", flags | KEYED, len(part), packed, 0, 0, 0, 0
                continue
            if not exchange:  # each key is a queue, and has its messages in order
                part.sort(key=itemgetter(0))
            for key, run in groupby(part, key=itemgetter(0)):
                bodies = [body for _, body in run]
                packed = records.pack_many(bodies, properties)
                yield exchange, key, flags, len(bodies), packed, 0, numbering_of(exchange, properties), 0, 0


def _check(chunk: list[Pair], body_max: int) -> None:
    for place, pair in enumerate(chunk):
        if type(pair) is not tuple or len(pair) != 2:
            raise TypeError(f"publish_keyed takes pairs (routing key, body), not {type(pair).__name__}")
        key, body = pair
        if type(key) is not str:
            check_names(routing_key=key)
            chunk[place] = str.__str__(key), body
    bodies = [body for _, body in chunk]
    if set(map(type, bodies)) != {bytes}:
        raise wrong_body(next(body for body in bodies if type(body) is not bytes))
    longest = max(map(len, bodies))
    if longest > body_max:
        raise too_large(longest, body_max)
    for key in {key for key, _ in chunk}:
        check_names(routing_key=key)


def _parts(chunk: list[Pair], beside: int) -> Iterator[list[Pair]]:
    """Cut messages into batches; each record has `beside` bytes more, of properties."""
    if sum([len(key) + len(body) for key, body in chunk]) + beside * len(chunk) <= MANY_BYTES:
        yield chunk
        return
    part: list[Pair] = []
    size = 0
    for key, body in chunk:
        more = len(key) + len(body) + beside
        if part and size + more > MANY_BYTES:
            yield part
            part, size = [], 0
        part.append((key, body))
        size += more
    yield part
