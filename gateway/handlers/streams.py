"""What the consumers of streams ask for, in the arguments that RabbitMQ has for it."""

import datetime
from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from shardmq.bus.messages.streams import Reading
from shardmq.errors import PreconditionFailed
from shardmq.topology.arguments import Check, age_ms, boolean, check_arguments

FILTER: Final = "x-stream-filter"
MATCH_UNFILTERED: Final = "x-stream-match-unfiltered"
OFFSET: Final = "x-stream-offset"
"""Arguments of a stream's consumer: which messages it wants, and where it begins."""

PARTITION: Final = "x-stream-partition"
"""The argument that says which partition of a topic a consumer reads."""

EXACT: Final = "x-stream-exact"
"""The argument by which an offset that is not kept is refused, and not taken as the nearest one that is."""

READER_ARGUMENTS: Final = frozenset({EXACT, FILTER, MATCH_UNFILTERED, OFFSET, PARTITION})
"""Consumers of other queues may have them, too, as in RabbitMQ; there they say nothing."""

WORDS: Final = ("first", "last", "next")


def reading_of(arguments: Mapping[str, Any], now_ms: int) -> Reading:
    """What a stream's consumer reads, as its arguments say.

    Args:
        arguments: as they came.
        now_ms: the time by the clock that messages are stamped by, milliseconds since 1970: ages count from it.

    Raises:
        PreconditionFailed: they do not say where to begin in a way that is known.
    """
    tags = arguments.get(FILTER)
    if isinstance(tags, str):
        tags = [tags]
    elif isinstance(tags, list):
        tags = [tag for tag in tags if isinstance(tag, str)]
    else:
        tags = None
    begin, number = _begin(arguments.get(OFFSET, "next"), now_ms)
    has_untagged = tags is not None and arguments.get(MATCH_UNFILTERED) is True
    return Reading(begin, number, tags, has_untagged, arguments.get(EXACT) is True)


def member_reading(thing: str, arguments: Mapping[str, Any], now_ms: int) -> Reading:
    """What a member of a group reads, as its arguments say. What RabbitMQ's streams take as they like is refused here.

    A group keeps its place: one that began elsewhere than it was told, or with other tags, would stay so unnoticed.

    Args:
        thing: the consumer, for the error.
        arguments: as they came.
        now_ms: as of `reading_of`.

    Raises:
        PreconditionFailed: an argument has no meaning.
    """
    check_arguments(thing, {name: arguments[name] for name in READER_ARGUMENTS if name in arguments}, _OF_MEMBERS)
    return replace(reading_of(arguments, now_ms), is_exact=True)


def _tags(value: Any) -> str | None:
    is_tag = isinstance(value, str)
    is_list = isinstance(value, list) and all(isinstance(tag, str) for tag in value)
    return None if is_tag or is_list else "a string, or a list of strings"


def _place(value: Any) -> str | None:
    return "an offset from 0 on" if type(value) is int and value < 0 else None


_OF_MEMBERS: Final[Mapping[str, Check]] = {
    EXACT: boolean,
    FILTER: _tags,
    MATCH_UNFILTERED: boolean,
    OFFSET: _place,
}
"""The arguments of members that say what they read; a member is given its partitions."""


def _begin(value: Any, now_ms: int) -> tuple[str, int]:
    """Where a reader begins: as x-stream-offset says it, by RabbitMQ's rules (parse_offset_arg)."""
    if isinstance(value, str) and value in WORDS:
        return value, 0
    if isinstance(value, str) and (ago_ms := age_ms(value)) is not None:
        return "time", max(0, now_ms - ago_ms)
    if isinstance(value, datetime.datetime):
        return "time", max(0, round(value.timestamp() * 1000))
    if type(value) is int:
        return "offset", max(0, value)
    raise PreconditionFailed(
        f"invalid arg '{OFFSET}': {value!r}; expected is first, last, next, an offset, a timestamp or an age such as "
        "'1h'"
    )
