"""A channel's place in a native connection: what waits for an answer, what is held behind it."""

from collections import deque
from typing import Protocol

from shardmq.errors import ChannelError, ReplyCode
from shardmq.gateway.native.outbox import Outbox
from shardmq.gateway.session.channel import Channel
from shardmq.gateway.session.client_socket import HELD_OVERHEAD_BYTES
from shardmq.protocol.native.operations.basic import BasicPublish
from shardmq.protocol.native.operations.fields import Operation


class ChannelOwner(Protocol):
    """The connection of a channel."""

    def resume_channel(self, channel: "NativeChannel") -> None:
        """Carry out what was held on a channel, as far as nothing holds it any more."""

    def close_channel(self, channel: "NativeChannel") -> None:
        """Close a channel: the client has asked for it."""

    def fail_channel(self, channel: "NativeChannel", error: ChannelError) -> None:
        """Close a channel, and tell the client why."""


class NativeChannel:
    """A channel's place in its connection.

    Args:
        owner: the connection.
        outbox: the connection's.
        session_channel: what the channel is, whatever the protocol.

    Attributes:
        publisher: the session channel's.
        number: the client's.
        is_waiting: for the answer to a request.
        held: what came behind that request, with the bytes each takes; None where nothing did, as an empty deque takes
            half a kilobyte.
        pulls: how many are not answered.
        blocked: publishes held while an alarm is on, with the bytes each takes.
    """

    __slots__ = ("blocked", "held", "is_waiting", "number", "outbox", "owner", "publisher", "pulls", "session_channel")

    def __init__(self, owner: ChannelOwner, outbox: Outbox, session_channel: Channel) -> None:
        self.owner = owner
        self.outbox = outbox
        self.session_channel = session_channel
        self.publisher = session_channel.publisher
        self.number = session_channel.number
        self.is_waiting = False
        self.pulls = 0
        self.held: deque[tuple[Operation, int]] | None = None
        self.blocked: list[tuple[BasicPublish, int]] = []

    @property
    def is_open(self) -> bool:
        """Whether the channel has not been closed."""
        return self.publisher.is_open

    def hold(self, operation: Operation, size: int) -> None:
        """Hold an operation of `size` bytes until those before it are carried out."""
        size += HELD_OVERHEAD_BYTES
        if self.held is None:
            self.held = deque()
        self.held.append((operation, size))
        self.outbox.hold_more(size)

    def block(self, publish: BasicPublish) -> None:
        """Hold a publish until no alarm is on."""
        size = len(publish.records) + HELD_OVERHEAD_BYTES
        self.blocked.append((publish, size))
        self.outbox.hold_more(size)

    def end_block(self) -> None:
        """Hold the publishes of an alarm that is over before all else that is held: they were first."""
        blocked, self.blocked = self.blocked, []
        if blocked:
            self.held = deque([*blocked, *(self.held or ())])

    def drop_held(self) -> None:
        """Drop what is held, and refuse publishes among it that an alarm held: the channel ends."""
        held_bytes = sum(size for _, size in (*(self.held or ()), *self.blocked))
        self.held = None
        for publish, _ in self.blocked:
            text = "the channel was closed while publishing was blocked; not stored"
            self.outbox.send_refusal(self.number, publish.request, publish.request, ReplyCode.RESOURCE_ERROR, text)
        self.outbox.hold_less(held_bytes)
