"""A channel: RabbitMQ's verbs, for any thread."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self, cast

from shardmq.client.arguments import check_names, check_prefetch
from shardmq.client.consuming import CallbackWorker, batches, messages
from shardmq.client.core import Core, again
from shardmq.client.deliveries import Batch, Delivery, Message
from shardmq.client.io_thread import IoThread
from shardmq.client.ports import Inbox
from shardmq.client.publisher import WINDOW, Publisher
from shardmq.client.results import MessageCount, QueueDeclared, result_of
from shardmq.client.runs import flags_of, record_of
from shardmq.client.waiting import Answer, DeliveryQueue
from shardmq.errors import ChannelError, ConnectionFault, NotFound, ShardmqError
from shardmq.records import Properties
from shardmq.wire.operations import (
    BasicQos,
    ExchangeDeclare,
    ExchangeDelete,
    Operation,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
    StatusGet,
    TopologyList,
)

PREFETCH: Final = 1000
"""Messages a consumer holds unacked, unless told otherwise: enough to hide the way to the broker and back."""

ACK_AT_MOST: Final = 1000
"""Acks are sent when there are so many, or half a prefetch."""

ACK_LINGER_SECONDS: Final = 0.004
"""How long acks may wait for one another otherwise. Each way to the broker costs it, and whoever shares its processors,
a pass; nobody waits for an ack unless the prefetch is used up."""


class Channel:
    """Made by `Connection.channel`. Its requests are carried out in the order they were made.

    A context manager: leaving it closes the channel. Each method may raise Timeout when no answer comes in the
    connection's timeout, ChannelError when the channel is closed, and ConnectionFault (mostly ConnectionLost) when the
    connection is.
    """

    def __init__(self, core: Core, io: IoThread, timeout: float, forget: Callable[["Channel"], None]) -> None:
        self._connection = core
        self._io = io
        self._timeout = timeout
        self._forget = forget
        self._lock = threading.Lock()  # guards the settlements
        self._is_due = False
        self._due_at = 0.0
        self._ack_at = ACK_AT_MOST
        self._prefetches: dict[str, int] = {}
        self._publishers: list[Publisher] = []
        opened = Answer()
        with io.lock:
            self._core = core.open_channel(self, opened)
            io.transmit()
        self._worker = CallbackWorker(self, f"shardmq channel {self.number}", self._fail)
        io.wait(opened, timeout, f"opening channel {self.number}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.is_open:
            self.close()

    def __repr__(self) -> str:
        return f"<Channel {self.number}, {'open' if self.is_open else 'closed'}>"

    @property
    def number(self) -> int:
        """Its number on the connection."""
        return self._core.number

    @property
    def is_open(self) -> bool:
        """Whether it can be used."""
        return self._core.fault is None

    # --- topology ---------------------------------------------------------------------------------------------------

    def exchange_declare(
        self,
        exchange: str,
        exchange_type: str = "direct",
        durable: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Make an exchange, or find the same one there.

        Args:
            exchange: its name.
            exchange_type: direct, fanout or topic.
            durable: whether it survives a restart.
            arguments: none are known yet.

        Raises:
            PreconditionFailed: there is one of that name with other settings.
        """
        check_names(exchange=exchange, exchange_type=exchange_type)
        self._request(ExchangeDeclare, exchange, exchange_type, durable, dict(arguments or {}))

    def exchange_delete(self, exchange: str) -> None:
        """Remove an exchange and its bindings."""
        check_names(exchange=exchange)
        self._request(ExchangeDelete, exchange)

    def queue_declare(
        self, queue: str, durable: bool = False, arguments: Mapping[str, Any] | None = None
    ) -> QueueDeclared:
        """Make a queue, or find the same one there.

        Args:
            queue: its name.
            durable: whether it, and the persistent messages in it, survive a restart.
            arguments: none are known yet.

        Returns:
            Its name, how many messages are ready in it, and how many consumers it has.

        Raises:
            PreconditionFailed: there is one of that name with other settings.
        """
        check_names(queue=queue)
        return result_of(QueueDeclared, self._request(QueueDeclare, queue, durable, dict(arguments or {})))

    def queue_delete(self, queue: str) -> int:
        """Remove a queue and its bindings; returns how many messages went with it."""
        check_names(queue=queue)
        return result_of(MessageCount, self._request(QueueDelete, queue)).messages

    def queue_bind(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        """Let a queue have what is published to an exchange with a routing key that matches."""
        check_names(queue=queue, exchange=exchange, routing_key=routing_key)
        self._request(QueueBind, queue, exchange, routing_key, dict(arguments or {}))

    def queue_unbind(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        """Remove a binding; nothing happens when there is none."""
        check_names(queue=queue, exchange=exchange, routing_key=routing_key)
        self._request(QueueUnbind, queue, exchange, routing_key, dict(arguments or {}))

    def queue_purge(self, queue: str) -> int:
        """Remove a queue's ready messages; returns how many."""
        check_names(queue=queue)
        return result_of(MessageCount, self._request(QueuePurge, queue)).messages

    # --- publishing -------------------------------------------------------------------------------------------------

    def basic_publish(self, exchange: str, routing_key: str, body: bytes, properties: Properties | None = None) -> None:
        """Publish one message; returns when it is confirmed: in every queue it was routed to, on disk where durable.

        Args:
            exchange: where to, "" for the default exchange.
            routing_key: what the exchange's bindings are matched with.
            body: the message.
            properties: of the message; persistent unless their delivery_mode is 1.

        Raises:
            TypeError: the body is not bytes.
            ContentTooLarge: over the message limit.
            NotFound: no such exchange.
            PublishRefused: the broker did not take it, or not in every queue.
        """
        check_names(exchange=exchange, routing_key=routing_key)
        record = record_of(body, properties)
        if self._publishers:
            self._send_published()
        confirmed = Answer()
        with self._io.lock:
            self._connection.publish(self._core, exchange, routing_key, flags_of(properties), 1, record, confirmed)
            self._io.transmit()
        self._io.wait(confirmed, self._timeout, f"publishing to '{exchange}'")

    def publisher(self, window: int = WINDOW, timeout: float | None = None) -> Publisher:
        """A publisher for many messages: it does not wait for each one's confirm.

        Args:
            window: messages unconfirmed at most; publishing waits beyond it.
            timeout: seconds to wait for the window or a flush; the connection's when None.
        """
        publisher = Publisher(self._connection, self._io, self._core, window,
                              self._timeout if timeout is None else timeout, self._forget_publisher)  # fmt: skip
        self._publishers.append(publisher)
        return publisher

    # --- consuming --------------------------------------------------------------------------------------------------

    def consume(
        self, queue: str, prefetch: int = PREFETCH, auto_ack: bool = False, inactivity_timeout: float | None = None
    ) -> Iterator[Message]:
        """Consume a queue's messages, as a generator: leaving its loop or closing it cancels the consumer, and gives
        back what was not handed out.

        Args:
            queue: whose messages.
            prefetch: messages unacked at most, 0 for no limit.
            auto_ack: messages are done with when the broker sends them.
            inactivity_timeout: seconds without a message after which the iteration ends; None for never.

        Raises:
            NotFound: no such queue; in the iteration: the queue was deleted.
        """
        tag, inbox = self._begin(queue, prefetch, auto_ack)
        loop = messages(self, tag, inbox, inactivity_timeout)
        next(loop)
        return cast("Iterator[Message]", loop)

    def consume_batches(
        self, queue: str, prefetch: int = PREFETCH, auto_ack: bool = False, inactivity_timeout: float | None = None
    ) -> Iterator[Batch]:
        """As `consume`, but the messages come in batches, as they travelled: for bulk work."""
        tag, inbox = self._begin(queue, prefetch, auto_ack)
        loop = batches(self, tag, inbox, inactivity_timeout)
        next(loop)
        return cast("Iterator[Batch]", loop)

    def basic_consume(
        self,
        queue: str,
        callback: Callable[[Message], object],
        prefetch: int = PREFETCH,
        auto_ack: bool = False,
        consumer_tag: str = "",
    ) -> str:
        """Have a callback called with each message, on a thread of the channel's: one call at a time.

        A callback that raises closes the channel: its unacked messages return, and the next use of it tells why.

        Returns:
            The consumer's tag.

        Raises:
            NotFound: no such queue.
        """
        inbox = self._worker.inbox(callback)
        try:
            return self._consume(queue, prefetch, auto_ack, inbox, consumer_tag)
        except ShardmqError as error:
            inbox.end(error)
            raise

    def basic_cancel(self, consumer_tag: str) -> None:
        """End a consumer. What it was handed stays unacked until it is acked; what it was not handed returns."""
        check_names(consumer_tag=consumer_tag)
        self.flush()
        cancelled = Answer()
        with self._io.lock:
            self._connection.cancel(self._core, consumer_tag, cancelled)
            self._io.transmit()
        self._prefetches.pop(consumer_tag, None)
        self._io.wait(cancelled, self._timeout, f"cancelling consumer '{consumer_tag}'")

    def basic_get(self, queue: str, auto_ack: bool = False) -> Message | None:
        """One message; None when the queue is empty.

        Raises:
            NotFound: no such queue.
        """
        check_names(queue=queue)
        self.flush()
        got = Answer()
        with self._io.lock:
            self._connection.get(self._core, queue, auto_ack, got)
            self._io.transmit()
        delivery = self._io.wait(got, self._timeout, f"getting from queue '{queue}'")
        return delivery.messages()[0] if isinstance(delivery, Delivery) else None

    def basic_ack(self, delivery_tag: int = 0, multiple: bool = False) -> None:
        """Ack a message, or with `multiple` all up to it (0: all there are).

        A tag that is not unacked on this channel closes the channel, as in RabbitMQ.
        """
        for first, last in self._tags(delivery_tag, multiple):
            self.settle(first, last)

    def basic_nack(self, delivery_tag: int = 0, multiple: bool = False, requeue: bool = True) -> None:
        """Give a message back to its place, or drop it; with `multiple` all up to it (0: all there are)."""
        for first, last in self._tags(delivery_tag, multiple):
            self.give_back(first, last, requeue)

    def basic_qos(self, consumer_tag: str, prefetch: int) -> None:
        """Change a consumer's prefetch while it runs."""
        check_names(consumer_tag=consumer_tag)
        check_prefetch(prefetch)
        self._request(BasicQos, consumer_tag, prefetch)
        self._note_prefetch(consumer_tag, prefetch)

    # --- the rest ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close it: consumers end, what is unacked returns. Does nothing when it is closed."""
        if not self.is_open:
            self._forget(self)
            return
        self._close(ChannelError(f"channel {self.number} was closed by this program"))

    def status(self) -> Any:
        """See `Connection.status`."""
        return self._request(StatusGet)

    def topology(self, noun: str) -> Any:
        """See `Connection.topology`."""
        check_names(noun=noun)
        return self._request(TopologyList, noun)

    def flush(self) -> None:
        """Send the publishes and acks that are being collected, without waiting for anything."""
        if self._publishers:
            self._send_published()
        if self._core.settlements.count:
            with self._lock:
                self._flush_settlements()

    def settle_one(self, tag: int) -> None:
        """Ack a delivery tag. The quick way of a consumer's loop: no lock."""
        core = self._core
        if core.fault is not None:
            raise again(core.fault)
        singles = core.settlements.singles
        singles.append(tag)
        if len(singles) >= self._ack_at:
            self.flush()
        elif not self._is_due:
            self._become_due()

    def settle(self, first: int, last: int) -> None:
        """Ack the delivery tags first to last."""
        with self._lock:
            core = self._core
            if core.fault is not None:
                raise again(core.fault)
            settlements = core.settlements
            settlements.ack(first, last)
            if settlements.count >= self._ack_at:
                self._flush_settlements()
            elif not self._is_due:
                self._become_due()

    def give_back(self, first: int, last: int, requeue: bool) -> None:
        """Nack the delivery tags first to last; at once, others may be waiting for them."""
        with self._lock:
            if self._core.fault is not None:
                raise again(self._core.fault)
            self._core.settlements.nack(first, last, requeue)
            self._flush_settlements()

    def _become_due(self) -> None:
        self._is_due = True
        self._due_at = time.monotonic() + ACK_LINGER_SECONDS
        self._io.due(self)

    def flush_due(self) -> None:
        """Send the acks that are being collected, for the I/O thread."""
        with self._lock:
            if time.monotonic() < self._due_at and self._core.fault is None:
                self._io.due(self)
                return
            self._is_due = False
            self._flush_settlements()

    def took(self, delivery: Delivery) -> None:
        """A delivery is in the program's hands."""
        self._io.taken(delivery.size)

    def end_consumer(self, tag: str, inbox: DeliveryQueue) -> None:
        """Cancel, and give back all that is in the inbox. Nothing is left to do where the channel is gone."""
        if not self.is_open or sys.is_finalizing():  # at exit the I/O thread has stopped; nobody would answer
            return
        try:
            self.basic_cancel(tag)
        except (ChannelError, ConnectionFault, NotFound):
            self._prefetches.pop(tag, None)
        for delivery in inbox.drain():
            self.took(delivery)
            self.return_unseen(delivery, delivery.frame.tag)

    def return_unseen(self, delivery: Delivery, first: int) -> None:
        """Give back a delivery's messages from delivery tag `first` on, if it is not too late."""
        frame = delivery.frame
        first, last = max(first, frame.tag), frame.tag + frame.count - 1
        if delivery.settler is not self or first > last:
            return
        with self._lock:
            if self._core.fault is None:
                self._core.settlements.nack(first, last, True)
                self._flush_settlements()

    def _begin(self, queue: str, prefetch: int, auto_ack: bool) -> tuple[str, DeliveryQueue]:
        inbox = DeliveryQueue()
        return self._consume(queue, prefetch, auto_ack, inbox, ""), inbox

    def _consume(self, queue: str, prefetch: int, auto_ack: bool, inbox: Inbox, consumer_tag: str) -> str:
        check_names(queue=queue, consumer_tag=consumer_tag)
        check_prefetch(prefetch)
        self.flush()
        consuming = Answer()
        with self._io.lock:
            self._connection.consume(self._core, queue, consumer_tag, auto_ack, prefetch, inbox, consuming)
            self._io.transmit()
        tag: str = self._io.wait(consuming, self._timeout, f"consuming queue '{queue}'")
        self._note_prefetch(tag, 0 if auto_ack else prefetch)
        return tag

    def _note_prefetch(self, tag: str, prefetch: int) -> None:
        self._prefetches[tag] = prefetch
        limits = [held // 2 for held in self._prefetches.values() if held]
        self._ack_at = max(min([ACK_AT_MOST, *limits]), 1)

    def _request(self, kind: Callable[..., Operation], *fields: Any) -> Any:
        self.flush()
        answer = Answer()
        with self._io.lock:
            self._connection.request(kind, self._core, answer, *fields)
            self._io.transmit()
        return self._io.wait(answer, self._timeout, getattr(kind, "__name__", "request"))

    def _tags(self, delivery_tag: int, multiple: bool) -> list[tuple[int, int]]:
        if not multiple:
            return [(delivery_tag, delivery_tag)]
        with self._lock:
            self._flush_settlements()
            with self._io.lock:
                return self._core.unacked_up_to(delivery_tag)

    def _flush_settlements(self) -> None:
        if self._core.settlements.count:
            with self._io.lock:
                self._connection.flush_settlements(self._core)
                self._io.transmit()

    def _send_published(self) -> None:
        for publisher in list(self._publishers):
            publisher.send()

    def _forget_publisher(self, publisher: Publisher) -> None:
        if publisher in self._publishers:
            self._publishers.remove(publisher)

    def _fail(self, fault: Exception) -> None:
        error = ChannelError(f"channel {self.number} was closed because a consumer's callback raised {fault!r}")
        error.__cause__ = fault
        if self.is_open:
            self._close(error)

    def _close(self, error: ChannelError) -> None:
        self.flush()
        closed = Answer()
        try:
            with self._io.lock:
                self._connection.close_channel(self._core, error, closed)
                self._io.transmit()
            self._io.wait(closed, self._timeout, f"closing channel {self.number}")
        finally:
            self._forget(self)
