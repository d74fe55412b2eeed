"""What options' values mean: bytes with units, shares of the machine's memory, NAME=VALUE. As callbacks for click."""

import json
from typing import Any, Final

import click

from shardmq.limits import MESSAGE_BYTES_HIGHEST


def size(count: int) -> str:
    """Bytes for people, as "1.5 MB"."""
    number = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def duration(seconds: float) -> str:
    """Seconds for people, as "3h 12m"."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")]
    while len(parts) > 1 and not parts[0][0]:
        del parts[0]
    return " ".join(f"{value}{unit}" for value, unit in parts[:2])


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
"""As RabbitMQ's configuration has them; letters of either case."""


def read_bytes(text: str) -> int:
    """Bytes, as "512MiB", "1.5 GB" or "1000000".

    Raises:
        BadParameter: it is no amount.
    """
    text = text.strip()
    unit = text.lstrip("0123456789.")
    try:
        return int(float(text.removesuffix(unit)) * UNITS[unit.strip().upper()])
    except (ValueError, KeyError):
        raise click.BadParameter(f"'{text}' is no number of bytes; write it as 512MiB, 1.5GB or 1000000") from None


def byte_count(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """An option's bytes; None where it was not given."""
    return None if value is None else read_bytes(value)


def message_size(_context: click.Context, _option: click.Parameter, value: str) -> int:
    """An option's bytes of a message."""
    size = read_bytes(value)
    if not 1 <= size <= MESSAGE_BYTES_HIGHEST:
        most = MESSAGE_BYTES_HIGHEST >> 20
        raise click.BadParameter(f"'{value}' is not from 1 byte to {most}MiB; write it as 16MiB or 128MiB")
    return size


def memory_amount(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """An option's share of the machine's memory, as 0.4, or bytes; always as bytes. None where it was not given."""
    if value is None:
        return None
    from shardmq.runtime.memory import machine_bytes

    try:
        share = float(value)
    except ValueError:
        share = 0.0
    amount = int(share * machine_bytes()) if 0 < share <= 1 else read_bytes(value)
    if not amount:
        raise click.BadParameter(f"'{value}' would block publishers always; write a share as 0.4, or bytes as 2GiB")
    return amount


def named_values(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    """NAME=VALUE, any number of times; a value is JSON where it is valid JSON, else a string."""
    found: dict[str, Any] = {}
    for name, text in _pairs(values):
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


def named_texts(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """NAME=TEXT, any number of times."""
    return dict(_pairs(values))


def named_limits(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, int | None]:
    """NAME=NUMBER, any number of times; NAME=none is None."""
    found: dict[str, int | None] = {}
    for name, text in _pairs(values):
        if text != "none" and not text.isdecimal():
            raise click.BadParameter(f"'{name}={text}' is not of the form {name}=NUMBER or {name}=none")
        found[name] = None if text == "none" else int(text)
    return found


def _pairs(values: tuple[str, ...]) -> list[tuple[str, str]]:
    pairs = []
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"'{value}' is not of the form NAME=VALUE")
        pairs.append((name, text))
    return pairs
