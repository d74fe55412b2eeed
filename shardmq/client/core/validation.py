"""Checks of what a program hands in, made before it is sent: a mistake must not cost it the connection."""

import functools
import hashlib
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from shardmq.errors import ContentTooLarge, InvalidRequest, PreconditionFailed
from shardmq.limits import DELAY_MS_MAX, FRAMED_PRODUCERS, NAME_BYTES_MAX, PREFETCH_MAX, REQUEST_BYTES_MAX
from shardmq.protocol.native.frames import HEADER
from shardmq.protocol.native.operations.codec import LARGER_FRAMES, TYPES, encode
from shardmq.protocol.native.operations.fields import ClientRequest, Operation

REQUEST_ROOM: Final = 64
"""Bytes by which a request may grow until it is sent: its number, and where a consumer reads on after a loss."""

TAG_MAX: Final = 2**63 - 1
"""The wire's integers end there."""


def check_names(**names: str) -> None:
    """Raise for what cannot be a name or routing key on the wire.

    Raises:
        TypeError: it is no str.
        InvalidRequest: it is over 255 bytes of UTF-8, or has no UTF-8.
    """
    for what, name in names.items():
        if not isinstance(name, str):
            raise TypeError(f"{what} is a str, not {type(name).__name__}")
        if name.isascii() and len(name) <= NAME_BYTES_MAX:  # nearly every one, and to encode it takes longer
            continue
        try:
            size = len(name.encode())
        except UnicodeEncodeError as fault:
            raise InvalidRequest(f"{what} {name!r} cannot be written as UTF-8: {fault.reason}") from fault
        if size > NAME_BYTES_MAX:
            raise InvalidRequest(f"{what} '{name[:32]}…' has {size} bytes; the limit is {NAME_BYTES_MAX}")


def check_name(what: str, name: str) -> None:
    """Raise for what cannot be a name on the wire, or is empty.

    Raises:
        TypeError: it is no str.
        InvalidRequest: it is empty, over 255 bytes of UTF-8, or has no UTF-8.
    """
    check_names(**{what: name})
    if not name:
        raise InvalidRequest(f"a {what}'s name is not empty")


def check_number(what: str, number: int, least: int, most: int) -> None:
    """Raise for a number that the wire cannot carry: TypeError for no int, InvalidRequest out of range."""
    if type(number) is not int:
        raise TypeError(f"{what} is an int, not {number!r}")
    if not least <= number <= most:
        raise InvalidRequest(f"{what} is {least} to {most}, not {number}")


