"""Acks and nacks of a channel: counted, lingering a moment for one another, flushed."""

import threading
import time
from collections.abc import Callable
from typing import Final

from shardmq.client.api.message import Delivery
from shardmq.client.core.acknowledgements import TagVerbs
from shardmq.client.core.channel import SettlerCore
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.interfaces import Reply, again
from shardmq.client.core.validation import check_nack, check_tag
from shardmq.client.sync.transport import Transport

ACK_LINGER_SECONDS: Final = 0.004
"""How long acks may wait for one another otherwise. Each way to the broker costs it, and whoever shares its processors,
a pass; nobody waits for an ack unless the prefetch is used up."""


class ChannelSettler(SettlerCore):
    """Passes the acks and nacks of one channel on to the broker. Safe from several threads.

    Args:
        connection: the connection's core.
        transport: the connection's.
        send_published: sends what the channel's publishers are collecting.
    """

    __slots__ = (
        "_connection",
        "_due_at",
        "_is_due",
        "_lock",
        "_send_published",
        "_transport",
    )

    def __init__(self, connection: ConnectionCore, transport: Transport, send_published: Callable[[], None]) -> None:
        super().__init__()
        self._connection = connection
        self._transport = transport
        self._send_published = send_published
        self._lock = threading.Lock()  # guards the acknowledgements
        self._is_due = False
        self._due_at = 0.0

    def open(self, opened: Reply[None]) -> None:
        """Open the channel; the reply is settled when the broker has."""
        with self._transport.lock, self._transport.uninterrupted:
            self.core = self._connection.open_channel(self, opened)
            self._transport.transmit()

    def ack_one(self, tag: int) -> None:
        """Ack a delivery tag. The quick way of a consumer's loop: no lock."""
        core = self.core
        if core.fault is not None:
            raise again(core.fault)
        singles = core.acknowledgements.singles
        singles.append(tag)
        if len(singles) >= self._ack_at:
            self.flush()
        elif not self._is_due:
            self._become_due()

    def ack(self, first: int, last: int) -> None:
        """Ack the delivery tags first to last."""
        with self._lock:
            core = self.core
            if core.fault is not None:
                raise again(core.fault)
            core.acknowledgements.ack(first, last)
            if core.acknowledgements.count >= self._ack_at:
                self._flush_acknowledgements()
            elif not self._is_due:
                self._become_due()

    def nack(self, first: int, last: int, requeue: bool, delay_ms: int = 0) -> None:
        """Nack the delivery tags first to last; at once, as others may be waiting for them."""
        check_nack(requeue, delay_ms)
        with self._lock:
            if self.core.fault is not None:
                raise again(self.core.fault)
            self.core.acknowledgements.nack(first, last, requeue, delay_ms)
            self._flush_acknowledgements()

    def put_back(self, first: int, last: int) -> None:
        """Give back the delivery tags first to last, of which the program has seen nothing; at once."""
        with self._lock:
            if self.core.fault is not None:
                raise again(self.core.fault)
            self._connection.put_back(self.core, first, last)
            self._flush_acknowledgements()

    def renew(self, first: int, last: int) -> None:
        """Begin the acknowledgement timeout of those delivery tags that are unacked anew."""
        with self._lock:
            if self.core.fault is not None:
                raise again(self.core.fault)
            self._flush_acknowledgements()
            with self._transport.lock, self._transport.uninterrupted:
                self._connection.renew(self.core, first, last)
                self._transport.transmit()

    def requeue_unseen(self, delivery: Delivery, first: int) -> None:
        """Give back a delivery's messages from delivery tag `first` on, if it is not too late."""
        frame = delivery.frame
        first, last = max(first, frame.tag), frame.tag + frame.count - 1
        if delivery.settler is not self or first > last:
            return
        with self._lock:
            if self.core.fault is None:
                self._connection.put_back(self.core, first, last)
                self._flush_acknowledgements()

    def tags(self, delivery_tag: int, multiple: bool) -> list[tuple[int, int]]:
        """The ranges of delivery tags that a RabbitMQ verb means.

        Raises:
            TypeError: the tag is no int.
            PreconditionFailed: no message can have it.
        """
        check_tag(delivery_tag, multiple)
        if not multiple:
            return [(delivery_tag, delivery_tag)]
        with self._lock:
            self._flush_acknowledgements()
            with self._transport.lock:
                return self.core.unacked_up_to(delivery_tag)

    def is_stale(self, delivery: Delivery) -> bool:
        """Whether all of a delivery is the broker's again, and will be delivered again."""
        frame = delivery.frame
        is_earlier = frame.tag + frame.count - 1 <= self.core.stale_tag and delivery.settler is self
        comes_again = frame.offset is None or frame.partition is not None  # what was read of a stream does not
        return is_earlier and comes_again

    def is_unsettled(self, tag: int) -> bool:
        """Whether a message is unacked."""
        with self._lock:
            self._flush_acknowledgements()
            with self._transport.lock:
                return tag in self.core.unacked

    def taken(self, delivery: Delivery) -> None:
        """Count a delivery as in the program's hands."""
        self._transport.taken(self.core, delivery.size)

    def flush(self) -> None:
        """Send the publishes and acks that are being collected, without waiting for anything."""
        self._send_published()
        if self.core.acknowledgements.count:
            with self._lock:
                self._flush_acknowledgements()

    def flush_acks(self) -> None:
        """Send the acks that are being collected, without waiting for anything; on any thread."""
        with self._lock:
            self._flush_acknowledgements()

    def flush_due(self) -> None:
        """Send the acks that are being collected, for the I/O thread."""
        with self._lock:
            if time.monotonic() < self._due_at and self.core.fault is None:
                self._transport.due(self.flush_due)
                return
            self._is_due = False
            self._flush_acknowledgements()

    def _become_due(self) -> None:
        self._is_due = True
        self._due_at = time.monotonic() + ACK_LINGER_SECONDS
        self._transport.due(self.flush_due)

    def _flush_acknowledgements(self) -> None:
        if self.core.acknowledgements.count:
            with self._transport.lock, self._transport.uninterrupted:
                self._connection.flush_acknowledgements(self.core)
                self._transport.transmit(is_awaited=True)


class SettleRequests(TagVerbs):
    """RabbitMQ's verbs for acks and nacks by delivery tag: part of a channel."""

    _settler: ChannelSettler
