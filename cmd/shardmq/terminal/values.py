"""Numbers as people read and write them: bytes, durations, counts, places in a stream."""

from datetime import datetime
from typing import Final

import click

UNITS: Final = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
    "TIB": 1 << 40,
}
"""The units of RabbitMQ's configuration, in capitals; people may write them either way."""


WHERE_HELP: Final = "An offset, earliest, latest, or a time such as 2026-11-23T08:00."
"""What `read_where` reads."""


INTEGER_MAX: Final = 2**63 - 1
"""The largest whole number that is sent to a broker."""


def size(count: int) -> str:
    """Bytes for people, as "1.5 MB"."""
    number = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def whole(number: float) -> str:
    """A rate for people, as "12,345"."""
    return f"{number:,.0f}"


def duration(seconds: float) -> str:
    """Seconds for people, as "3h 12m"."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")]
    while len(parts) > 1 and not parts[0][0]:
        del parts[0]
    return " ".join(f"{value}{unit}" for value, unit in parts[:2])


def counted(number: int, noun: str) -> str:
    """A number and its noun, as "1 queue" or "2,000 queues"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def singular(noun: str) -> str:
    """One of what a noun in the plural names: "policy" of "policies", "match" of "matches", "queue" of "queues"."""
    for ending, one in (("ies", "y"), ("ches", "ch"), ("s", "")):
        if noun.endswith(ending):
            return noun.removesuffix(ending) + one
    return noun


def read_bytes(text: str) -> int:
    """Read bytes, as "512MiB", "1.5 GB" or "1000000".

    Raises:
        BadParameter: it is no amount.
    """
    number = read_number(text)
    if number > INTEGER_MAX:
        raise click.BadParameter(f"'{text}' is more than there can be; write it as 512MiB, 1.5GB or 1000000")
    return int(number)


def is_sendable(digits: str) -> bool:
    """Whether a whole number, in decimal digits, is small enough to be sent."""
    return len(digits) <= len(str(INTEGER_MAX)) and int(digits) <= INTEGER_MAX


def read_number(text: str) -> float:
    """Read a number with or without a unit of bytes, as "0.5" or "512MiB".

    Raises:
        BadParameter: it is none.
    """
    text = text.strip()
    unit = text.lstrip("0123456789.")
    try:
        return float(text.removesuffix(unit)) * UNITS[unit.strip().upper()]
    except (ValueError, KeyError):
        raise click.BadParameter(f"'{text}' is no number of bytes; write it as 512MiB, 1.5GB or 1000000") from None


def read_where(text: str, option: str) -> int | str | datetime:
    """Read a place in a stream: an offset, "earliest", "latest" or a time.

    Raises:
        BadParameter: it is none of them.
    """
    if text in ("earliest", "latest"):
        return text
    if text.isdecimal() and is_sendable(text):
        return int(text)
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise click.BadParameter(
            f"'{text}' is neither an offset, earliest, latest, nor a time such as 2026-11-23T08:00", param_hint=option
        ) from None
