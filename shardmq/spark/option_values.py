"""Options' values, read from the text that Spark hands over. Each raises ValueError with what is to be written."""

import json
import re
from collections.abc import Callable
from typing import Any, Final

from shardmq.limits import NAME_BYTES_MAX

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

EARLIEST_NUMBER: Final = -2
LATEST_NUMBER: Final = -1
"""What stands for them among the offsets of partitions, as in Kafka's source."""

Offsets = dict[str, dict[int, int]]
"""A number for each partition of each topic: an offset, or a time."""

OFFSET_MAX: Final = 2**63 - 1

PARTITION_IDS: Final = "amq.partition-ids."
"""Begins the names under which the offsets of a stream have its partitions' ids (topics/partition_ids.py). Topics have
no such names. What is copied from there into an option may have them; they are left out."""

_EXAMPLE: Final = '{"orders": {"0": 23, "1": -2}}'
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def text(given: str) -> str:
    """Any text."""
    return given


def flag(given: str) -> bool:
    """True or false."""
    if given.lower() not in ("true", "false"):
        raise ValueError("write true or false")
    return given.lower() == "true"


def integer(least: int, most: int) -> Callable[[str], int]:
    """A whole number between two."""

    def read(given: str) -> int:
        try:
            number = int(given)
        except ValueError:
            raise ValueError("write a whole number") from None
        if not least <= number <= most:
            raise ValueError(f"write {least} to {most}")
        return number

    return read


def choice(*words: str) -> Callable[[str], str]:
    """One of some words."""

    def read(given: str) -> str:
        if given.lower() not in words:
            raise ValueError(f"write {' or '.join(words)}")
        return given.lower()

    return read


def name(given: str) -> str:
    """A name of the broker's."""
    if len(given.encode()) > NAME_BYTES_MAX:
        raise ValueError(f"write at most {NAME_BYTES_MAX} bytes")
    return given


def headers(given: str) -> dict[str, Any]:
    """A JSON object."""
    return _object(given, '{"source": "spark"}')


def topics(given: str) -> tuple[str, ...]:
    """Names between commas."""
    names = tuple(dict.fromkeys(part.strip() for part in given.split(",")))
    if "" in names:
        raise ValueError("write names of topics with commas between them, such as orders,payments")
    return tuple(map(name, names))


def pattern(given: str) -> str:
    """A regular expression."""
    try:
        re.compile(given)
    except re.error as fault:
        raise ValueError(f"write a regular expression ({fault})") from None
    return given


def partitions(given: str) -> dict[str, tuple[int, ...]]:
    """Partitions of topics: {"orders": [0, 1]}."""
    example = '{"orders": [0, 1]}'
    table = _object(given, example)
    for numbers in table.values():
        if not isinstance(numbers, list) or not numbers or not all(type(n) is int and n >= 0 for n in numbers):
            raise ValueError(f"write the numbers of partitions, such as {example}")
    return {topic: tuple(sorted(set(numbers))) for topic, numbers in table.items()}


def starting(given: str) -> str | Offsets:
    """earliest, latest, or an offset for each partition."""
    return given.lower() if given.lower() in (EARLIEST, LATEST) else _numbers(given, EARLIEST_NUMBER)


def ending(given: str) -> str | Offsets:
    """Latest, or an offset for each partition."""
    if given.lower() == EARLIEST:
        raise ValueError(f"write latest, or offsets such as {_EXAMPLE}")
    return LATEST if given.lower() == LATEST else _numbers(given, LATEST_NUMBER)


def times(given: str) -> Offsets:
    """Milliseconds since 1970 for each partition."""
    return _numbers(given, 0)


def duration_ms(given: str) -> int:
    """A time such as 15m, in milliseconds."""
    found = re.fullmatch(r"\s*(\d{1,12})\s*(ms|s|m|h|d)\s*", given)
    if found is None:
        raise ValueError("write a number and one of ms, s, m, h and d, such as 15m")
    return int(found[1]) * _UNITS_MS[found[2]]


def _numbers(given: str, least: int) -> Offsets:
    whole = _object(given, _EXAMPLE)
    table = {topic: of_topic for topic, of_topic in whole.items() if not topic.startswith(PARTITION_IDS)}
    for of_topic in table.values():
        if not isinstance(of_topic, dict) or not all(
            re.fullmatch(r"\d{1,9}", number) and type(value) is int and least <= value <= OFFSET_MAX
            for number, value in of_topic.items()
        ):
            raise ValueError(f"write whole numbers of at least {least} by topic and partition, such as {_EXAMPLE}")
    return {topic: {int(number): value for number, value in of_topic.items()} for topic, of_topic in table.items()}


def _object(given: str, example: str) -> dict[str, Any]:
    try:
        table = json.loads(given)
    except (ValueError, RecursionError) as fault:
        raise ValueError(f"write a JSON object ({fault})") from None
    if not isinstance(table, dict):
        raise ValueError(f"write a JSON object, such as {example}")
    return table
