"""Checks of what a program hands in, made before it is sent: a mistake must not cost it the connection."""

from shardmq.errors import InvalidRequest
from shardmq.limits import NAME_BYTES_MAX, PREFETCH_MAX


def check_names(**names: str) -> None:
    """Raise for what cannot be a name or routing key on the wire.

    Raises:
        TypeError: it is no str.
        InvalidRequest: it is over 255 bytes of UTF-8, or has no UTF-8.
    """
    for what, name in names.items():
        if not isinstance(name, str):
            raise TypeError(f"{what} is a str, not {type(name).__name__}")
        try:
            size = len(name.encode())
        except UnicodeEncodeError as fault:
            raise InvalidRequest(f"{what} {name!r} cannot be written as UTF-8: {fault.reason}") from fault
        if size > NAME_BYTES_MAX:
            raise InvalidRequest(f"{what} '{name[:32]}…' has {size} bytes; the limit is {NAME_BYTES_MAX}")


def check_prefetch(prefetch: int) -> None:
    """Raise InvalidRequest for a prefetch that the wire cannot carry."""
    if not 0 <= prefetch <= PREFETCH_MAX:
        raise InvalidRequest(f"a prefetch is 0 (no limit) to {PREFETCH_MAX} messages, not {prefetch}")
