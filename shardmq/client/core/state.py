"""What a connection knows, and the small steps that requests, answers and recovery share."""

from typing import Any, Final

from msgspec.structs import force_setattr, replace

from shardmq.client.api.message import AutoAcked, Settler
from shardmq.client.api.metrics import MetricsCounter
from shardmq.client.api.recovery import Recovered
from shardmq.client.api.results import ServerProperties
from shardmq.client.api.url import Address
from shardmq.client.core.acknowledgements import shifted
from shardmq.client.core.channel import ChannelCore, PendingRequest, Published, as_it_is
from shardmq.client.core.declarations import Declarations
from shardmq.client.core.interfaces import IgnoredReply, Observer, Reply, Unobserved, again
from shardmq.client.core.restore import LateConsumers, Restore
from shardmq.client.core.validation import check_fields, check_size
from shardmq.errors import ChannelError, ResourceLocked, ShardmqError
from shardmq.limits import CHANNELS_MAX, MESSAGE_BYTES_HIGHEST, frame_bytes_max
from shardmq.protocol.native.frames import FrameReader
from shardmq.protocol.native.operations.basic import BasicCancel, BasicDeliver, BasicNack, BasicPutBack
from shardmq.protocol.native.operations.codec import encode, encode_without_last
from shardmq.protocol.native.operations.connection import ChannelClose, ChannelOpen
from shardmq.protocol.native.operations.fields import ClientRequest, Operation
from shardmq.protocol.native.operations.offsets import GroupOffsets
from shardmq.protocol.native.operations.publishing import encode_publish

PUMP_BYTES: Final = 1 << 20
"""What was held is sent in portions of about so much, so that it is not all copied at once."""

HEARD_BYTES_MAX: Final = frame_bytes_max(MESSAGE_BYTES_HIGHEST)
"""A frame of the broker, whatever it takes itself: it may hold larger messages from before it was told to take less."""

AUTO_ACKED: Final = AutoAcked()


