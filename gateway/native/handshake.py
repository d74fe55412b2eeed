"""Opening a native connection: authentication, limits, server properties.

accepted ──ConnectionOpen──► authenticating ──Ok──► open
    └─────── anything else, or 10 s ─────► ConnectionClose
"""

from collections.abc import Mapping
from typing import Any, Protocol

from shardmq.errors import ConnectionFault, ProtocolError, ReplyCode, ShardmqError
from shardmq.gateway.authentication.authenticator import HTTP, NATIVE, Authenticator, Credentials
from shardmq.gateway.events.clients import ConnectionInfo
from shardmq.limits import CHANNELS_MAX, frame_bytes_max
from shardmq.protocol.native.operations.administration import DefinitionsImport
from shardmq.protocol.native.operations.basic import BasicPublish
from shardmq.protocol.native.operations.codec import LARGER_FRAMES, TYPES
from shardmq.protocol.native.operations.connection import PROTOCOL_VERSION, ConnectionOpen
from shardmq.version import VERSION


class OpeningConnection(ConnectionInfo, Protocol):
    """A connection that is being opened."""

    @property
    def certificate_name(self) -> str | None:
        """The name in the client's certificate; None where it has shown none."""

    def begin_check(self) -> None:
        """Wait for the authenticator; however long that takes is not the client's fault."""

    def end_check(self) -> bool:
        """The authenticator has answered. Returns whether the client is still there."""

    def opened(self, operation: ConnectionOpen, user: str) -> None:
        """Let the client in, as that user."""

    def close(self, fault: ShardmqError) -> None:
        """Tell the client why, and close the connection."""


class Handshake:
    """Opens one connection, which drops it then.

    Args:
        connection: that is being opened.
        authenticator: who may come in.
    """

    __slots__ = ("_authenticator", "_connection", "_has_shown", "_is_checking")

    def __init__(self, connection: OpeningConnection, authenticator: Authenticator) -> None:
        self._connection = connection
        self._authenticator = authenticator
        self._is_checking = self._has_shown = False

    def is_asked_for_a_sign(self) -> bool:
        """Whether a heartbeat before connection.open is the first: it is answered, so that who comes knows we live."""
        is_first, self._has_shown = not self._has_shown, True
        return is_first

    def take(self, operation: ConnectionOpen) -> None:
        """Find out whether the client may come in.

        Raises:
            ProtocolError: it asks twice, or speaks another version.
        """
        if self._is_checking:
            raise ProtocolError("the connection is open already", ReplyCode.COMMAND_INVALID)
        if operation.version != PROTOCOL_VERSION:
            raise ProtocolError(
                f"protocol version {operation.version}; this broker speaks {PROTOCOL_VERSION}",
                ReplyCode.NOT_IMPLEMENTED,
            )
        self._is_checking = True
        connection = self._connection
        connection.begin_check()
        credentials = Credentials(operation.user, operation.password, operation.vhost)
        if not operation.user and not operation.password:  # who its certificate says; "" is nobody's name
            credentials = Credentials(connection.certificate_name or "", None, operation.vhost)
        connection.auth_mechanism = "EXTERNAL" if credentials.password is None else "PLAIN"

        def checked(fault: ConnectionFault | None) -> None:
            if not connection.end_check():
                return
            if fault is None:
                connection.opened(operation, credentials.user)
            else:
                connection.close(fault)

        protocol = HTTP if serves_http(operation.client) else NATIVE
        self._authenticator.let_in(connection, credentials, checked, protocol, growth_of(operation.client) or 0)


def server_properties(heartbeat: int, message_bytes_max: int, growth: int, broker: str) -> dict[str, Any]:
    """What the client is told of the broker and of its limits, once it is let in."""
    return {
        "product": "shardmq",
        "version": VERSION,
        "protocol": PROTOCOL_VERSION,
        "heartbeat": heartbeat,
        "frame_max": frame_bytes_max(message_bytes_max),
        "channel_max": CHANNELS_MAX,
        "message_max": message_bytes_max,
        "record_keys": True,
        "put_back": True,
        "growth": growth,
        "partition_offsets": True,
        "broker": broker,
    }


def reads_keys(properties: Mapping[str, Any]) -> bool:
    """Whether a client says of itself that it reads batches in which each message has a routing key of its own."""
    return properties.get("record_keys") is True


def answers_lost(properties: Mapping[str, Any]) -> bool:
    """Whether a client says of itself that it answers GroupRevoked also where partitions are lost."""
    return properties.get("answers_lost") is True


def growth_of(properties: Mapping[str, Any]) -> int | None:
    """The newest growth of topics that a client says it has heard of; None where it hears of none."""
    growth = properties.get("growth")
    return growth if type(growth) is int and growth >= 0 else None


def serves_http(properties: Mapping[str, Any]) -> bool:
    """Whether a client says of itself that it asks for those who ask it over HTTP: the management process."""
    return properties.get("serves") == "http"


def larger_frames(message_bytes_max: int, is_administrator: bool) -> Mapping[int, int]:
    """By type, how many bytes those frames may have that may be larger than requests are."""
    larger = {**LARGER_FRAMES, TYPES[BasicPublish]: frame_bytes_max(message_bytes_max)}
    if not is_administrator:
        del larger[TYPES[DefinitionsImport]]
    return larger
