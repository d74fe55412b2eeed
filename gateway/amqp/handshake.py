"""What is agreed on before a connection is open: how a client shows who it is, limits, what either side is able to do.

client                          server
AMQP 0 0 9 1  ───────────────►
              ◄───────────────  connection.start        mechanisms, properties
connection.start-ok ─────────►                          who it is
              ◄───────────────  connection.tune         limits offered
connection.tune-ok ──────────►                          limits agreed on: no more than those
connection.open ─────────────►                          the virtual host
              ◄───────────────  connection.open-ok
"""

import functools
import platform
import struct
from collections.abc import Callable, Mapping
from typing import Final

from shardmq.errors import ReplyCode
from shardmq.limits import CHANNELS_MAX, HEARTBEAT_SECONDS, REQUEST_BYTES_MAX
from shardmq.protocol.amqp.encoder import method_frame
from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.events import FRAME_MIN
from shardmq.protocol.amqp.methods.connection import (
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
)
from shardmq.protocol.amqp.tables import Table, decode_table
from shardmq.version import VERSION

FRAME_BYTES_MAX: Final = REQUEST_BYTES_MAX
"""The largest frame offered: RabbitMQ's default."""

CHANNELS_MIN: Final = 1
"""The least of channels that makes sense."""

CAPABILITIES: Final[Table] = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
}
SERVER_PROPERTIES: Final[Table] = {
    "capabilities": CAPABILITIES,
    "cluster_name": "shardmq",
    "copyright": "Copyright (c) the shardmq authors",
    "information": "Licensed under the Apache License 2.0",
    "platform": f"Python {platform.python_version()}",
    "product": "shardmq",
    "version": VERSION,
}
LOCALES: Final = b"en_US"

ASKED_CAPABILITIES: Final = frozenset({"authentication_failure_close", "connection.blocked", "consumer_cancel_notify"})
"""What the server does only for clients that say they can."""

_capabilities: Final[dict[frozenset[str], frozenset[str]]] = {}
"""One of each set of them that there is, for all connections; eight at most."""


@functools.cache
def start_frame(mechanisms: tuple[str, ...]) -> bytes:
    """The server's first word, as bytes: it is the same for everybody."""
    return method_frame(0, ConnectionStart(0, 9, SERVER_PROPERTIES, " ".join(mechanisms).encode(), LOCALES))


def capabilities_of(properties: Table) -> frozenset[str]:
    """Which of `ASKED_CAPABILITIES` a client has, by what it says of itself."""
    said = properties.get("capabilities")
    has = frozenset([name for name in ASKED_CAPABILITIES if isinstance(said, dict) and said.get(name) is True])
    return _capabilities.setdefault(has, has)


# --- who it is --------------------------------------------------------------------------------------------------------

Claim = tuple[str, str | None]
"""A user's name, and the password; None where there is a certificate instead."""


def plain(answer: ConnectionStartOk, _certificate_name: str | None) -> Claim:
    """Who a client says it is, by PLAIN: \\0 user \\0 password. Nobody may act for another, hence nothing before.

    Raises:
        AmqpFault: that is not what it says.
    """
    parts = answer.response.split(b"\0")
    if len(parts) != 3 or parts[0]:
        raise AmqpError(ReplyCode.SYNTAX_ERROR, "response invalid: PLAIN is NUL, user, NUL, password", answer.id)
    return parts[1].decode(errors="replace"), parts[2].decode(errors="surrogateescape")


def amqplain(answer: ConnectionStartOk, _certificate_name: str | None) -> Claim:
    """The same, by AMQPLAIN: a field table without its size.

    Raises:
        AmqpFault: that is not what it says.
    """
    try:
        table, _ = decode_table(len(answer.response).to_bytes(4, "big") + answer.response, 0)
    except (IndexError, struct.error, UnicodeDecodeError):
        raise AmqpError(ReplyCode.SYNTAX_ERROR, "AMQPLAIN auth info is no field table", answer.id) from None
    user, password = _text(table.get("LOGIN")), _text(table.get("PASSWORD"))
    if user is None or password is None:
        text = "AMQPLAIN auth info is missing LOGIN or PASSWORD field"
        raise AmqpError(ReplyCode.SYNTAX_ERROR, text, answer.id)
    return user, password


def external(_answer: ConnectionStartOk, certificate_name: str | None) -> Claim:
    """By the certificate it has shown, whatever else it says; "" is nobody's name."""
    return certificate_name or "", None


def _text(value: object) -> str | None:
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    return value if isinstance(value, str) else None


_MECHANISMS: Final[Mapping[str, Callable[[ConnectionStartOk, str | None], Claim]]] = {
    "PLAIN": plain,
    "AMQPLAIN": amqplain,
    "EXTERNAL": external,
}


def mechanisms(certificate_name: str | None) -> tuple[str, ...]:
    """The ways to log in, for a client whose certificate has that name; None where it has shown none."""
    return tuple(name for name in _MECHANISMS if name != "EXTERNAL" or certificate_name is not None)


def login(answer: ConnectionStartOk, certificate_name: str | None) -> Claim:
    """Who a client says it is; whether it is true is for others to find out.

    Raises:
        AmqpFault: a mechanism that there is not, or not here; a response that makes no sense.
    """
    name = answer.mechanism
    if name not in mechanisms(certificate_name):
        kind = "invalid" if name in _MECHANISMS else "unknown"
        raise AmqpError(ReplyCode.COMMAND_INVALID, f"{kind} authentication mechanism '{name}'", answer.id)
    return _MECHANISMS[name](answer, certificate_name)


# --- limits -----------------------------------------------------------------------------------------------------------


def tune() -> ConnectionTune:
    """The limits offered."""
    return ConnectionTune(CHANNELS_MAX, FRAME_BYTES_MAX, HEARTBEAT_SECONDS)


def check_tuned(answer: ConnectionTuneOk) -> None:
    """Make sure that the limits a client has chosen are among those offered.

    Raises:
        AmqpFault: they are not.
    """
    for name, chosen, least, most in (
        ("frame_max", answer.frame_max, FRAME_MIN, FRAME_BYTES_MAX),
        ("channel_max", answer.channel_max, CHANNELS_MIN, CHANNELS_MAX),
    ):
        if chosen == 0 or chosen > most:
            shown = "0 (no limit)" if name == "channel_max" and chosen == 0 else str(chosen)
            text = f"negotiated {name} = {shown} is higher than the maximum allowed value ({most})"
            raise AmqpError(ReplyCode.NOT_ALLOWED, text, ConnectionTune.id)
        if chosen < least:
            text = f"negotiated {name} = {chosen} is lower than the minimum allowed value ({least})"
            raise AmqpError(ReplyCode.NOT_ALLOWED, text, ConnectionTune.id)
