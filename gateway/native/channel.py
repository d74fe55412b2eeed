"""A channel's place in the connection: what waits, what is held."""

from collections import deque

from shardmq.gateway.session.channel import Channel
from shardmq.protocol.native.operations.basic import BasicPublish
from shardmq.protocol.native.operations.fields import Operation


class NativeChannel:
    """A channel's place in the connection.

    Attributes:
        is_waiting: for the answer to a request.
        held: what came behind that request, with the bytes each takes; None where nothing did, as an empty deque takes
            half a kilobyte.
        blocked: publishes held while an alarm is on.
    """

    __slots__ = ("blocked", "channel", "held", "is_waiting")

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.is_waiting = False
        self.held: deque[tuple[Operation, int]] | None = None
        self.blocked: list[tuple[BasicPublish, int]] = []