class ConnectionState:
    """What one connection knows over all its lives. A `Restorable`: `Restore` makes its channels and topology again.

    Attributes:
        address: host, port, user and virtual host; the owner may set another before `ConnectionCore.open`.
        fault: why the connection is closed for good, None while it is not.
        is_open: whether it was opened once.
        is_up: whether requests go to the broker now.
        goes_straight: whether publishes do: it is up, not blocked, and nothing is held.
        blocked: why the broker takes no publishes; None where it does.
        server: what the broker said of itself.
        undelivered: bytes that came for consumers of open channels and were not taken yet.
        outgoing: frames to be sent, for the owner to take.
        declarations: what is declared again after a loss.
        heartbeat: seconds between signs of life that this side proposes.
        recovers: whether it is kept for another life when it is lost.
        observer: who is told what happens to it.
        meter: counts messages for the program's metrics, if it wants them.
        reader: what was read of the next frame.
        growth: of topics, the newest that the broker told of; what is published says it, and is sent again with it.
        last_request: the highest request number that was sent.
        pending: requests under way, by their number.
        by_number: channels, by their number.
        loss: why it was lost, while it is not restored.
        restore: the restoration under way.
        late: exclusive consumers that the last one has left to others.
        renamed: queues that the server has named again in this restoration, old name to new.
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
        self.declarations = Declarations()
        self.heartbeat = heartbeat
        self.recovers = recovers
        self.observer: Observer = observer or Unobserved()
        self.meter = meter
        self.reader = FrameReader(HEARD_BYTES_MAX)
        self.growth = 0
        self.last_request = 0
        self.pending: dict[int, PendingRequest[Any]] = {}
        self.by_number: dict[int, ChannelCore] = {}
        self._free_numbers: list[int] = []
        self.goes_straight = False
        self.loss: ShardmqError | None = None
        self.restore: Restore | None = None
        self.late: LateConsumers | None = None
        self.renamed: dict[str, str] = {}

    def check(self, channel: ChannelCore | None = None) -> None:
        """Raise what closed the connection or the channel, if something did."""
        if self.fault is not None:
            raise again(self.fault)
        if channel is not None and channel.fault is not None:
            raise again(channel.fault)

    def excuse(self) -> str:
        """The reason why an answer may be late, to follow "no answer"; "" when nothing is known to be wrong."""
        if self.fault is None and self.loss is not None:
            return f"; the connection is being recovered ({self.loss.text})"
        if self.blocked is not None:
            return f"; the broker takes no publishes now: {self.blocked}"
        return ""

    @property
    def expected(self) -> int:
        """How many answers are to come; more, where consumers wait for messages."""
        expected = len(self.pending)
        for channel in self.by_number.values():
            expected += len(channel.unconfirmed) + 2 * len(channel.inboxes)
        return expected

    def channels(self) -> list[ChannelCore]:
        """The channels that are to be there."""
        return [channel for channel in self.by_number.values() if channel.fault is None]

    def new_channel(self, settler: Settler | None = None, opening: Reply[None] | None = None) -> ChannelCore:
        """The next free channel, not asked for yet.

        Raises:
            ResourceLocked: the connection has as many as it may.
        """
        number = self._free_numbers.pop() if self._free_numbers else len(self.by_number) + 1
        if number > min(CHANNELS_MAX, self.server.channel_max):
            raise ResourceLocked(f"{number - 1} channels are open; close one, or open another connection")
        channel = self.by_number[number] = ChannelCore(number, settler or AUTO_ACKED, opening)
        return channel

    def free(self, channel: ChannelCore) -> None:
        """Let the channel's number be given to another."""
        if self.by_number.get(channel.number) is channel:
            del self.by_number[channel.number]
            self._free_numbers.append(channel.number)

    def drop_unwanted(self) -> None:
        """Forget the channels that are not asked for yet, and that nobody waits for any more."""
        for channel in list(self.by_number.values()):
            if channel.opening is not None and channel.opening.done() and not channel.is_asked_for:
                self.end_channel(channel, ChannelError(f"channel {channel.number} was given up before it was opened"))
                self.free(channel)

    def close_late(self, channel: ChannelCore) -> None:
        """Close a channel that was opened when nobody waited for it any more: nobody else ever would."""
        late = ChannelError(f"channel {channel.number} was opened too late")
        self.close_channel(channel, late, IgnoredReply())

    def close_channel(self, channel: ChannelCore, error: ChannelError, reply: Reply[None]) -> None:
        """Close a channel here and at the broker, and free its number when that has answered."""
        self.end_channel(channel, error)

        def finish(_: object) -> None:
            self.free(channel)

        if channel.is_asked_for:
            self.send_request(PendingRequest(None, ChannelClose(0, channel.number), reply, finish))
        else:
            self.free(channel)
            reply.set_result(None)

    def end_channel(self, channel: ChannelCore, error: ShardmqError) -> None:
        """Close a channel, if it is not closed, and tell everybody who still waits on it."""
        if channel.fault is None:
            channel.fault = error
            self.undelivered -= channel.undelivered  # whether or not its program ever looks at them
        for number in [number for number, pending in self.pending.items() if pending.channel is channel]:
            self.pending.pop(number).failed(again(error))  # which may end a restoration
        unconfirmed, channel.unconfirmed = channel.unconfirmed, {}
        put_off, channel.put_off = channel.put_off, []
        for confirms, operation in (*unconfirmed.values(), *put_off):
            confirms.settled(operation.count, again(error))
        for entry in channel.held:
            if isinstance(entry, PendingRequest):
                entry.failed(again(error))
            else:
                entry[0].settled(entry[1].count, again(error))
        channel.held.clear()
        if channel.opening is not None and not channel.opening.done():
            channel.opening.set_exception(again(error))
        for tag in list(channel.inboxes):
            self.end_consumer(channel, tag, again(error))

    def end_consumer(self, channel: ChannelCore, tag: str, error: ShardmqError | None) -> None:
        """End a consumer, and tell its inbox."""
        consumer = channel.consumers.get(tag)
        inbox = channel.forget_consumer(tag)
        channel.unheard.discard(tag)
        if consumer is not None:
            queue = consumer.queue
            others = (other.queue for one in self.by_number.values() for other in one.consumers.values())
            if queue not in others:
                self.declarations.unconsumed(queue)
        if inbox is not None:
            inbox.end(error)

    def leave_consumer(self, channel: ChannelCore, tag: str) -> None:
        """End a consumer of which nobody is to hear any more, whether or not its end was asked for already."""
        if channel.fault is not None or tag not in channel.inboxes:
            return
        auto_ack = tag not in channel.manual
        under_way = [pending.operation for pending in self.pending.values() if pending.channel is channel]
        is_asked_for = any(isinstance(each, BasicCancel) and each.consumer == tag for each in under_way)
        self.end_consumer(channel, tag, None)
        if is_asked_for and auto_ack:
            channel.unheard.add(tag)
        elif not is_asked_for and channel.is_open:
            self.cancel_unheard(channel, tag, IgnoredReply(), auto_ack)

    def cancel_unheard(self, channel: ChannelCore, tag: str, reply: Reply[None], auto_ack: bool) -> None:
        """Cancel a consumer without an inbox: what comes until then is requeued, unless it is acked already."""
        if auto_ack:
            channel.unheard.add(tag)

        def finish(_: object) -> None:
            channel.unheard.discard(tag)

        self.send_request(PendingRequest(channel, BasicCancel(0, channel.number, tag), reply, finish))

    def rename_queue(self, old: str, new: str) -> None:
        """Note that a queue the server named has another name in this life."""
        self.declarations.rename_queue(old, new)
        for channel in self.by_number.values():
            for tag, consumer in channel.consumers.items():
                if consumer.queue == old:
                    channel.consumers[tag] = replace(consumer, queue=new)
        first = next((name for name, last in self.renamed.items() if last == old), old)
        self.renamed[first] = new

    def restored(self, failures: list[str], late: LateConsumers | None) -> None:
        """Send what was held: everything that can be is as it was, but for consumers that may still be had."""
        self.restore, self.late = None, late
        self.loss = None
        self.is_up = True
        renamed, self.renamed = self.renamed, {}
        self.pump()
        self.count("recovered", 1)
        self.observer.recovered(Recovered(str(self.address), renamed, failures))

    @property
    def is_holding(self) -> bool:
        """Whether `pump` has something to send."""
        return self.is_up and self.blocked is None and not self.goes_straight

    def pump(self) -> None:
        """Send a portion of what was held; all that is published goes behind it."""
        room = PUMP_BYTES
        channels = self.channels()  # what is held on one that is just being closed is not sent
        for channel in channels:
            if channel.held:
                room = self._pump_channel(channel, room)
        held = any(channel.held for channel in channels)
        self.goes_straight = self.is_up and self.blocked is None and not held

    def _pump_channel(self, channel: ChannelCore, room: int) -> int:
        kept: list[PendingRequest[Any] | Published] = []
        while channel.held and room > 0:
            entry = channel.held.popleft()
            if isinstance(entry, PendingRequest):
                if not entry.reply.done():
                    self.send_request(entry)
            elif self.blocked is not None:
                kept.append(entry)
            else:
                confirms, operation = entry
                self.last_request += 1
                force_setattr(operation, "request", self.last_request)
                self.outgoing.append(encode_publish(operation))
                channel.unconfirmed[self.last_request] = (confirms, operation)
                room -= len(operation.records)
        channel.held.extendleft(reversed(kept))
        return room

    def ask(self, pending: PendingRequest[Any]) -> None:
        """Send a request of the program's, behind what is held on its channel.

        Raises:
            TypeError: a field is not of its type.
            ContentTooLarge: it is larger than the broker takes.
        """
        channel, operation = pending.channel, pending.operation
        assert channel is not None
        assert isinstance(operation, ClientRequest), "a connection is opened without its being asked for"
        check_fields(operation)
        check_size(pending.what, operation)  # what cannot be said must fail here, not when it is its turn
        if self.is_up and (not channel.held or self.blocked is not None):
            self.send_request(pending)
        else:
            channel.held.append(pending)

    def ask_at_once(self, operation: ClientRequest, channel: ChannelCore, reply: Reply[object]) -> None:
        """Send a request before everything that is held."""
        if isinstance(operation, ChannelOpen):
            channel.is_asked_for = True
        addressed = replace(operation, channel=channel.number)
        self.send_request(PendingRequest(channel, addressed, reply, as_it_is))

    def send_request(self, pending: PendingRequest[Any]) -> None:
        """Number a request and send it; its reply waits for the answer."""
        number = self.last_request + 1
        operation = replace(pending.operation, request=number)
        is_known = type(operation) is not GroupOffsets or self.server.partition_offsets
        self.outgoing.append(encode(operation) if is_known else encode_without_last(operation))
        self.last_request = number
        self.pending[number] = pending

    def send(self, operation: Operation) -> None:
        """Send what nobody answers."""
        self.outgoing.append(encode(operation))

    def taken(self, channel: ChannelCore, size: int) -> None:
        """Count delivered bytes as taken by their consumer."""
        if channel.fault is None:
            channel.undelivered -= size
            self.undelivered -= size

    def requeue(self, channel: ChannelCore, frame: BasicDeliver) -> None:
        """Give a delivery back that no consumer here takes."""
        tags = shifted([(frame.tag, frame.tag + frame.count - 1)], channel.tag_offset)
        channel.unacked.remove(frame.tag, frame.tag + frame.count)
        self.send(BasicPutBack(channel.number, tags) if self.server.put_back else BasicNack(channel.number, tags, True))

    def shift(self, channel: ChannelCore, frame: BasicDeliver) -> None:
        """Make a delivery's tags rise over all lives of the connection."""
        if channel.tag_offset:
            force_setattr(frame, "tag", frame.tag + channel.tag_offset)
        channel.last_tag = frame.tag + frame.count - 1

    def forget_blocked(self) -> None:
        """Note that the connection on which the broker took no publishes is gone: the next one has to be told anew."""
        if self.blocked is not None:
            self.blocked = None
            self.observer.unblocked()

    def count(self, name: str, count: int) -> None:
        """Count messages for the program's metrics."""
        if self.meter is not None:
            self.meter.count(name, count)
