"""Connections and channels: opening, closing, heartbeats, answers, blocked."""

from typing import Annotated, Any, Final

from msgspec import Meta

from shardmq.protocol.native.operations.fields import AfterLoss, Arguments, Channel, ClientRequest, Operation, Request

PROTOCOL_VERSION: Final = 1
"""The version of the protocol that is described in SPEC.md."""


class ConnectionOpen(Operation, frozen=True):
    """Log in and enter a virtual host; the first frame of a client.

    With the virtual host "" it is an administrative session, for users with one of MANAGEMENT_TAGS: it is in no virtual
    host, its lists are those of all that the user may see, and the answer has the user's `tags`.

    `heartbeat` is in seconds, 0 for none. With user and password "", the client is the user that its TLS certificate
    has as common name. The answer is Ok with the server's properties: `{"product", "version", "protocol", "heartbeat",
    "frame_max", "channel_max", "message_max"}`. A publish may have `frame_max` bytes, the body of a message
    `message_max`. A client that gives the newest `growth` it has heard of, 0 at first, among its properties, hears of
    growth: it is in the answer, too.
    """

    request: Request
    version: int
    user: str
    password: str
    vhost: str
    heartbeat: Annotated[int, Meta(ge=0, le=65_535)]
    client: Arguments = {}


class ConnectionClose(Operation, frozen=True):
    """End the connection; the last frame of either side, which then closes the socket. The server gives its reason."""

    code: int
    text: str


class Heartbeat(Operation, frozen=True):
    """A sign of life, sent when there is nothing else to send."""


class Ok(Operation, frozen=True):
    """A request was carried out. `result` depends on the request; most have nil."""

    request: Request
    channel: Channel
    result: Any = None


class Refused(Operation, frozen=True):
    """A request was not carried out, and changed nothing."""

    request: Request
    channel: Channel
    code: int
    text: str


class ChannelOpen(ClientRequest, frozen=True):
    """Open channel 1 to CHANNELS_MAX. The answer is Ok."""


class ChannelClose(ClientRequest, frozen=True):
    """End a channel; its unacked deliveries are requeued.

    The answer to a client is Ok. The server sends it with request 0 and the reason when a channel has failed; the
    client need not answer.
    """

    after_loss = AfterLoss.DONE

    code: int = 0
    text: str = ""


class StatusGet(ClientRequest, frozen=True):
    """Ask for the state of every process and queue, as `shardmq status` shows it; the answer is Ok with it."""

    after_loss = AfterLoss.ASK_AGAIN
    only_reads = True


class ConnectionBlocked(Operation, frozen=True):
    """An alarm is on: publishes are held until ConnectionUnblocked. All else goes on."""

    reason: str


class ConnectionUnblocked(Operation, frozen=True):
    """The alarm is over: publishes go on."""
