"""A channel: RabbitMQ's verbs, for any thread."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

from shardmq.client.api.defaults import ACK_AT_MOST, CLOSE_SECONDS, PREFETCH, WINDOW
from shardmq.client.api.handler_errors import OnError, check_handler
from shardmq.client.api.message import Batch, Delivery, Message
from shardmq.client.core.batching import flags_of, record_of
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.interfaces import Inbox, again
from shardmq.client.core.requests import Request
from shardmq.client.core.validation import (
    check_delay,
    check_names,
    check_prefetch,
    check_tag,
    consumer_arguments,
    producer_number,
)
from shardmq.client.sync.answers import DeliveryQueue, PendingAnswer
from shardmq.client.sync.consumer import HandlerInbox, Marks, batches, messages, strand_of
from shardmq.client.sync.publisher import Publisher
from shardmq.client.sync.topology import TopologyRequests
from shardmq.client.sync.transaction import Transaction
from shardmq.client.sync.transport import Transport
from shardmq.client.sync.workers import WorkerPool
from shardmq.errors import ChannelError, ConnectionFault, NotFound, Timeout
from shardmq.message.properties import Properties
from shardmq.protocol.native.operations.basic import BasicConsume, BasicQos
from shardmq.protocol.native.operations.fields import Operation

T = TypeVar("T")


ACK_LINGER_SECONDS: Final = 0.004
"""How long acks may wait for one another otherwise. Each way to the broker costs it, and whoever shares its processors,
a pass; nobody waits for an ack unless the prefetch is used up."""


class Channel(TopologyRequests):
    """Made by `Connection.channel`. Its requests are carried out in the order they were made.

    A context manager: leaving it closes the channel. Each method may raise Timeout when no answer comes in the
    connection's timeout, ChannelError when the channel is closed, and ConnectionFault (mostly ConnectionLost) when the
    connection is.

    While the connection is being recovered, methods wait for that, within their timeout. What was published and not
    confirmed is sent again, and stored once; what was delivered and not acked is delivered again, and acking the first
    copy does nothing. ConnectionLost is raised only by what was under way and may not be done twice (`basic_get`,
    `queue_purge`).
    """

    def __init__(
        self,
        core: ConnectionCore,
        io: Transport,
        workers: WorkerPool,
        timeout: float,
        has_return_hook: Callable[[], bool],
        forget: Callable[["Channel"], None],
    ) -> None:
        self._connection = core
        self._io = io
        self._timeout = timeout
        self._has_return_hook = has_return_hook
        self._forget = forget
        self._lock = threading.Lock()  # guards the settlements
        self._is_due = False
        self._due_at = 0.0
        self._ack_at = ACK_AT_MOST
        self._prefetches: dict[str, int] = {}
        self._publishers: list[Publisher] = []
        opened = PendingAnswer()
        with io.lock:
            self._core = core.open_channel(self, opened)
            io.transmit()
        self._strand = strand_of(workers, self)
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

    # --- publishing -------------------------------------------------------------------------------------------------

    def basic_publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes,
        properties: Properties | None = None,
        mandatory: bool = False,
        delay_ms: int = 0,
    ) -> None:
        """Publish one message; returns when it is confirmed: in every queue it was routed to, on disk where durable.

        Args:
            exchange: where to, "" for the default exchange.
            routing_key: what the exchange's bindings are matched with.
            body: the message.
            properties: of the message; persistent unless their delivery_mode is 1.
            mandatory: it comes back where no queue takes it.
            delay_ms: it joins its queues so many milliseconds later; it is confirmed when it is on disk.

        Raises:
            TypeError: the body is not bytes.
            ContentTooLarge: over the message limit.
            NotFound: no such exchange.
            PublishRefused: the broker did not take it, or not in every queue.
            Unroutable: it is mandatory and no queue took it; the error carries it.
            Timeout: no confirm in time; the text says whether it was sent.
        """
        check_names(exchange=exchange, routing_key=routing_key)
        if delay_ms:
            check_delay(delay_ms)
        record = record_of(body, properties, self._connection.server.message_max)
        if self._publishers:
            self._send_published()
        confirmed = PendingAnswer()
        run = (exchange, routing_key, flags_of(properties, mandatory), 1, record, delay_ms, 0, 0, 0)
        with self._io.lock:
            self._connection.publish(self._core, run, confirmed)
            self._io.transmit()
        try:
            self._io.wait(confirmed, self._timeout, f"publishing to '{exchange}'")
        except Timeout as late:
            with self._io.lock:
                if self._core.withdraw(confirmed):
                    raise Timeout(f"{late.text}; the message was not sent, and will not be") from late
            raise

    def publisher(
        self, window: int = WINDOW, timeout: float | None = None, producer: str | int | None = None
    ) -> Publisher:
        """A publisher for many messages: it does not wait for each one's confirm.

        Args:
            window: messages unconfirmed at most; publishing waits beyond it.
            timeout: seconds to wait for the window or a flush; the connection's when None.
            producer: a name or number that outlives this program; its messages are published with a `sequence` each,
                rising, and every queue takes each number once. Without it the channel numbers its messages, which
                makes what a recovery sends again harmless, but not what a program sends again when it was restarted.
        """
        publisher = Publisher(
            self._connection,
            self._io,
            self._core,
            window,
            self._timeout if timeout is None else timeout,
            producer_number(producer),
            self._has_return_hook,
            self._forget_publisher,
        )
        self._publishers.append(publisher)
        return publisher

    def transaction(
        self, name: str, timeout_ms: int = 0, window: int = WINDOW, timeout: float | None = None
    ) -> Transaction:
        """Begin a transaction: what is published there appears in its queues whole, or not at all.

        Args:
            name: of it, in this virtual host. Under a name one batch is published, once: to begin a name again that was
                committed (within seven days) does nothing, and one that is open is joined.
            timeout_ms: it is aborted when nobody has begun it for so long; 0 is the broker's default, a day.
            window: messages unconfirmed at most; publishing waits beyond it.
            timeout: seconds that each of its steps may take, and that a message is published again while its shard is
                away; the connection's when None.

        Raises:
            AccessRefused: it is somebody else's.
            NotAllowed: too many are undecided.
            Unavailable: the broker cannot begin it now.
        """
        seconds = self._timeout if timeout is None else timeout
        return Transaction(
            self._connection,
            self._io,
            self._core,
            name,
            timeout_ms,
            window,
            seconds,
            self._has_return_hook,
            self._ask_for,
        )

    # --- consuming --------------------------------------------------------------------------------------------------

    def consume(
        self,
        queue: str,
        prefetch: int = PREFETCH,
        auto_ack: bool = False,
        inactivity_timeout: float | None = None,
        exclusive: bool = False,
        priority: int | None = None,
        arguments: Mapping[str, Any] | None = None,
        timeout_ms: int | None = None,
    ) -> Iterator[Message]:
        """Consume a queue's messages, as a generator: leaving its loop or closing it cancels the consumer, and gives
        back what was not handed out.

        Args:
            queue: whose messages.
            prefetch: messages unacked at most, 0 for no limit.
            auto_ack: messages are done with when the broker sends them.
            inactivity_timeout: seconds without a message after which the iteration ends; None for never.
            exclusive: nobody else may consume the queue.
            priority: of those with room in their prefetch, consumers of the highest get the messages.
            arguments: of the consumer: x-priority, x-consumer-timeout and the like.
            timeout_ms: a message unacked for longer returns, or is dead-lettered where the queue says so.

        Raises:
            NotFound: no such queue; in the iteration: the queue was deleted.
            AccessRefused: somebody consumes it exclusively, or `exclusive` and somebody consumes it.
        """
        tag, inbox = self._begin(
            queue, prefetch, auto_ack, exclusive, consumer_arguments(arguments, priority, timeout_ms)
        )
        loop = messages(self, tag, inbox, inactivity_timeout)
        next(loop)
        return cast("Iterator[Message]", loop)

    def consume_batches(
        self,
        queue: str,
        prefetch: int = PREFETCH,
        auto_ack: bool = False,
        inactivity_timeout: float | None = None,
        exclusive: bool = False,
        priority: int | None = None,
        arguments: Mapping[str, Any] | None = None,
        timeout_ms: int | None = None,
    ) -> Iterator[Batch]:
        """As `consume`, but the messages come in batches, as they travelled: for bulk work."""
        tag, inbox = self._begin(
            queue, prefetch, auto_ack, exclusive, consumer_arguments(arguments, priority, timeout_ms)
        )
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
        exclusive: bool = False,
        priority: int | None = None,
        arguments: Mapping[str, Any] | None = None,
        timeout_ms: int | None = None,
        on_error: OnError = "requeue",
    ) -> str:
        """Have a handler called with each message, on one of the connection's worker threads: a channel's handlers one
        call at a time, in order. One that waits keeps up no other channel, as long as there are workers left.

        Args:
            queue: whose messages.
            callback: the handler. What it raises is logged with the message's id, and `on_error` says what then.
            prefetch: as in `consume`, as are the others not named here.
            auto_ack: as in `consume`.
            consumer_tag: the consumer's name; the server makes one up for "".
            exclusive: as in `consume`.
            priority: as in `consume`.
            arguments: as in `consume`.
            timeout_ms: as in `consume`.
            on_error: for a message whose handler raised and left it unacked: "requeue": it comes again a second later;
                "reject": it is dead-lettered, or dropped where there is no such exchange; "close": the channel is
                closed, its unacked messages return, and the next use of it tells why.

        Returns:
            The consumer's tag.

        Raises:
            As `consume`.
        """
        check_handler(callback, on_error)
        inbox = HandlerInbox(self, self._strand, callback, queue, on_error, self._fail)
        merged = consumer_arguments(arguments, priority, timeout_ms)
        return self._consume(queue, prefetch, auto_ack, inbox, consumer_tag, exclusive, merged)

    def basic_cancel(self, consumer_tag: str) -> None:
        """End a consumer. What it was handed stays unacked until it is acked; what it was not handed returns."""
        check_names(consumer_tag=consumer_tag)
        self.flush()
        cancelled = PendingAnswer()
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
        got = PendingAnswer()
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

    def basic_nack(
        self, delivery_tag: int = 0, multiple: bool = False, requeue: bool = True, delay_ms: int = 0
    ) -> None:
        """Give a message back, as `Message.nack`; with `multiple` all up to it (0: all there are)."""
        for first, last in self._tags(delivery_tag, multiple):
            self.give_back(first, last, requeue, delay_ms)

    def basic_renew(self, delivery_tag: int = 0, multiple: bool = False) -> None:
        """Say that a message is still being worked on, as `Message.renew`; with `multiple` all up to it (0: all)."""
        for first, last in self._tags(delivery_tag, multiple):
            self.renew(first, last)

    def basic_recover(self) -> None:
        """Have everything unacked on this channel delivered again; acking the first copies does nothing any more."""
        self.flush()
        recovered = PendingAnswer()
        with self._io.lock:
            self._connection.recover(self._core, recovered)
            self._io.transmit()
        self._io.wait(recovered, self._timeout, "recovering what is unacked")

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

    def give_back(self, first: int, last: int, requeue: bool, delay_ms: int = 0) -> None:
        """Nack the delivery tags first to last; at once, others may be waiting for them."""
        if delay_ms:
            check_delay(delay_ms)
        with self._lock:
            if self._core.fault is not None:
                raise again(self._core.fault)
            self._core.settlements.nack(first, last, requeue, delay_ms)
            self._flush_settlements()

    def renew(self, first: int, last: int) -> None:
        """Begin the acknowledgement timeout of those that are unacked anew."""
        with self._lock:
            if self._core.fault is not None:
                raise again(self._core.fault)
            self._flush_settlements()
            with self._io.lock:
                self._connection.renew(self._core, first, last)
                self._io.transmit()

    @property
    def marks(self) -> Marks:
        """What consumers' loops look at."""
        return self._core

    def is_stale(self, delivery: Delivery) -> bool:
        """Whether all of a delivery is the broker's again."""
        frame = delivery.frame
        return frame.tag + frame.count - 1 <= self._core.stale_tag and delivery.settler is self

    def is_unsettled(self, tag: int) -> bool:
        """Whether a message is unacked."""
        with self._lock:
            self._flush_settlements()
            with self._io.lock:
                return tag in self._core.unacked

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

    def _begin(
        self, queue: str, prefetch: int, auto_ack: bool, exclusive: bool, arguments: dict[str, Any]
    ) -> tuple[str, DeliveryQueue]:
        inbox = DeliveryQueue()
        return self._consume(queue, prefetch, auto_ack, inbox, "", exclusive, arguments), inbox

    def _consume(
        self,
        queue: str,
        prefetch: int,
        auto_ack: bool,
        inbox: Inbox,
        consumer_tag: str,
        exclusive: bool,
        arguments: dict[str, Any],
    ) -> str:
        check_names(queue=queue, consumer_tag=consumer_tag)
        check_prefetch(prefetch)
        self.flush()
        consuming = PendingAnswer()
        with self._io.lock:
            operation = BasicConsume(0, self.number, queue, consumer_tag, auto_ack, prefetch, arguments, exclusive)
            self._connection.consume(self._core, operation, inbox, consuming)
            self._io.transmit()
        tag: str = self._io.wait(consuming, self._timeout, f"consuming queue '{queue}'")
        self._note_prefetch(tag, 0 if auto_ack else prefetch)
        return tag

    def _note_prefetch(self, tag: str, prefetch: int) -> None:
        self._prefetches[tag] = prefetch
        limits = [held // 2 for held in self._prefetches.values() if held]
        self._ack_at = max(min([ACK_AT_MOST, *limits]), 1)

    def _ask(self, ask: Request[T]) -> T:
        return ask.shape(self._request(ask.kind, *ask.fields))

    def _ask_for(self, ask: Request[T], seconds: float) -> T:
        return ask.shape(self._request(ask.kind, *ask.fields, seconds=seconds))

    def _request(self, kind: Callable[..., Operation], *fields: Any, seconds: float | None = None) -> Any:
        self.flush()
        answer = PendingAnswer()
        with self._io.lock:
            self._connection.request(kind, self._core, answer, *fields)
            self._io.transmit()
        wait = self._timeout if seconds is None else seconds
        return self._io.wait(answer, wait, getattr(kind, "__name__", "request"))

    def _tags(self, delivery_tag: int, multiple: bool) -> list[tuple[int, int]]:
        check_tag(delivery_tag, multiple)
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
        closed = PendingAnswer()
        try:
            with self._io.lock:
                self._connection.close_channel(self._core, error, closed)
                self._io.transmit()
            self._io.wait(closed, min(self._timeout, CLOSE_SECONDS), f"closing channel {self.number}")
        except (Timeout, ConnectionFault):
            return  # it is closed for this program; the broker closes it when it gets there, or with the connection
        finally:
            self._forget(self)
