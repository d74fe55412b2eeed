"""A client's side of one connection, without any I/O: bytes in, answers out to whoever waits; requests in, bytes out.

The threaded and the asyncio connection drive the same core. It calls nobody's code but the small things handed in with
a request: a `Reply` to settle, `Confirms` to count down, an `Inbox` for deliveries. It is not safe from several
threads at once; its owner sees to that. Once it is lost, everything waiting has been told and every request raises.

    opening ──Ok──► up ──break_off──► down ──open, Ok──► restoring ──► up
                     │                  ▲                    │
                     └──lose──► lost    └────break_off───────┘

While it is down or restoring, what is asked and published is held, behind what was under way when it broke.
"""

import os
import sys
from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from shardmq.client.api.message import Delivery, Settler
from shardmq.client.api.recovery import Recovered
from shardmq.client.api.results import ServerProperties, got, result_of, started_consumer
from shardmq.client.core.acknowledgements import shifted
from shardmq.client.core.batching import Run
from shardmq.client.core.channel import ENDED_BY_LOSS, Asked, ChannelCore, survives_loss
from shardmq.client.core.dispatch import FrameDispatcher
from shardmq.client.core.interfaces import Confirms, Inbox, Reply, again
from shardmq.client.core.restore import Restore
from shardmq.client.core.state import AUTO_ACKED, HEARD_BYTES_MAX
from shardmq.errors import ChannelError, ConnectionLost, ProtocolError, ShardmqError
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
    ChannelClose,
    ChannelOpen,
    ConnectionClose,
    ConnectionOpen,
    Heartbeat,
)
from shardmq.protocol.native.operations.fields import Operation, TagRanges
from shardmq.protocol.native.operations.publishing import encode_publish

_HEARTBEAT: Final = encode(Heartbeat())


