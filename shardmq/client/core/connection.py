"""A client's side of one connection, without any I/O: bytes in, answers out to whoever waits; requests in, bytes out.

The threaded and the asyncio connection drive the same core. It calls nobody's code but the small things handed in with
a request: a `Reply` to settle, `Confirms` to count down, an `Inbox` for deliveries. It is not safe from several
threads at once; its owner sees to that. Once it is lost, everything waiting has been told and every request raises.

    opening ──Ok──► up ──break_off──► down ──open, Ok──► restoring ──► up
                     │                  ▲                    │
                     └──lose──► lost    └────break_off───────┘

While it is down or restoring, what is asked and published is held, behind what was under way when it broke.
"""

from typing import Any, Final

from msgspec.structs import replace

from shardmq.client.api.message import Delivery, Settler
from shardmq.client.api.metrics import MetricsCounter
from shardmq.client.api.results import ServerProperties, got, result_of, started_consumer
from shardmq.client.api.url import Address
from shardmq.client.core.acknowledgements import shifted
from shardmq.client.core.batching import BY_QUEUE, PublishBatch
from shardmq.client.core.channel import ChannelCore, PendingRequest, as_it_is
from shardmq.client.core.dispatch import FrameDispatcher
from shardmq.client.core.interfaces import Confirms, IgnoredReply, Inbox, Observer, Reply, again
from shardmq.client.core.restore import Restore, started_at
from shardmq.client.core.state import AUTO_ACKED, HEARD_BYTES_MAX, ConnectionState
from shardmq.errors import ChannelError, ConnectionLost, ProtocolError, ShardmqError
from shardmq.limits import KEYED_NUMBERS
from shardmq.message.record_batch import KEYED
from shardmq.protocol.native.frames import FrameReader
from shardmq.protocol.native.operations.basic import (
    BasicCancel,
    BasicConsume,
    BasicGet,
    BasicPublish,
    BasicRecover,
    BasicRenew,
)
from shardmq.protocol.native.operations.codec import encode
from shardmq.protocol.native.operations.connection import (
    PROTOCOL_VERSION,
    ChannelOpen,
    ConnectionClose,
    ConnectionOpen,
    Heartbeat,
)
from shardmq.protocol.native.operations.fields import ClientRequest, TagRanges
from shardmq.protocol.native.operations.groups import GroupReleased
from shardmq.protocol.native.operations.publishing import encode_publish

_HEARTBEAT: Final = encode(Heartbeat())


