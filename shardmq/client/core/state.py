"""What a core knows and the small steps that requests, answers and recovery share."""

from typing import Final

from msgspec.structs import force_setattr

from shardmq.client.api.message import AutoAcked, Settler
from shardmq.client.api.metrics import MetricsCounter
from shardmq.client.api.results import ServerProperties
from shardmq.client.api.url import Address
from shardmq.client.core.acknowledgements import shifted
from shardmq.client.core.channel import Asked, ChannelCore, Published
from shardmq.client.core.declarations import Declarations
from shardmq.client.core.interfaces import Observer, Reply, Unobserved, again
from shardmq.client.core.restore import Restore
from shardmq.client.core.validation import check_fields
from shardmq.errors import ResourceLocked, ShardmqError
from shardmq.limits import CHANNELS_MAX, MESSAGE_BYTES_HIGHEST, frame_bytes_max
from shardmq.protocol.native.frames import FrameReader
from shardmq.protocol.native.operations.basic import BasicDeliver, BasicNack
from shardmq.protocol.native.operations.codec import encode
from shardmq.protocol.native.operations.fields import Operation

PUMP_BYTES: Final = 1 << 20
"""What was held is sent in portions of about so much, so that it is not all copied at once."""

HEARD_BYTES_MAX: Final = frame_bytes_max(MESSAGE_BYTES_HIGHEST)
"""A frame of the broker, whatever it takes itself: it may hold larger messages from before it was told to take less."""

AUTO_ACKED: Final = AutoAcked()


