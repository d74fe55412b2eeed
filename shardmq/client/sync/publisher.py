"""Pipelined publishing: messages are sent in batches, and their confirms are not waited for.

A message goes out at once while few batches are unconfirmed. Past that, what is published meanwhile waits for the next
confirm, a full batch or the I/O thread's tick, and shares a batch with its neighbours: batching emerges from load.
"""

import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final, Self

from msgspec import Raw
from msgspec.structs import replace

from shardmq.client.core.batching import NO_EXTRAS, PublishBatch, PublishOptions, batches_of, flags_of, numbering_of
from shardmq.client.core.channel import ChannelCore, Publish
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.interfaces import again
from shardmq.client.core.publishing.builder import BatchBuilder
from shardmq.client.core.publishing.collector import BatchCollector
from shardmq.client.core.publishing.pairs import batches_of_pairs
from shardmq.client.core.publishing.sent import SentBatches
from shardmq.client.core.validation import check_count, check_delay, check_names, check_sequence, check_wait
from shardmq.client.sync.answers import PendingAnswer, Uninterrupted
from shardmq.client.sync.transport import Transport
from shardmq.errors import ChannelError, PublishRefused
from shardmq.message.properties import Properties

EAGER_BATCHES: Final = 2
"""With fewer batches unconfirmed than this, a message is sent at once, alone. With 8, two cores were so busy with
single messages at 5,000 a second that one in a hundred took over 10 ms; with 2 or 3 it is 3 ms."""

TICKS_MAX: Final = 8
"""For so many ticks what is collected waits while more than that is unconfirmed: it would come behind it anyway. Sent
at each tick, what a program on a busy machine has collected is little, and the less it is the more it costs. (1,000
queues: to collect half of their window takes 32 ms; cut after 20 ms, batches had 6 messages each, and 7 so.)"""