def pairs(what: str, given: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """A copy of a list of two ints each, whatever they travelled as.

    Raises:
        TypeError: it is none.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"{what} is a list of pairs of ints, not {given!r}")
    copied = []
    for pair in given:
        if not isinstance(pair, tuple | list) or [type(part) for part in pair] != [int, int]:
            raise TypeError(f"{what} is a list of pairs of ints; {pair!r} is none")
        first, second = pair
        copied.append((first, second))
    return copied


@functools.cache
def _field_types(kind: type[Operation]) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.type) for field in msgspec.structs.fields(kind))


def check_fields(operation: Operation) -> None:
    """Raise TypeError for a field that is not of its type: sent, it would end the connection.

    Half a microsecond a field: for requests, not for messages.
    """
    for name, wanted in _field_types(type(operation)):
        value = getattr(operation, name)
        try:
            msgspec.convert(value, wanted)
        except msgspec.ValidationError as fault:
            raise TypeError(f"{name} cannot be {value!r}: {fault}") from fault


def unwritable(what: str, fault: UnicodeEncodeError | OverflowError) -> InvalidRequest:
    """Return the error for what cannot be encoded.

    Args:
        what: it in words.
        fault: of the encoder.
    """
    if isinstance(fault, OverflowError):
        return InvalidRequest(f"{what}: it has a whole number of more than 64 bits; give a smaller one")
    return InvalidRequest(f"{what}: {fault.object!r} cannot be written as UTF-8: {fault.reason}")


def check_size(what: str, operation: ClientRequest) -> None:
    """Raise for a request that is larger than the broker takes: sent, it would end the connection.

    Args:
        what: the request in words, for the error.
        operation: it.

    Raises:
        ContentTooLarge: it is.
        InvalidRequest: it has text without UTF-8, or a whole number of more than 64 bits.
    """
    try:
        size = len(encode(operation)) - HEADER.size + REQUEST_ROOM
    except (UnicodeEncodeError, OverflowError) as fault:
        raise unwritable(what, fault) from fault
    limit = LARGER_FRAMES.get(TYPES[type(operation)], REQUEST_BYTES_MAX)
    if size > limit:
        raise ContentTooLarge(
            f"{what} takes {size} bytes; the limit of such a request is {limit}: ask for less at once"
        )


def table(what: str, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy of a mapping that was handed in as arguments or limits.

    Raises:
        TypeError: it is no mapping with names for keys.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise TypeError(f"{what}: give a dict of names to values, not {given!r}")
    return dict(given)


def words(what: str, given: Iterable[str]) -> list[str]:
    """A copy of a list of words.

    Raises:
        TypeError: it is one str, or no iterable.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{what} are a list of str, not {given!r}")
    return list(given)


def check_timeout(timeout: float) -> None:
    """Raise for what are no seconds to wait: TypeError for no number, InvalidRequest for none over 0."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"timeout is a number of seconds, not {type(timeout).__name__}")
    if not timeout > 0:
        raise InvalidRequest(f"a timeout is over 0 seconds, not {timeout}")


def check_wait(what: str, seconds: float | None) -> None:
    """Raise for what is no time that may be waited for; none is left where it is 0 or less, and None is for ever.

    Raises:
        TypeError: it is no number.
        InvalidRequest: it is not a number (NaN), which no clock ever reaches.
    """
    if seconds is None:
        return
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"{what} is a number of seconds, not {type(seconds).__name__}")
    if math.isnan(seconds):
        raise InvalidRequest(f"{what} is a number of seconds, not {seconds}")


def check_count(what: str, count: int | None) -> None:
    """Raise for what is no number of things, or None: TypeError for no int, InvalidRequest for less than 1."""
    if count is None:
        return
    if type(count) is not int:
        raise TypeError(f"{what} is an int, not {count!r}")
    if count < 1:
        raise InvalidRequest(f"{what} is at least 1, not {count}")


def check_prefetch(prefetch: int) -> None:
    """Raise for a prefetch that the wire cannot carry: TypeError for no int, InvalidRequest out of range."""
    if type(prefetch) is not int:
        raise TypeError(f"a prefetch is an int, not {type(prefetch).__name__}")
    if not 0 <= prefetch <= PREFETCH_MAX:
        raise InvalidRequest(f"a prefetch is 0 (no limit) to {PREFETCH_MAX} messages, not {prefetch}")


def check_delay(delay_ms: int) -> None:
    """Raise for a delay that the wire cannot carry: TypeError for no int, InvalidRequest out of range."""
    if type(delay_ms) is not int:
        raise TypeError(f"delay_ms is an int, milliseconds, not {type(delay_ms).__name__}")
    if not 0 <= delay_ms <= DELAY_MS_MAX:
        raise InvalidRequest(f"a delay is 0 to {DELAY_MS_MAX} ms, not {delay_ms}")


def check_nack(requeue: bool, delay_ms: int) -> None:
    """Raise for a nack that the broker does not take.

    Raises:
        TypeError: the delay is no int.
        InvalidRequest: it is out of range, or what is rejected is to wait.
    """
    check_delay(delay_ms)
    if delay_ms and not requeue:
        raise InvalidRequest(
            f"a delay of {delay_ms} ms without requeue: what is rejected does not return; leave out one of them"
        )


def check_tag(delivery_tag: int, multiple: bool) -> None:
    """Raise for a delivery tag that no message can have: TypeError for no int, PreconditionFailed out of range."""
    if type(delivery_tag) is not int:
        raise TypeError(f"a delivery tag is an int, not {type(delivery_tag).__name__}")
    if not (0 if multiple else 1) <= delivery_tag <= TAG_MAX:
        raise PreconditionFailed(
            f"unknown delivery tag {delivery_tag}; hand in a message's own, or 0 with multiple for all there are"
        )


def consumer_arguments(
    arguments: Mapping[str, Any] | None, priority: int | None, timeout_ms: int | None
) -> dict[str, Any]:
    """A consumer's arguments, those with a name of their own among them."""
    merged = table("arguments", arguments)
    if priority is not None:
        merged["x-priority"] = priority
    if timeout_ms is not None:
        merged["x-consumer-timeout"] = timeout_ms
    return merged


def producer_number(producer: str | int | None) -> int:
    """A producer's number on the wire: of a name its hash, 0 for none.

    Raises:
        TypeError: it is neither name nor number.
        InvalidRequest: the number is not 1 to 2^62 - 1, or the name is "".
    """
    if producer is None:
        return 0
    if isinstance(producer, str):
        if not producer:
            raise InvalidRequest("a producer's name is not empty")
        return int.from_bytes(hashlib.blake2b(producer.encode(), digest_size=8).digest(), "big") >> 2 or 1
    if type(producer) is not int:
        raise TypeError(f"a producer is a name or a number, not {type(producer).__name__}")
    if not 1 <= producer < FRAMED_PRODUCERS:
        raise InvalidRequest(f"a producer's number is 1 to 2^62 - 1, not {producer}")
    return producer


def check_sequence(producer: int, sequence: int | None) -> None:
    """Raise for a message's number that is none, or that its publisher has no use for.

    Raises:
        TypeError: the number is no int.
        InvalidRequest: it is out of range; or a named producer's message has none, or another's has one.
    """
    if producer and sequence is None:
        raise InvalidRequest("this publisher has a producer's name: publish with sequence=…, the message's number")
    if sequence is not None and not producer:
        raise InvalidRequest("a sequence means something only to publishers made with producer=…")
    if sequence is None:
        return
    if type(sequence) is not int:
        raise TypeError(f"a sequence is an int, not {type(sequence).__name__}")
    if not 0 <= sequence < 2**63:
        raise InvalidRequest(f"a sequence is 0 to 2^63 - 1, not {sequence}")


_HEARTBEAT_MAX: Final = 65_535


def check_heartbeat(heartbeat: int) -> None:
    """Raise for a heartbeat that the wire cannot carry: TypeError for no int, InvalidRequest out of range."""
    if type(heartbeat) is not int:
        raise TypeError(f"a heartbeat is an int, seconds, not {type(heartbeat).__name__}")
    if not 0 <= heartbeat <= _HEARTBEAT_MAX:
        raise InvalidRequest(f"a heartbeat is 0 (none) to {_HEARTBEAT_MAX} seconds, not {heartbeat}")