class ConnectionCore(FrameDispatcher):
    """The connection: numbers requests, matches answers, hands out deliveries.

    Args:
        address: whom to be, where.
        heartbeat: seconds to propose, 0 for none.
        recovers: whether it is kept for another life when it is lost.
        observer: who is told what happens to it.
        meter: counts messages, if somebody wants to know.
    """

    # --- requests: each leaves its frame in `outgoing` ------------------------------------------------------------

    def open(self, client: dict[str, Any], reply: Reply) -> None:
        """Say who we are; the first request of each life.

        Raises:
            ConnectionFault: the server hung up before that.
        """
        self.check()
        address = self.address

        def finish(result: Any) -> ServerProperties:
            self.server = result_of(ServerProperties, result)
            if self.is_open:
                self._restoring = Restore(self)
                self._restoring.begin()
            else:
                self.is_open = self.is_up = self._goes_straight = True
            return self.server

        self._dispatch(
            Asked(
                None,
                reply,
                ConnectionOpen(
                    0, PROTOCOL_VERSION, address.user, address.password, address.vhost, self._heartbeat, client
                ),
                finish,
            )
        )

    def open_channel(self, settler: Settler, reply: Reply) -> ChannelCore:
        """Open the next free channel.

        Raises:
            ResourceLocked: the connection has as many as it may.
            ConnectionFault: it is closed.
        """
        self.check()
        channel = self.new_channel(settler, reply)
        if self.is_up:

            def finish(_: Any) -> None:
                channel.is_open = True

            self._dispatch(Asked(channel, reply, ChannelOpen(0, channel.number), finish))
        return channel

    def close_channel(self, channel: ChannelCore, error: ChannelError, reply: Reply) -> None:
        """Close it; what is still waited for on it fails with `error`, but for this request's own answer."""
        self.check(channel)
        was_open = self.is_up or channel.is_open
        self.end_channel(channel, error)

        def finish(_: Any) -> None:
            self.free(channel)

        if was_open:
            self._dispatch(Asked(None, reply, ChannelClose(0, channel.number), finish))
        else:
            self.free(channel)
            reply.set_result(None)

    def request(self, kind: Callable[..., Operation], channel: ChannelCore, reply: Reply, *fields: Any) -> None:
        """Ask for anything that is answered by an Ok.

        Args:
            kind: the operation; its first two fields are the request number and the channel.
            channel: on which.
            reply: gets the Ok's result.
            fields: the operation's other fields.

        Raises:
            ShardmqError: channel or connection are closed.
        """
        self.check(channel)
        self._ask(Asked(channel, reply, kind(0, channel.number, *fields), None))

    def consume(self, channel: ChannelCore, operation: BasicConsume, inbox: Inbox, reply: Reply) -> None:
        """Start a consumer; the reply gets its tag, the inbox every delivery behind it."""
        self.check(channel)

        def finish(result: Any) -> str:
            tag = started_consumer(result)
            if reply.done():
                self._cancel_unheard(channel, tag, reply, operation.auto_ack)
            else:
                channel.inboxes[tag] = inbox
                channel.consumers[tag] = replace(operation, consumer=tag)
                if not operation.auto_ack:
                    channel.manual.add(tag)
            return tag

        self._ask(Asked(channel, reply, operation, finish))

    def cancel(self, channel: ChannelCore, tag: str, reply: Reply) -> None:
        """End a consumer; its inbox is told when the last delivery has come."""
        self.check(channel)

        def finish(_: Any) -> None:
            self.end_consumer(channel, tag, None)

        if self.is_up:
            self._ask(Asked(channel, reply, BasicCancel(0, channel.number, tag), finish))
            return
        consumer = channel.consumers.get(tag)
        finish(None)
        if channel.is_open:  # it may be a consumer already in this life
            self._cancel_unheard(channel, tag, reply, consumer is not None and consumer.auto_ack)
        else:
            reply.set_result(None)

    def get(self, channel: ChannelCore, queue: str, auto_ack: bool, reply: Reply) -> None:
        """One message; the reply gets a Delivery or None."""
        self.check(channel)

        def finish(result: Any) -> Delivery | None:
            if result is None:
                return None
            frame = got(result)
            self._shift(channel, frame)
            self._count("consumed", 1)
            if auto_ack:
                return Delivery(frame, AUTO_ACKED)
            channel.unacked.add(frame.tag, frame.tag + frame.count)
            if reply.done():
                self._give_back(channel, frame)
            return Delivery(frame, channel.settler)

        self._ask(Asked(channel, reply, BasicGet(0, channel.number, queue, auto_ack), finish))

    def recover(self, channel: ChannelCore, reply: Reply) -> None:
        """Have all that is unacked delivered again; settling what came until then means nothing any more."""
        self.check(channel)

        def finish(_: Any) -> None:
            channel.stale_tag = channel.last_tag  # the broker answers before it delivers anything again
            channel.unacked.clear()

        self._ask(Asked(channel, reply, BasicRecover(0, channel.number), finish))

    def publish(self, channel: ChannelCore, run: Run, confirms: Confirms) -> None:
        """Publish a run; `confirms` hears of its messages once. The messages are numbered here, in their order."""
        self.check(channel)
        exchange, routing_key, flags, count, packed, delay_ms, producer, sequence, transaction = run
        if not producer:
            producer, sequence = channel.producer, channel.sequence
            channel.sequence += count
        if self._goes_straight:
            number = self._request + 1
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
            )
            self.outgoing.append(encode_publish(operation))
            self._request = number
            channel.unconfirmed[number] = (confirms, operation)
        else:
            operation = BasicPublish(
                0,
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
            )
            channel.held.append((confirms, operation))
        self._count("published", count)

    def publish_again(self, channel: ChannelCore) -> None:
        """Publish what was put off on it, in the order of its numbers: with what is held, as much at once as that."""
        if channel.fault is not None or not channel.put_off:
            return
        put_off, channel.put_off = channel.put_off, []
        put_off.sort(key=lambda entry: entry[1].sequence)
        channel.held.extend(put_off)
        self._goes_straight = False
        if self.is_holding:
            self.pump()

    def flush_settlements(self, channel: ChannelCore) -> None:
        """Tell the broker what was acked and nacked."""
        if channel.fault is not None or not channel.settlements.count:
            return
        frames, acked, nacked, ranges = channel.settlements.take(channel.number, channel.stale_tag, channel.tag_offset)
        self.outgoing += frames
        for first, last in ranges:
            channel.unacked.remove(first, last + 1)
        if self._meter is not None:
            self._meter.count("acked", acked)
            self._meter.count("nacked", nacked)

    def renew(self, channel: ChannelCore, first: int, last: int) -> None:
        """Begin the acknowledgement timeout of those that are still unacked anew."""
        held: TagRanges = [(start, end - 1) for start, end in channel.unacked.within(first, last + 1)]
        if held:
            self._send(BasicRenew(channel.number, shifted(held, channel.tag_offset)))

    def heartbeat(self) -> None:
        """A sign of life."""
        self.outgoing.append(_HEARTBEAT)

    def close(self, error: ConnectionLost) -> None:
        """Say goodbye; everything waiting fails with `error`. The server closes the socket when all was sent."""
        if self.fault is None:
            self._send(ConnectionClose(0, "closed by the client"))
            self.lose(error)

    def accuse(self, fault: ProtocolError) -> None:
        """Tell the server what was wrong with what it sent; the last thing said."""
        self._send(ConnectionClose(int(fault.code), fault.text))

    # --- losing it, and having it back --------------------------------------------------------------------------------

    def break_off(self, error: ShardmqError) -> bool:
        """The socket is gone. Whether the core waits for another one; if not, everybody waiting was told."""
        if self.fault is not None:
            return False
        if not (self._recovers and self.is_open and isinstance(error, ConnectionLost)):
            self.lose(error)
            return False
        if self._restoring is not None:
            self._restoring.abandon()
            self._restoring = None
        was_up = self.is_up
        self.is_up = self._goes_straight = False
        self.blocked = None
        self._lost = error
        self._reader = FrameReader(HEARD_BYTES_MAX)
        self.outgoing.clear()
        replies, self._replies = self._replies, {}
        asked_again: dict[int, list[tuple[int, Asked]]] = {}
        for number, asked in replies.items():
            if self._outlives(asked, error):
                assert asked.channel is not None
                asked_again.setdefault(asked.channel.number, []).append((number, asked))
        for channel in list(self._channels.values()):
            channel.break_off(asked_again.get(channel.number, []))
        if was_up:
            self._observer.lost(error)
        return True

    def lose(self, error: ShardmqError) -> None:
        """The connection is gone for good: everybody waiting is told, once."""
        if self.fault is not None:
            return
        self.fault = error
        self.is_up = self._goes_straight = False
        if self._restoring is not None:
            self._restoring.is_over = True
        replies, self._replies = self._replies, {}
        for asked in replies.values():
            if not asked.reply.done():
                asked.reply.set_exception(again(error))
        for channel in list(self._channels.values()):
            self.end_channel(channel, error)
        self._channels.clear()
        self._observer.lost(error)

    @property
    def is_resting(self) -> bool:
        """Whether `rested` is to be called in a moment."""
        return self._restoring is not None and self._restoring.is_resting

    def rested(self) -> None:
        """Go on with what could not be made again a moment ago."""
        if self._restoring is not None and self._restoring.is_resting:
            self._restoring.rested()

    def ask_at_once(self, kind: Callable[..., Operation], channel: ChannelCore, reply: Reply, *fields: Any) -> None:
        """Ask before everything that is held."""
        self._dispatch(Asked(channel, reply, kind(0, channel.number, *fields), None))

    def rename_queue(self, old: str, new: str) -> None:
        """A queue that the server named has another name in this life."""
        self.declared.rename_queue(old, new)
        for channel in self._channels.values():
            for tag, consumer in channel.consumers.items():
                if consumer.queue == old:
                    channel.consumers[tag] = replace(consumer, queue=new)
        first = next((name for name, last in self._renamed.items() if last == old), old)
        self._renamed[first] = new

    def restored(self, failures: list[str]) -> None:
        """All is as it was: what was held is sent."""
        self._restoring = None
        self._lost = None
        self.is_up = True
        renamed, self._renamed = self._renamed, {}
        self.pump()
        self._count("recovered", 1)
        self._observer.recovered(Recovered(str(self.address), renamed, failures))

    def _cancel_unheard(self, channel: ChannelCore, tag: str, reply: Reply, auto_ack: bool) -> None:
        """Cancel a consumer that nobody hears: what comes until it is cancelled returns, unless it is acked already."""
        if auto_ack:
            channel.unheard.add(tag)

        def finish(_: Any) -> None:
            channel.unheard.discard(tag)

        self._dispatch(Asked(channel, reply, BasicCancel(0, channel.number, tag), finish))

    def _outlives(self, asked: Asked, error: ShardmqError) -> bool:
        """Whether a request under way is asked again; if not, it was settled."""
        reply, operation = asked.reply, asked.operation
        kind = type(operation).__name__
        if reply.done() and kind not in ENDED_BY_LOSS:
            return False
        if kind in ENDED_BY_LOSS:
            self._carried_out_by_loss(asked)
            return False
        if kind == "ChannelOpen":
            assert asked.channel is not None
            asked.channel.opening = reply
            return False
        if asked.channel is not None and survives_loss(operation):
            asked.is_repeated = True
            return True
        text = f"{error.text}; {kind} was under way, and may have been carried out or not"
        reply.set_exception(ConnectionLost(text, error.code))
        return False

    def _carried_out_by_loss(self, asked: Asked) -> None:
        if asked.finish is not None:
            asked.finish(None)
        if not asked.reply.done():
            asked.reply.set_result(None)


def client_properties() -> dict[str, Any]:
    """What the server is told of this program."""
    return {"product": "shardmq-python", "python": sys.version.split()[0], "pid": os.getpid()}
