"""Connections and channels: opening, closing, heartbeats, answers, blocked."""

from typing import Annotated, Any, Final

from msgspec import Meta

from shardmq.protocol.native.operations.fields import AfterLoss, Arguments, Channel, ClientRequest, Operation, Request

PROTOCOL_VERSION: Final = 1


class ConnectionOpen(Operation, frozen=True):
    """First frame of a client. `heartbeat` in seconds, 0 for none. Without user and password (both ""), the client is
    the user that is the common name of the certificate it has shown. Answered by Ok with the server's properties:
    `{"product", "version", "protocol", "heartbeat", "frame_max", "channel_max", "message_max"}`: a publish may have
    `frame_max` bytes, the body of a message `message_max`.
    """

    request: Request
    version: int
    user: str
    password: str
    vhost: str
    heartbeat: Annotated[int, Meta(ge=0, le=65_535)]
    client: Arguments = {}


class ConnectionClose(Operation, frozen=True):
    """Last frame of either side; from the server with the reason. Answered by closing the socket, once all is sent."""

    code: int
    text: str


class Heartbeat(Operation, frozen=True):
    """A sign of life; any other frame is one as well."""


class Ok(Operation, frozen=True):
    """A request was carried out. `result` depends on the request; nil where there is nothing to say."""

    request: Request
    channel: Channel
    result: Any = None


class Refused(Operation, frozen=True):
    """A request was not carried out; nothing else changed."""

    request: Request
    channel: Channel
    code: int
    text: str


class ChannelOpen(ClientRequest, frozen=True):
    """Opens channel 1 to CHANNELS_MAX. Answered by Ok."""


class ChannelClose(ClientRequest, frozen=True):
    """From the client: answered by Ok; what is unacked on it returns to its queues. From the server (request 0): the
    channel is gone, and why; the client need not answer.
    """

    after_loss = AfterLoss.DONE

    code: int = 0
    text: str = ""


class StatusGet(ClientRequest, frozen=True):
    """Ok: the state of every process and queue, as `shardmq status` shows it."""

    after_loss = AfterLoss.ASK_AGAIN


class ConnectionBlocked(Operation, frozen=True):
    """The broker runs short of something: publishes are held until ConnectionUnblocked. Everything else goes on."""

    reason: str


class ConnectionUnblocked(Operation, frozen=True):
    """Publishes are taken again."""
