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

from typing import Final

from shardmq.errors import ReplyCode
from shardmq.gateway.amqp.faults import AmqpFault
from shardmq.gateway.amqp.frames import FRAME_MIN
from shardmq.gateway.amqp.methods import ConnectionStart, ConnectionStartOk, ConnectionTune, ConnectionTuneOk
from shardmq.gateway.amqp.tables import Table, decode_table
from shardmq.gateway.logins import Login
from shardmq.limits import CHANNELS_MAX, HEARTBEAT_SECONDS, REQUEST_BYTES_MAX
from shardmq.version import VERSION

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"

FRAME_BYTES_MAX: Final = REQUEST_BYTES_MAX
"""The largest frame offered: RabbitMQ's default."""

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
    "product": "shardmq",
    "version": VERSION,
    "platform": "Python",
    "copyright": "The shardmq authors",
    "information": "Licensed under the Apache License 2.0",
}
LOCALES: Final = b"en_US"


def start(mechanisms: bytes) -> ConnectionStart:
    """The server's first word."""
    return ConnectionStart(0, 9, SERVER_PROPERTIES, mechanisms, LOCALES)


def plain(answer: ConnectionStartOk) -> Login:
    """Who a client says it is, by PLAIN: \\0 user \\0 password.

    Raises:
        AmqpFault: that is not what it says.
    """
    parts = answer.response.split(b"\0")
    if len(parts) != 3:
        raise AmqpFault(ReplyCode.SYNTAX_ERROR, "the response of PLAIN is not authorization, user, password", answer.id)
    return Login(parts[1].decode(errors="replace"), parts[2].decode(errors="surrogateescape"))


def amqplain(answer: ConnectionStartOk) -> Login:
    """The same, by AMQPLAIN: a field table without its size.

    Raises:
        AmqpFault: that is not what it says.
    """
    table, _ = decode_table(len(answer.response).to_bytes(4, "big") + answer.response, 0)
    user, password = table.get("LOGIN"), table.get("PASSWORD")
    if not isinstance(user, str) or not isinstance(password, str):
        raise AmqpFault(ReplyCode.SYNTAX_ERROR, "the response of AMQPLAIN has no LOGIN and PASSWORD", answer.id)
    return Login(user, password)


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
        ("channel_max", answer.channel_max, 1, CHANNELS_MAX),
    ):
        if chosen == 0 or chosen > most:
            shown = "0 (no limit)" if chosen == 0 else str(chosen)
            text = f"negotiated {name} = {shown} is higher than the maximum allowed value ({most})"
            raise AmqpFault(ReplyCode.NOT_ALLOWED, text, answer.id)
        if chosen < least:
            text = f"negotiated {name} = {chosen} is lower than the minimum allowed value ({least})"
            raise AmqpFault(ReplyCode.NOT_ALLOWED, text, answer.id)
