"""Acks and nacks of a channel: counted, and flushed before the event loop waits again."""

from collections.abc import Callable

from shardmq.client.aio.transport import Transport
from shardmq.client.api.message import Delivery
from shardmq.client.core.acknowledgements import TagVerbs
from shardmq.client.core.channel import SettlerCore
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.interfaces import Reply, again
from shardmq.client.core.validation import check_nack, check_tag


class ChannelSettler(SettlerCore):
    """Passes the acks and nacks of one channel on to the broker.

    Args:
        connection: the connection's core.
        transport: the connection's.
        send_published: sends what the channel's publishers are collecting.
    """

    __slots__ = ("_connection", "_is_due", "_send_published", "_transport")

    def __init__(self, connection: ConnectionCore, transport: Transport, send_published: Callable[[], None]) -> None:
        super().__init__()
        self._connection = connection
        self._transport = transport
        self._send_published = send_published
        self._is_due = False

    def open(self, opened: Reply[None]) -> None:
        """Open the channel; the reply is settled when the broker has."""
        self.core = self._connection.open_channel(self, opened)
        self._transport.transmit()

    def ack_one(self, tag: int) -> None:
        """Ack a delivery tag."""
        core = self.core
        if core.fault is not None:
            raise again(core.fault)
        singles = core.acknowledgements.singles
        singles.append(tag)
        if len(singles) >= self._ack_at:
            self.flush()
        elif not self._is_due:
            self._is_due = True
            self._transport.due(self.flush_due)

    def ack(self, first: int, last: int) -> None:
        """Ack the delivery tags first to last."""
        core = self.core
        if core.fault is not None:
            raise again(core.fault)
        core.acknowledgements.ack(first, last)
        if core.acknowledgements.count >= self._ack_at:
            self.flush()
        elif not self._is_due:
            self._is_due = True
            self._transport.due(self.flush_due)

    def nack(self, first: int, last: int, requeue: bool, delay_ms: int = 0) -> None:
        """Nack the delivery tags first to last; at once, as others may be waiting for them."""
        if self.core.fault is not None:
            raise again(self.core.fault)
        check_nack(requeue, delay_ms)
        self.core.acknowledgements.nack(first, last, requeue, delay_ms)
        self.flush()

    def put_back(self, first: int, last: int) -> None:
        """Give back the delivery tags first to last, of which the program has seen nothing; at once."""
        if self.core.fault is not None:
            raise again(self.core.fault)
        self._connection.put_back(self.core, first, last)
        self.flush()

    def renew(self, first: int, last: int) -> None:
        """Begin the acknowledgement timeout of those delivery tags that are unacked anew."""
        if self.core.fault is not None:
            raise again(self.core.fault)
        self.flush()
        self._connection.renew(self.core, first, last)
        self._transport.transmit()

    def requeue_unseen(self, delivery: Delivery, first: int) -> None:
        """Give back a delivery's messages from delivery tag `first` on, if it is not too late."""
        frame = delivery.frame
        first, last = max(first, frame.tag), frame.tag + frame.count - 1
        if delivery.settler is self and first <= last and self.core.fault is None:
            self.put_back(first, last)

    def tags(self, delivery_tag: int, multiple: bool) -> list[tuple[int, int]]:
        """The ranges of delivery tags that a RabbitMQ verb means.

        Raises:
            TypeError: the tag is no int.
            PreconditionFailed: no message can have it.
        """
        check_tag(delivery_tag, multiple)
        if not multiple:
            return [(delivery_tag, delivery_tag)]
        self.flush()
        return self.core.unacked_up_to(delivery_tag)

    def is_stale(self, delivery: Delivery) -> bool:
        """Whether all of a delivery is the broker's again, and will be delivered again."""
        frame = delivery.frame
        is_earlier = frame.tag + frame.count - 1 <= self.core.stale_tag and delivery.settler is self
        comes_again = frame.offset is None or frame.partition is not None  # what was read of a stream does not
        return is_earlier and comes_again

    def is_unsettled(self, tag: int) -> bool:
        """Whether a message is unacked."""
        self.flush()
        return tag in self.core.unacked

    def taken(self, delivery: Delivery) -> None:
        """Count a delivery as in the program's hands."""
        self._transport.taken(self.core, delivery.size)

    def flush(self) -> None:
        """Send the publishes and acks that are being collected, without waiting for anything."""
        self._send_published()
        if self.core.acknowledgements.count:
            self._connection.flush_acknowledgements(self.core)
            self._transport.transmit()

    def flush_due(self) -> None:
        """Send the acks that are being collected, for the event loop."""
        self._is_due = False
        self.flush()


class SettleRequests(TagVerbs):
    """RabbitMQ's verbs for acks and nacks by delivery tag: part of a channel."""

    _settler: ChannelSettler
