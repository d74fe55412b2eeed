"""A connection on its way to being open: who the client is, what is agreed on, which virtual host.

    header ─► starting ─start-ok─► securing ─tune─► tuning ─tune-ok─► opening ─open─► admitting ─open-ok─► open

What goes wrong before it is known who somebody is gets no answer, as in RabbitMQ: the log has the reason, and the
socket is closed after a while, so that nobody tries passwords fast.
"""

from enum import Enum
from typing import TYPE_CHECKING, Final

from shardmq.errors import ConnectionFault, ReplyCode
from shardmq.gateway.amqp import handshake
from shardmq.gateway.authentication.authenticator import Credentials
from shardmq.gateway.session.client_properties import short
from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.events import PROTOCOL_HEADER, Event, MethodReceived
from shardmq.protocol.amqp.methods.connection import ConnectionOpen, ConnectionStartOk, ConnectionTuneOk

if TYPE_CHECKING:
    from shardmq.gateway.amqp.connection import AmqpConnection
    from shardmq.gateway.authentication.authenticator import Authenticator


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


class Handshake:
    """See the module. A connection has one until it is open.

    Args:
        connection: that is being opened.
        logins: who may come in.
        certificate_name: of the client's certificate; None where it has shown none.

    Attributes:
        login: who the client says it is.
    """

    __slots__ = ("_certificate_name", "_connection", "_header", "_logins", "_mechanism", "_state", "login")

    def __init__(self, connection: "AmqpConnection", logins: "Authenticator", certificate_name: str | None) -> None:
        self._connection = connection
        self._logins = logins
        self._certificate_name = certificate_name
        self._state = State.HEADER
        self._header = b""
        self._mechanism = ""
        self.login = Credentials("", None)

    @property
    def is_known(self) -> bool:
        """Whether the client has shown who it is; others are not told what is wrong with what they say."""
        return self._state in KNOWN

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
        self._connection.send_frame(handshake.start_frame(handshake.mechanisms(self._certificate_name)))
        return self._header[len(wanted) :]

    def take(self, event: Event) -> None:
        """Carry out the next step.

        Raises:
            AmqpFault: it is another one than expected, or can not be carried out.
        """
        if event.channel or not isinstance(event, MethodReceived):
            text = f"a frame on channel {event.channel} in connection state {self._state.value}"
            raise AmqpError(ReplyCode.UNEXPECTED_FRAME, text)
        match event.method:
            case ConnectionStartOk() as method if self._state is State.STARTING:
                self._authenticate(method)
            case ConnectionTuneOk() as method if self._state is State.TUNING:
                handshake.check_tuned(method)
                self._connection.tuned(method)
                self._state = State.OPENING
            case ConnectionOpen() as method if self._state is State.OPENING:
                self._state = State.ADMITTING
                self.login = self.login._replace(vhost=method.virtual_host)
                self._connection.begin_check()
                self._logins.admit(self._connection.peer, self.login, self._admitted)
            case method:
                text = f"unexpected method in connection state {self._state.value}"
                raise AmqpError(ReplyCode.CHANNEL_ERROR, text, method.id)

    def _authenticate(self, method: ConnectionStartOk) -> None:
        connection = self._connection
        connection.client = short(method.client_properties)
        connection.capabilities = handshake.capabilities_of(method.client_properties)
        self.login = Credentials(*handshake.login(method, self._certificate_name))
        self._mechanism = method.mechanism
        self._state = State.SECURING
        connection.begin_check()
        self._logins.authenticate(connection.peer, self.login, self._authenticated)

    def _authenticated(self, fault: ConnectionFault | None) -> None:
        if not self._connection.end_check():
            return
        if fault is not None:
            text = (
                f"Login was refused using authentication mechanism {self._mechanism}. "
                "For details see the broker logfile."
            )
            self._connection.refuse_login(AmqpError(ReplyCode.ACCESS_REFUSED, text))
            return
        self._state = State.TUNING
        self._connection.send(0, handshake.tune())

    def _admitted(self, fault: ConnectionFault | None) -> None:
        if not self._connection.end_check():
            return
        if fault is not None:
            self._connection.close(AmqpError(fault.code, fault.text, ConnectionOpen.id))
            return
        self._connection.opened(self.login)