class Publisher:
    """Publishes many messages without waiting for each one's confirm. Safe from several threads.

    `Channel.publisher` makes one. Each thread's messages keep their order in every queue.

    A context manager: leaving it flushes, and raises what was refused.
    """

    def __init__(self) -> None:
        raise TypeError("a publisher is made by Channel.publisher()")

    def _set_up(
        self,
        core: ConnectionCore,
        transport: Transport,
        channel: ChannelCore,
        window: int | None,
        timeout: float,
        producer: int,
        has_return_hook: Callable[[], bool],
        forget: Callable[["Publisher"], None],
        publish: Publish | None = None,
    ) -> None:
        check_count("window", window)
        self._core = core
        self._transport = transport
        self._channel = channel
        self._timeout = timeout
        self._producer = producer
        self._sent = SentBatches(has_return_hook)
        self._forget = forget
        self._publish = publish or core.publish
        self._lock = threading.Lock()
        self._uninterrupted = Uninterrupted(self._interrupted)  # is entered behind the lock
        self._fault: PublishRefused | None = None
        self._collecting = BatchCollector(producer, lambda: core.state.server, window)  # under _lock, but what it says
        self._is_due = False
        self._ticks = 0  # since it is due
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._stop()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open"
        return f"<Publisher on channel {self._channel.number}, {self.unconfirmed} unconfirmed, {state}>"

    @property
    def unconfirmed(self) -> int:
        """Messages published and not yet confirmed or refused."""
        return self._sent.unconfirmed + self._collecting.count

    def publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes,
        properties: Properties | None = None,
        mandatory: bool = False,
        delay_ms: int = 0,
        sequence: int | None = None,
    ) -> None:
        """Publish one message; waits only while the window is full.

        Args:
            exchange: where to, "" for the default exchange.
            routing_key: what the exchange's bindings are matched with.
            body: the message.
            properties: of the message; persistent unless their delivery_mode is 1.
            mandatory: it comes back where no queue takes it: to the hook (`Connection.on_return`), else to `flush`.
            delay_ms: it joins its queues so many milliseconds later.
            sequence: its number, for publishers with a producer's name.

        Raises:
            TypeError: the body is not bytes.
            ContentTooLarge: over the message limit; nothing was sent.
            Timeout: the window stayed full; the message was not taken. Where its text begins with "sending", it was
                taken, and the broker reads nothing now.
            ChannelError, ConnectionFault: the channel or the connection is closed.
        """
        collecting = self._collecting
        filling, head = collecting.filling, None
        if mandatory or delay_ms or sequence is not None:
            if sequence is not None:
                self._publish_numbered(exchange, routing_key, body, properties, mandatory, delay_ms, sequence)
                return
            extras = PublishOptions(mandatory, delay_ms)
            if not filling.is_like(exchange, routing_key, properties, extras):
                filling, _ = self._turn_to(exchange, routing_key, properties, extras)
        else:
            is_its = filling.routing_key == routing_key and filling.exchange == exchange and not filling.is_keyed
            if not is_its or (filling.plain is not properties and (head := filling.heads.get(id(properties))) is None):
                filling, head = self._turn_to(exchange, routing_key, properties, NO_EXTRAS)
        if type(body) is not bytes or len(body) > filling.body_max:
            filling.check(body)
        count = collecting.aside + len(filling.bodies) + 1
        if self._sent.unconfirmed + count > collecting.window:
            self._wait_for_window()
        if self._channel.fault is not None:
            self._check()
        filling.bodies.append(body if head is None else (head, body, routing_key) if filling.is_keyed else (head, body))
        filling.size += len(body)
        if filling is not collecting.filling:
            self._sweep(filling)
        if count >= collecting.records_max or collecting.aside_bytes + filling.size >= collecting.bytes_max:
            self._send()
            self._transport.make_room(self._timeout)
        elif self._sent.unconfirmed_batches < EAGER_BATCHES:
            self._send()
        elif not self._is_due:
            self._become_due()

    def publish_many(
        self,
        exchange: str,
        routing_key: str,
        bodies: Iterable[bytes],
        properties: Properties | None = None,
        mandatory: bool = False,
        delay_ms: int = 0,
        sequence: int | None = None,
    ) -> None:
        """Publish many messages that share exchange, routing key and properties: a few hundred to a batch.

        Args:
            exchange: where to.
            routing_key: for all of them.
            bodies: the messages, in any iterable; taken a batch at a time.
            properties: of all of them.
            mandatory: they come back where no queue takes them.
            delay_ms: they join their queues so many milliseconds later.
            sequence: the first one's number, for publishers with a producer's name.

        Raises:
            ShardmqError: what `publish` raises; the batches before the one at fault were sent.
        """
        check_names(exchange=exchange, routing_key=routing_key)
        check_delay(delay_ms)
        check_sequence(self._producer, sequence)
        flags = flags_of(properties, mandatory)
        producer = self._producer or numbering_of(exchange, properties)
        number = sequence or 0
        for count, records in batches_of(bodies, properties, self._core.state.server.message_max):
            if self.unconfirmed >= self._collecting.window:
                self._wait_for_window()
            self._check()
            with self._lock, self._uninterrupted:
                self._check_taking()
                batch = (exchange, routing_key, flags, count, records, delay_ms, producer, number, 0)
                self._send_batches([*self._collecting.take(), batch])
            number += count
            self._transport.make_room(self._timeout)

    def publish_keyed(
        self,
        exchange: str,
        messages: Iterable[tuple[str, bytes]],
        properties: Properties | None = None,
        mandatory: bool = False,
    ) -> None:
        """Publish many messages that share exchange and properties, each with its routing key, in the order they come.

        Args:
            exchange: where to, as a topic.
            messages: routing key and body of each, in any iterable; taken a batch at a time.
            properties: of all of them.
            mandatory: they come back where no queue takes them.

        Raises:
            ShardmqError: what `publish` raises; the batches before the one at fault were sent.
            TypeError: a message is no pair of a str and bytes; the same.
        """
        check_names(exchange=exchange)
        check_sequence(self._producer, None)
        for batch in batches_of_pairs(exchange, messages, properties, mandatory, self._core.state.server):
            if self.unconfirmed >= self._collecting.window:
                self._wait_for_window()
            self._check()
            with self._lock, self._uninterrupted:
                self._check_taking()
                self._send_batches([*self._collecting.take(), batch])
            self._transport.make_room(self._timeout)

    def flush(self, timeout: float | None = None) -> None:
        """Send everything and wait until all of it is confirmed.

        Args:
            timeout: seconds to wait; the connection's when None.

        Raises:
            NotFound, AccessRefused, PublishRefused, Unroutable, …: messages were refused or came back since the last
                flush (`refused`, `came_back` of the error); the text says how many, and the first one's reason.
            Timeout: not all was confirmed in time; it may still be.
            ChannelError, ConnectionFault: the channel or connection closed before all was confirmed.
        """
        check_wait("timeout", timeout)
        self._send()
        self._check_fault()
        self._wait_for(None, self._timeout if timeout is None else timeout, f"flush ({self._sent.target})")
        with self._transport.lock:
            error = self._sent.take_error()
        if error is not None:
            raise error

    def close(self) -> None:
        """Flush, and publish no more.

        Raises:
            ShardmqError: messages were refused since the last flush, or not all was confirmed, as `flush` says.
        """
        self._stop()
        self.flush()  # whatever `unconfirmed` says: what the I/O thread is about to send is in neither of its counts

    def _turn_to(
        self, exchange: str, routing_key: str, properties: Properties | None, extras: PublishOptions
    ) -> tuple[BatchBuilder, Raw | None]:
        """The batch that a message joins, and its encoded properties, where its body is to wait with them."""
        filling = self._collecting.filling
        if extras is NO_EXTRAS and (filling.heads or filling.encoded is not None):
            joined = self._collecting.joined(exchange, routing_key, properties)
            if joined is not None:
                return joined
        check_sequence(self._producer, None)
        with self._lock:
            try:  # for each message to another queue: `with self._uninterrupted` would take a twentieth of a publish
                self._check_taking()
                head = self._collecting.turn_to(exchange, routing_key, properties, extras)
                return self._collecting.filling, head
            except BaseException as error:
                self._uninterrupted.left_by(error)
                raise

    def _publish_numbered(
        self,
        exchange: str,
        routing_key: str,
        body: bytes,
        properties: Properties | None,
        mandatory: bool,
        delay_ms: int,
        sequence: int,
    ) -> None:
        """Neighbours in number share a batch. All under the lock: no other thread may come between two numbers."""
        check_sequence(self._producer, sequence)
        if self.unconfirmed >= self._collecting.window:
            self._wait_for_window()
        self._check()
        collecting = self._collecting
        with self._lock, self._uninterrupted:
            self._check_taking()
            filling = collecting.filling
            extras = PublishOptions(mandatory, delay_ms, self._producer, sequence)
            continues = replace(extras, sequence=filling.extras.sequence)
            is_next = collecting.next_sequence() == sequence
            if not (is_next and filling.is_like(exchange, routing_key, properties, continues)):
                collecting.turn_to(exchange, routing_key, properties, extras)
                filling = collecting.filling
            filling.check(body)
            filling.bodies.append(body)
            filling.size += len(body)
            is_full = collecting.is_full
            if is_full or self._sent.unconfirmed_batches < EAGER_BATCHES:
                self._send_batches(collecting.take())
        if is_full:
            self._transport.make_room(self._timeout)
        elif not self._is_due:
            self._become_due()

    def _stop(self) -> None:
        """Take no more messages, and send what there is."""
        self._is_closed = True
        self._forget(self)
        self._send(is_last=True)

    def _sweep(self, left: BatchBuilder) -> None:
        """Send what this thread has added to a batch that another thread had left behind, or closed."""
        with self._lock, self._uninterrupted:
            self._check_fault()
            self._send_batches(self._collecting.sweep(left))
        if self._is_closed:
            self.flush()  # who has closed the publisher may have waited for its confirms before

    def _become_due(self) -> None:
        with self._lock, self._uninterrupted:  # else two threads are due, and none of the two ever less
            if self._is_due:
                return
            self._is_due = True
            self._transport.due(self._flush_due)

    def _send(self, is_last: bool = False) -> None:
        """Send what is being collected, without waiting for it to be confirmed."""
        with self._lock, self._uninterrupted:
            if self._fault is None:
                self._send_batches(self._collecting.close() if is_last else self._collecting.take())

    def _flush_due(self) -> None:
        """Send what is being collected: it has waited for its neighbours; a little longer behind more than it is."""
        self._ticks += 1
        if self._ticks < TICKS_MAX and self._sent.unconfirmed > self._collecting.count and not self._is_closed:
            self._transport.due(self._flush_due)
            return
        self._ticks = 0
        self._is_due = False
        self._send()

    def _send_batches(self, batches: list[PublishBatch]) -> None:
        if not batches:
            return
        with self._transport.lock, self._transport.uninterrupted:
            for batch in batches:
                confirms = self._sent.add(batch)
                fault = self._core.state.fault or self._channel.fault
                if fault is None:
                    self._publish(self._channel, batch, confirms)
                else:
                    confirms.settled(batch[3], fault)
            self._transport.transmit()

    def _wait_for_window(self) -> None:
        self._send()
        self._check()
        what = f"room in the window of {self._collecting.window} messages ({self._sent.target})"
        self._wait_for(self._sent.messages - self._collecting.window // 2, self._timeout, what)

    def _wait_for(self, wanted: int | None, seconds: float, what: str) -> None:
        with self._transport.lock:
            if self._sent.are_settled(wanted):
                return
            answer: PendingAnswer[None] = PendingAnswer()
            self._sent.when_settled(wanted, answer)
        self._transport.wait(answer, seconds, what)

    def _check(self) -> None:
        with self._transport.lock:
            self._core.state.check(self._channel)
        self._check_taking()

    def _interrupted(self) -> None:
        """Take no more, and send nothing: nobody knows what of that which was collected is whole."""
        text = "publishing was interrupted: what is not confirmed may not be stored; publish it with a new publisher"
        self._fault = PublishRefused(text)
        self._collecting.leave()

    def _check_fault(self) -> None:
        if self._fault is not None:
            raise again(self._fault)

    def _check_taking(self) -> None:
        self._check_fault()
        if self._is_closed:
            raise ChannelError("this publisher is closed")