class ConnectionState:
    """See `core.Core`, which is what is used.

    Attributes:
        address: whom to be, where; the owner may set another before `open`.
        fault: why it is closed for good, if it is.
        is_open: it was opened once.
        is_up: requests go to the broker now.
        blocked: why the broker takes no publishes, if so.
        server: what it said of itself.
        undelivered: bytes that came for consumers and were not taken yet. Who takes them counts it down.
        outgoing: frames to be sent, for the owner to take.
        declared: what is declared again after a loss.
    """

    def __init__(
        self,
        address: Address,
        heartbeat: int,
        recovers: bool = False,
        observer: Observer | None = None,
        meter: MetricsCounter | None = None,
    ) -> None:
        self.address = address
        self.fault: ShardmqError | None = None
        self.is_open = False
        self.is_up = False
        self.blocked: str | None = None
        self.server = ServerProperties()
        self.undelivered = 0
        self.outgoing: list[bytes] = []
        self.declared = Declarations()
        self._heartbeat = heartbeat
        self._recovers = recovers
        self._observer: Observer = observer or Unobserved()
        self._meter = meter
        self._reader = FrameReader(HEARD_BYTES_MAX)
        self._request = 0
        self._replies: dict[int, Asked] = {}
        self._channels: dict[int, ChannelCore] = {}
        self._free_numbers: list[int] = []
        self._goes_straight = False
        self._lost: ShardmqError | None = None
        self._restoring: Restore | None = None
        self._renamed: dict[str, str] = {}

    def check(self, channel: ChannelCore | None = None) -> None:
        """Raise what closed the connection or the channel, if something did."""
        if self.fault is not None:
            raise again(self.fault)
        if channel is not None and channel.fault is not None:
            raise again(channel.fault)

    def excuse(self) -> str:
        """Why an answer may be late, to be put behind "no answer"; "" when nothing is known to be wrong."""
        if self.fault is None and self._lost is not None:
            return f"; the connection is being recovered ({self._lost.text})"
        if self.blocked is not None:
            return f"; the broker takes no publishes now: {self.blocked}"
        return ""

    # --- channels and consumers -----------------------------------------------------------------------------------

    def channels(self) -> list[ChannelCore]:
        """Those that are to be there."""
        return [channel for channel in self._channels.values() if channel.fault is None]

    def new_channel(self, settler: Settler | None = None, opening: Reply | None = None) -> ChannelCore:
        """The next free channel, not asked for yet.

        Raises:
            ResourceLocked: the connection has as many as it may.
        """
        number = self._free_numbers.pop() if self._free_numbers else len(self._channels) + 1
        if number > min(CHANNELS_MAX, self.server.channel_max):
            raise ResourceLocked(f"{number - 1} channels are open; close one, or open another connection")
        channel = self._channels[number] = ChannelCore(number, settler or AUTO_ACKED, opening)
        return channel

    def free(self, channel: ChannelCore) -> None:
        """Its number may be given to another."""
        if self._channels.get(channel.number) is channel:
            del self._channels[channel.number]
            self._free_numbers.append(channel.number)

    def end_channel(self, channel: ChannelCore, error: ShardmqError) -> None:
        """It is closed: everybody waiting on it is told."""
        channel.fault = error
        for request in [number for number, asked in self._replies.items() if asked.channel is channel]:
            reply = self._replies.pop(request).reply
            if not reply.done():
                reply.set_exception(again(error))
        unconfirmed, channel.unconfirmed = channel.unconfirmed, {}
        put_off, channel.put_off = channel.put_off, []
        for confirms, operation in (*unconfirmed.values(), *put_off):
            confirms.settled(operation.count, again(error))
        for entry in channel.held:
            if isinstance(entry, tuple):
                entry[0].settled(entry[1].count, again(error))
            elif not entry.reply.done():
                entry.reply.set_exception(again(error))
        channel.held.clear()
        if channel.opening is not None and not channel.opening.done():
            channel.opening.set_exception(again(error))
        for tag in list(channel.inboxes):
            self.end_consumer(channel, tag, again(error))

    def end_consumer(self, channel: ChannelCore, tag: str, error: ShardmqError | None) -> None:
        """Nothing will come for that consumer any more."""
        consumer = channel.consumers.get(tag)
        inbox = channel.forget_consumer(tag)
        if consumer is not None:
            queue = consumer.queue
            others = (other.queue for one in self._channels.values() for other in one.consumers.values())
            if queue not in others:
                self.declared.unconsumed(queue)
        if inbox is not None:
            inbox.end(error)

    # --- what is held ---------------------------------------------------------------------------------------------

    @property
    def is_holding(self) -> bool:
        """Whether `pump` has something to send."""
        return self.is_up and self.blocked is None and not self._goes_straight

    def pump(self) -> None:
        """Send a portion of what was held; all that is published goes behind it."""
        room = PUMP_BYTES
        for channel in list(self._channels.values()):
            if channel.held:
                room = self._pump_channel(channel, room)
        held = any(channel.held for channel in self._channels.values())
        self._goes_straight = self.is_up and self.blocked is None and not held

    def _pump_channel(self, channel: ChannelCore, room: int) -> int:
        kept: list[Asked | Published] = []
        while channel.held and room > 0:
            entry = channel.held.popleft()
            if isinstance(entry, Asked):
                if not entry.reply.done():
                    self._dispatch(entry)
            elif self.blocked is not None:
                kept.append(entry)
            else:
                confirms, operation = entry
                self._request += 1
                force_setattr(operation, "request", self._request)
                self._send(operation)
                channel.unconfirmed[self._request] = (confirms, operation)
                room -= len(operation.records)
        channel.held.extendleft(reversed(kept))
        return room

    # --- sending --------------------------------------------------------------------------------------------------

    def _ask(self, asked: Asked) -> None:
        channel = asked.channel
        assert channel is not None
        check_fields(asked.operation)
        if self.is_up and (not channel.held or self.blocked is not None):
            self._dispatch(asked)
        else:
            encode(asked.operation)  # what cannot be said must fail here, not when it is its turn
            channel.held.append(asked)

    def _dispatch(self, asked: Asked) -> None:
        number = self._request + 1
        force_setattr(asked.operation, "request", number)
        self.outgoing.append(encode(asked.operation))
        self._request = number
        self._replies[number] = asked

    def _send(self, operation: Operation) -> None:
        self.outgoing.append(encode(operation))

    def _give_back(self, channel: ChannelCore, frame: BasicDeliver) -> None:
        tags = [(frame.tag, frame.tag + frame.count - 1)]
        channel.unacked.remove(frame.tag, frame.tag + frame.count)
        self._send(BasicNack(channel.number, shifted(tags, channel.tag_offset), True))

    def _shift(self, channel: ChannelCore, frame: BasicDeliver) -> None:
        if channel.tag_offset:
            force_setattr(frame, "tag", frame.tag + channel.tag_offset)
        channel.last_tag = frame.tag + frame.count - 1

    def _count(self, name: str, count: int) -> None:
        if self._meter is not None:
            self._meter.count(name, count)
