"""Opening an AMQP connection: mechanisms, tuning, virtual host.

client                          server              state of the server while it waits for what comes next
AMQP 0 0 9 1  ───────────────►                      handshake
              ◄───────────────  connection.start    starting: mechanisms, properties
connection.start-ok ─────────►                      securing: who it is
              ◄───────────────  connection.tune     tuning: limits offered
connection.tune-ok ──────────►                      opening: limits agreed on, no more than those
connection.open ─────────────►                      admitting: the virtual host
              ◄───────────────  connection.open-ok

What goes wrong before it is known who somebody is gets no answer, as in RabbitMQ: the log has the reason, and the
socket is closed after a while, so that nobody tries passwords fast.
"""

import functools
import platform
import struct
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, Protocol

from shardmq.errors import ConnectionFault, ReplyCode, ShardmqError
from shardmq.gateway.authentication.authenticator import Authenticator, Credentials
from shardmq.gateway.events.clients import ConnectionInfo
from shardmq.limits import CHANNELS_MAX, HEARTBEAT_SECONDS, REQUEST_BYTES_MAX
from shardmq.protocol.amqp.encoder import method_frame
from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.events import FRAME_MIN, PROTOCOL_HEADER, Event, MethodReceived
from shardmq.protocol.amqp.methods.connection import (
    ConnectionOpen,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
)
from shardmq.protocol.amqp.methods.fields import Method
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
LIKE_RABBITMQ: Final = "3.10.8"
"""The version of RabbitMQ whose semantics clients find. Some ask: kombu, and so Celery, limits all consumers of a
channel together only where it finds RabbitMQ 3.3 to 3.x, as `basic.qos` with global means that there alone."""

SERVER_PROPERTIES: Final[Table] = {
    "capabilities": CAPABILITIES,
    "cluster_name": "shardmq",
    "copyright": "Copyright (c) the shardmq authors",
    "information": f"shardmq {VERSION}, which answers as RabbitMQ does. Licensed under the Apache License 2.0",
    "platform": f"shardmq {VERSION}, Python {platform.python_version()}",
    "product": "RabbitMQ",
    "shardmq_version": VERSION,
    "version": LIKE_RABBITMQ,
}
LOCALES: Final = b"en_US"

ASKED_CAPABILITIES: Final = frozenset({"authentication_failure_close", "connection.blocked", "consumer_cancel_notify"})
"""What the server does only for clients that say they can."""


class State(Enum):
    """What is expected of the client; names are RabbitMQ's, which texts show."""

    HEADER = "handshake"
    STARTING = "starting"
    SECURING = "securing"
    TUNING = "tuning"
    OPENING = "opening"
    ADMITTING = "admitting"


KNOWN: Final = frozenset({State.OPENING, State.ADMITTING})
"""Where the client has shown who it is."""


class OpeningConnection(ConnectionInfo, Protocol):
    """A connection that is being opened."""

    @property
    def certificate_name(self) -> str | None:
        """The name in the client's certificate; None where it has shown none."""

    def send(self, channel: int, method: Method) -> None:
        """Queue a method for the end of the pass."""

    def send_frame(self, frame: bytes) -> None:
        """Queue a frame for the end of the pass."""

    def introduced(self, properties: Table, capabilities: frozenset[str]) -> None:
        """Note what the client says of itself."""

    def begin_check(self) -> None:
        """Wait for the authenticator; however long that takes is not the client's fault."""

    def end_check(self) -> bool:
        """The authenticator has answered. Returns whether the client is still there."""

    def refuse_login(self, fault: AmqpError) -> None:
        """End a connection whose client is not who it says."""

    def tuned(self, method: ConnectionTuneOk) -> None:
        """Note the limits that were agreed on."""

    def opened(self, credentials: Credentials) -> None:
        """Let the client in."""

    def close(self, fault: ShardmqError) -> None:
        """Tell the client why, and close the connection."""

    def finish(self) -> None:
        """Hang up: what was said is sent, and then nothing more."""


