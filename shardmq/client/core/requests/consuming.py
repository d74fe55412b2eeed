"""What begins and changes consumers, and calls that wait for an answer, as values."""

import datetime
import secrets
from typing import Any, Final, cast

from msgspec.structs import replace

from shardmq.client.api.defaults import PREFETCH, PULL_COUNT
from shardmq.client.api.topics import GroupOptions, Start, place_of, tag_list
from shardmq.client.core.batching import TRANSIENT_MODE
from shardmq.client.core.requests.offsets import PARTITION_MAX
from shardmq.client.core.requests.request import Arguments, Request, nothing
from shardmq.client.core.validation import check_name, check_names, check_number, check_prefetch, check_wait, table
from shardmq.limits import DELAY_MS_MAX, PREFETCH_MAX
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


_GROUP_ARGUMENTS: Final = {
    "timeout_ms": "x-consumer-timeout",
    "delivery_limit": "x-delivery-limit",
    "dead_letter_exchange": "x-dead-letter-exchange",
    "dead_letter_routing_key": "x-dead-letter-routing-key",
}
"""Options of group consumers that are arguments as they are."""


def reading_arguments(start: Start, tags: str | list[str] | None, has_untagged: bool) -> dict[str, Any]:
    """The arguments of a consumer that say where it reads, and which messages."""
    begin, _ = place_of(start)
    arguments: dict[str, Any] = {"x-stream-offset": begin if isinstance(start, str) else start}
    if isinstance(start, datetime.datetime):
        arguments["x-stream-offset"] = start.astimezone(datetime.UTC)
    wanted = tag_list(tags)
    if wanted is not None:
        arguments["x-stream-filter"] = wanted
        arguments["x-stream-match-unfiltered"] = has_untagged
    return arguments


def group_consume(topic: str, group: str, options: GroupOptions) -> BasicConsume:
    """Begin a consumer of a group; its inbox is handed to `ConnectionCore.consume`."""
    check_name("topic", topic)
    check_name("group", group)
    if strange := options.keys() - GroupOptions.__annotations__.keys():
        raise TypeError(f"a group consumer has no option {', '.join(sorted(strange))}")
    check_number("pull", options.get("pull", PULL_COUNT), 1, PREFETCH_MAX)
    check_wait("inactivity_timeout", options.get("inactivity_timeout"))
    start, tags = options.get("start", "latest"), options.get("tags")
    arguments = reading_arguments(start, tags, options.get("has_untagged", False))
    arguments["x-group"] = group
    arguments["x-group-type"] = "shared" if options.get("shared", False) else "ordered"
    for option, name in _GROUP_ARGUMENTS.items():
        if (value := cast(dict[str, Any], options).get(option)) is not None:
            arguments[name] = value
    return basic_consume(topic, "", options.get("prefetch", PREFETCH), False, False, arguments)


def reader_consume(topic: str, partition: int, start: Start, tags: str | list[str] | None) -> BasicConsume:
    """Begin a reader of a partition; its inbox is handed to `ConnectionCore.consume`."""
    check_name("topic", topic)
    check_number("a partition", partition, 0, PARTITION_MAX)
    arguments = reading_arguments(start, tags, False)
    arguments["x-stream-partition"] = partition
    arguments["x-stream-exact"] = True
    return basic_consume(topic, "", 0, True, False, arguments)