class ConnectionCore:
    """One client's side of a connection: numbers requests, matches answers, hands out deliveries.

    Args:
        address: whom to be, where.
        heartbeat: seconds between signs of life that are proposed, 0 for none.
        recovers: whether it is kept for another life when it is lost.
        observer: who is told what happens to it.
        meter: counts messages, if somebody wants to know.

    Attributes:
        state: what the connection knows; its owner reads it, and takes the frames to be sent from it.
        receive: takes in what was read (`FrameDispatcher.receive`).
    """

    __slots__ = ("receive", "state")

    SIGN: Final = _HEARTBEAT
    """Sent before all else, it has the server show that it lives."""

    def __init__(
        self,
        address: Address,
        heartbeat: int,
        recovers: bool = False,
        observer: Observer | None = None,
        meter: MetricsCounter | None = None,
    ) -> None:
        self.state = ConnectionState(address, heartbeat, recovers, observer, meter)
        self.receive: Final = FrameDispatcher(self.state).receive

    def open(self, client: dict[str, Any], reply: Reply[ServerProperties]) -> None:
        """Open the connection with the address's user and password; the first request over each socket.

        Args:
            client: what the broker is told of this program.
            reply: gets what the broker says of itself.

        Raises:
            ConnectionFault: the server hung up before that.
        """
        state, address = self.state, self.state.address
        state.check()

        def finish(result: object) -> ServerProperties:
            state.server = result_of(ServerProperties, result)
            state.growth = state.server.growth
            if state.is_open:
                state.restore = Restore(state)
                state.restore.begin()
            else:
                state.is_open = state.is_up = state.goes_straight = True
            return state.server

        told = {**client, "growth": state.growth}
        operation = ConnectionOpen(
            0, PROTOCOL_VERSION, address.user, address.password, address.vhost, state.heartbeat, told
        )
        state.send_request(PendingRequest(None, operation, reply, finish))

    def open_channel(self, settler: Settler, reply: Reply[None]) -> ChannelCore:
        """Open the next free channel.

        Raises:
            ResourceLocked: the connection has as many as it may.
            ConnectionFault: it is closed.
        """
        state = self.state
        state.check()
        if not state.is_up:
            state.drop_unwanted()
        channel = state.new_channel(settler, reply)
        if state.is_up:

            def finish(_: object) -> None:
                channel.is_open = True
                channel.opening = None
                if reply.done():
                    state.close_late(channel)

            channel.is_asked_for = True
            state.send_request(PendingRequest(channel, ChannelOpen(0, channel.number), reply, finish))
        return channel

    def close_channel(self, channel: ChannelCore, error: ChannelError, reply: Reply[None]) -> None:
        """Close a channel; what is still waited for on it fails with `error`, but for this request's own answer."""
        self.state.check(channel)
        self.state.close_channel(channel, error, reply)

    def request(
        self, channel: ChannelCore, operation: ClientRequest, reply: Reply[object], what: str = "a request"
    ) -> None:
        """Ask for anything that is answered by an Ok.

        Args:
            channel: on which.
            operation: what is asked; a copy of it is given the numbers of the request and the channel.
            reply: gets the Ok's result.
            what: the request in words, for the text of an error.

        Raises:
            TypeError: a field of the operation is not of its type.
            ShardmqError: channel or connection are closed.
        """
        self.state.check(channel)
        self.state.ask(PendingRequest(channel, replace(operation, channel=channel.number), reply, as_it_is, what))

    def consume(self, channel: ChannelCore, operation: BasicConsume, inbox: Inbox, reply: Reply[str]) -> None:
        """Start a consumer; the reply gets its tag, the inbox every delivery behind it."""
        self.state.check(channel)
        operation = replace(operation, channel=channel.number)

        def finish(result: object) -> str:
            tag = started_consumer(result)
            if reply.done():
                self.state.cancel_unheard(channel, tag, IgnoredReply(), operation.auto_ack)
            else:
                channel.inboxes[tag] = inbox
                channel.consumers[tag] = started_at(replace(operation, consumer=tag), result)
                if not operation.auto_ack:
                    channel.manual.add(tag)
            return tag

        self.state.ask(PendingRequest(channel, operation, reply, finish))

    def cancel(self, channel: ChannelCore, tag: str, reply: Reply[None]) -> None:
        """End a consumer; its inbox is told when the last delivery has come."""
        state = self.state
        state.check(channel)

        def finish(_: object) -> None:
            state.end_consumer(channel, tag, None)

        if state.is_up:
            state.ask(PendingRequest(channel, BasicCancel(0, channel.number, tag), reply, finish))
            return
        consumer = channel.consumers.get(tag)
        finish(None)
        if channel.is_open:  # it may be a consumer already in this life
            state.cancel_unheard(channel, tag, reply, consumer is not None and consumer.auto_ack)
        else:
            reply.set_result(None)

    def get(self, channel: ChannelCore, queue: str, auto_ack: bool, reply: Reply[Delivery | None]) -> None:
        """Get one message; the reply gets None where the queue is empty."""
        state = self.state
        state.check(channel)

        def finish(result: object) -> Delivery | None:
            if result is None:
                return None
            frame = got(result)
            state.shift(channel, frame)
            state.count("consumed", 1)
            if auto_ack:
                return Delivery(frame, AUTO_ACKED, queue)
            channel.unacked.add(frame.tag, frame.tag + frame.count)
            if reply.done():
                state.requeue(channel, frame)
            return Delivery(frame, channel.settler, queue)

        operation = BasicGet(0, channel.number, queue, auto_ack)
        state.ask(PendingRequest(channel, operation, reply, finish, f"getting from queue '{queue}'"))

    def recover(self, channel: ChannelCore, reply: Reply[None]) -> None:
        """Have all that is unacked delivered again; settling what came until then means nothing any more."""
        self.state.check(channel)

        def finish(_: object) -> None:
            channel.stale_tag = channel.last_tag  # the broker answers before it delivers anything again
            channel.unacked.clear()

        self.state.ask(PendingRequest(channel, BasicRecover(0, channel.number), reply, finish))

    def publish(self, channel: ChannelCore, batch: PublishBatch, confirms: Confirms) -> None:
        """Publish a record batch; `confirms` hears of its messages once. The messages are numbered in this order."""
        state = self.state
        if state.fault is not None or channel.fault is not None:
            state.check(channel)
        exchange, routing_key, flags, count, packed, delay_ms, producer, sequence, transaction = batch
        if producer == BY_QUEUE:
            producer = channel.queue_numbers.producer
            sequence = channel.queue_numbers.take(routing_key, count)
        elif not producer:
            producer, sequence = channel.producer, channel.sequence
            channel.sequence += count * KEYED_NUMBERS if flags & KEYED else count
        number = state.last_request + 1 if state.goes_straight else 0
        operation = BasicPublish(
            number,
            channel.number,
            exchange,
            routing_key,
            flags,
            count,
            packed,
            delay_ms,
            producer,
            sequence,
            transaction,
            state.growth,
        )
        if number:
            state.outgoing.append(encode_publish(operation))
            state.last_request = number
            channel.unconfirmed[number] = (confirms, operation)
        else:
            channel.held.append((confirms, operation))
        if state.meter is not None:
            state.meter.count("published", count)

    def publish_again(self, channel: ChannelCore) -> None:
        """Publish again what was put off on a channel, in the order of its numbers."""
        if channel.fault is not None or not channel.put_off:
            return
        put_off, channel.put_off = channel.put_off, []
        put_off.sort(key=lambda entry: entry[1].sequence)
        channel.held.extend(put_off)
        self.state.goes_straight = False
        if self.state.is_holding:
            self.state.pump()

    def flush_acknowledgements(self, channel: ChannelCore) -> None:
        """Tell the broker what was acked and nacked."""
        if channel.fault is not None or not channel.acknowledgements.count:
            return
        frames, acked, nacked, ranges = channel.acknowledgements.take(
            channel.number, channel.stale_tag, channel.tag_offset
        )
        self.state.outgoing += frames
        for first, last in ranges:
            channel.unacked.remove(first, last + 1)
        if self.state.meter is not None:
            self.state.meter.count("acked", acked)
            self.state.meter.count("nacked", nacked)

    def put_back(self, channel: ChannelCore, first: int, last: int) -> None:
        """Give deliveries back, with the next acks, that the program has not seen. Older brokers know nacks alone."""
        if self.state.server.put_back:
            channel.acknowledgements.put_back(first, last)
        else:
            channel.acknowledgements.nack(first, last, True)

    def renew(self, channel: ChannelCore, first: int, last: int) -> None:
        """Begin the acknowledgement timeout of those that are still unacked anew."""
        held: TagRanges = [(start, end - 1) for start, end in channel.unacked.within(first, last + 1)]
        if held:
            self.state.send(BasicRenew(channel.number, shifted(held, channel.tag_offset)))

    def let_go(self, channel: ChannelCore, tag: str, partitions: list[int]) -> None:
        """Tell that a consumer of a group has let go of partitions; of an earlier life it has none any more."""
        if channel.fault is None and channel.is_open and self.state.is_up:
            self.state.send(GroupReleased(channel.number, tag, partitions))

    def heartbeat(self) -> None:
        """Send a heartbeat."""
        self.state.outgoing.append(_HEARTBEAT)

    def close(self, error: ConnectionLost) -> None:
        """Close the connection; everything waiting fails with `error`. The server closes the socket when it has all."""
        if self.state.fault is None:
            self.state.send(ConnectionClose(0, "closed by the client"))
            self.lose(error, is_wanted=True)

    def accuse(self, fault: ProtocolError) -> None:
        """Close the connection because of what the server sent, and tell it what was wrong."""
        self.state.send(ConnectionClose(int(fault.code), fault.text))

    def break_off(self, error: ShardmqError) -> bool:
        """Keep what is under way for the next socket, as this one is gone.

        Returns:
            Whether the core waits for another one; if not, everybody waiting was told.
        """
        state = self.state
        if state.fault is not None:
            return False
        if not (state.recovers and state.is_open and isinstance(error, ConnectionLost)):
            self.lose(error)
            return False
        if state.restore is not None:
            state.restore.abandon()
        if state.late is not None:
            state.late.is_over = True
        state.restore = state.late = None
        was_up = state.is_up
        state.is_up = state.goes_straight = False
        state.loss = error
        state.reader = FrameReader(HEARD_BYTES_MAX)
        state.outgoing.clear()
        under_way, state.pending = state.pending, {}
        asked_again: dict[int, list[tuple[int, PendingRequest[Any]]]] = {}
        for number, pending in under_way.items():
            if pending.outlives(error):
                assert pending.channel is not None
                asked_again.setdefault(pending.channel.number, []).append((number, pending))
        for channel in list(state.by_number.values()):
            channel.break_off(asked_again.get(channel.number, []))
        if was_up:
            state.observer.lost(error)
        state.forget_blocked()
        return True

    def lose(self, error: ShardmqError, is_wanted: bool = False) -> None:
        """Tell everybody waiting, once, that the connection is gone for good.

        Args:
            error: why.
            is_wanted: whether the program has closed it, which is no news to the observer.
        """
        state = self.state
        if state.fault is not None:
            return
        state.fault = error
        state.is_up = state.goes_straight = False
        for asking in (state.restore, state.late):
            if asking is not None:
                asking.is_over = True
        under_way, state.pending = state.pending, {}
        for pending in under_way.values():
            pending.failed(again(error))
        for channel in list(state.by_number.values()):
            state.end_channel(channel, error)
        state.by_number.clear()
        if not is_wanted:
            state.observer.lost(error)
            state.forget_blocked()

    @property
    def is_pausing(self) -> bool:
        """Whether `go_on` is to be called in a moment."""
        asking = self.state.restore or self.state.late
        return asking is not None and asking.is_pausing

    def go_on(self) -> None:
        """Try again what could not be restored a moment ago."""
        asking = self.state.restore or self.state.late
        if asking is not None and asking.is_pausing:
            asking.go_on()