class Handshake:
    """Opens one connection, which drops it then.

    Args:
        connection: that is being opened.
        authenticator: who may come in.
    """

    __slots__ = ("_authenticator", "_connection", "_credentials", "_header", "_state")

    def __init__(self, connection: OpeningConnection, authenticator: Authenticator) -> None:
        self._connection = connection
        self._authenticator = authenticator
        self._state = State.HEADER
        self._header = b""
        self._credentials = Credentials("", None)

    @property
    def is_known(self) -> bool:
        """Whether the client has shown who it is; others are not told what is wrong with what they say."""
        return self._state in KNOWN

    def complain(self, text: str) -> None:
        """Log why the client is not let in; it is not told."""
        self._authenticator.complain(self._connection.peer, self._credentials.user, text)

    def take_header(self, received: bytes) -> bytes:
        """Compare the protocol header, as far as it has come; returns what came behind it."""
        if self._state is not State.HEADER:
            return received
        wanted = PROTOCOL_HEADER
        self._header += received
        if not wanted.startswith(self._header[: len(wanted)]):
            self._connection.send_frame(wanted)
            self._connection.finish()
            return b""
        if len(self._header) < len(wanted):
            return b""
        self._state = State.STARTING
        self._connection.send_frame(
            start_frame(mechanisms(self._connection.certificate_name), self._authenticator.is_broker_ready)
        )
        return self._header[len(wanted) :]

    def take(self, event: Event) -> None:
        """Carry out the next step.

        Raises:
            AmqpError: it is another one than expected, or can not be carried out.
        """
        if event.channel or not isinstance(event, MethodReceived):
            text = f"a frame on channel {event.channel} in connection state {self._state.value}"
            raise AmqpError(ReplyCode.UNEXPECTED_FRAME, text)
        match event.method:
            case ConnectionStartOk() as method if self._state is State.STARTING:
                self._authenticate(method)
            case ConnectionTuneOk() as method if self._state is State.TUNING:
                check_tuned(method)
                self._connection.tuned(method)
                self._state = State.OPENING
            case ConnectionOpen() as method if self._state is State.OPENING:
                self._state = State.ADMITTING
                self._credentials = self._credentials._replace(vhost=method.virtual_host)
                self._connection.begin_check()
                self._authenticator.admit(self._connection.peer, self._credentials, self._admitted)
            case method:
                text = f"unexpected method in connection state {self._state.value}"
                raise AmqpError(ReplyCode.CHANNEL_ERROR, text, method.id)

    def _authenticate(self, method: ConnectionStartOk) -> None:
        connection = self._connection
        connection.introduced(method.client_properties, capabilities_of(method.client_properties))
        self._credentials = Credentials(*login(method, connection.certificate_name))
        connection.auth_mechanism = sys.intern(method.mechanism)
        self._state = State.SECURING
        connection.begin_check()
        self._authenticator.authenticate(connection, self._credentials, self._authenticated)

    def _authenticated(self, fault: ConnectionFault | None) -> None:
        if not self._connection.end_check():
            return
        if fault is not None:
            text = (
                f"Login was refused using authentication mechanism {self._connection.auth_mechanism}. "
                "For details see the broker logfile."
            )
            self._connection.refuse_login(AmqpError(ReplyCode.ACCESS_REFUSED, text))
            return
        self._state = State.TUNING
        self._connection.send(0, tune())

    def _admitted(self, fault: ConnectionFault | None) -> None:
        if not self._connection.end_check():
            return
        if fault is not None:
            self._connection.close(AmqpError(fault.code, fault.text, ConnectionOpen.id))
            return
        self._connection.opened(self._credentials)


@functools.cache
def start_frame(mechanisms: tuple[str, ...], is_ready: bool) -> bytes:
    """The server's first word, as bytes: it is the same for everybody."""
    properties = {**SERVER_PROPERTIES, "ready": is_ready}
    return method_frame(0, ConnectionStart(0, 9, properties, " ".join(mechanisms).encode(), LOCALES))


def capabilities_of(properties: Table) -> frozenset[str]:
    """Which of `ASKED_CAPABILITIES` a client has, by what it says of itself."""
    said = properties.get("capabilities")
    return _shared(
        frozenset([name for name in ASKED_CAPABILITIES if isinstance(said, dict) and said.get(name) is True])
    )


@functools.cache
def _shared(capabilities: frozenset[str]) -> frozenset[str]:
    """One of each set of them that there is, for all connections; eight at most."""
    return capabilities


Claim = tuple[str, str | None]
"""A user's name, and the password; None where there is a certificate instead."""


def plain(answer: ConnectionStartOk, _certificate_name: str | None) -> Claim:
    """Who a client says it is, by PLAIN: NUL, user, NUL, password. Nobody may act for another, hence nothing before.

    Raises:
        AmqpError: that is not what it says.
    """
    parts = answer.response.split(b"\0")
    if len(parts) != 3 or parts[0]:
        raise AmqpError(ReplyCode.SYNTAX_ERROR, "response invalid: PLAIN is NUL, user, NUL, password", answer.id)
    return parts[1].decode(errors="replace"), parts[2].decode(errors="surrogateescape")


def amqplain(answer: ConnectionStartOk, _certificate_name: str | None) -> Claim:
    """Who a client says it is, by AMQPLAIN: a field table without its size.

    Raises:
        AmqpError: that is not what it says.
    """
    try:
        table, _ = decode_table(len(answer.response).to_bytes(4, "big") + answer.response, 0)
    except (IndexError, struct.error, UnicodeDecodeError):
        raise AmqpError(ReplyCode.SYNTAX_ERROR, "AMQPLAIN auth info is no field table", answer.id) from None
    user, password = _text(table.get("LOGIN"), "replace"), _text(table.get("PASSWORD"), "surrogateescape")
    if user is None or password is None:
        text = "AMQPLAIN auth info is missing LOGIN or PASSWORD field"
        raise AmqpError(ReplyCode.SYNTAX_ERROR, text, answer.id)
    return user, password


def external(_answer: ConnectionStartOk, certificate_name: str | None) -> Claim:
    """Who a client is by the certificate it has shown, whatever else it says; "" is nobody's name."""
    return certificate_name or "", None


def _text(value: object, errors: str) -> str | None:
    if isinstance(value, bytes):
        return value.decode(errors=errors)
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
        AmqpError: a mechanism that there is not, or not here; a response that makes no sense.
    """
    name = answer.mechanism
    if name not in mechanisms(certificate_name):
        kind = "invalid" if name in _MECHANISMS else "unknown"
        raise AmqpError(ReplyCode.COMMAND_INVALID, f"{kind} authentication mechanism '{name}'", answer.id)
    return _MECHANISMS[name](answer, certificate_name)


def tune() -> ConnectionTune:
    """The limits offered."""
    return ConnectionTune(CHANNELS_MAX, FRAME_BYTES_MAX, HEARTBEAT_SECONDS)


def check_tuned(answer: ConnectionTuneOk) -> None:
    """Make sure that the limits a client has chosen are among those offered.

    Raises:
        AmqpError: they are not.
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
