"""The consumers of a channel: their beginning and end, the iterators behind `consume`, the calls of handlers."""

import sys
import threading
from _thread import start_new_thread
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from itertools import count
from queue import Empty
from typing import cast

from shardmq.client.api.handler_errors import OnError, handler_raised
from shardmq.client.api.message import Batch, Delivery, Message
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.interfaces import Inbox, again
from shardmq.client.core.requests import consuming
from shardmq.client.core.validation import check_timeout
from shardmq.client.sync.answers import DeliveryQueue, PendingAnswer
from shardmq.client.sync.settler import ChannelSettler
from shardmq.client.sync.transport import Transport
from shardmq.client.sync.workers import SerialExecutor, WorkerPool, is_own_code
from shardmq.errors import ChannelError, ConnectionFault, NotFound, ShardmqError
from shardmq.message.properties import Properties
from shardmq.protocol.native.operations.basic import BasicConsume


class ChannelConsumers:
    """Begins and cancels the consumers of one channel.

    Args:
        connection: the connection's core.
        transport: the connection's.
        settler: the channel's.
        workers: the connection's threads for handlers; those of one channel are called one at a time, in order.
        timeout: seconds that an answer is waited for.
    """

    def __init__(
        self,
        connection: ConnectionCore,
        transport: Transport,
        settler: ChannelSettler,
        workers: WorkerPool,
        timeout: float,
    ) -> None:
        self.settler = settler
        self.executor = SerialExecutor(workers, settler.flush)  # what handlers acked is sent when they have no more
        self._connection = connection
        self._transport = transport
        self._timeout = timeout

    def begin(self, operation: BasicConsume, inbox: Inbox) -> str:
        """Begin a consumer whose deliveries go to an inbox; returns its tag."""
        self.settler.flush()
        answer: PendingAnswer[str] = PendingAnswer()
        with self._transport.lock:
            self._connection.consume(self.settler.core, operation, inbox, answer)
            self._transport.transmit()
        tag = self._transport.wait(answer, self._timeout, f"consuming queue '{operation.queue}'")
        self.settler.note_prefetch(tag, 0 if operation.auto_ack else operation.prefetch)
        return tag

    def cancel(self, tag: str) -> None:
        """End a consumer."""
        self.settler.flush()
        answer: PendingAnswer[None] = PendingAnswer()
        with self._transport.lock:
            self._connection.cancel(self.settler.core, tag, answer)
            self._transport.transmit()
        self.settler.forget_prefetch(tag)
        self._transport.wait(answer, self._timeout, f"cancelling consumer '{tag}'")

    def let_go(self, tag: str, partitions: list[int]) -> None:
        """Tell the broker that a consumer has let go of partitions; what was acked of them goes before."""
        self.settler.flush()
        with self._transport.lock:
            self._connection.let_go(self.settler.core, tag, partitions)
            self._transport.transmit()

    def messages(self, operation: BasicConsume, inactivity_timeout: float | None) -> Iterator[Message]:
        """The iterator of `Channel.consume`; the consumer has begun."""
        inbox = DeliveryQueue()
        loop = self._messages(self.begin(operation, inbox), inbox, inactivity_timeout)
        next(loop)
        return cast("Iterator[Message]", loop)

    def batches(self, operation: BasicConsume, inactivity_timeout: float | None) -> Iterator[Batch]:
        """The iterator of `Channel.consume_batches`; the consumer has begun."""
        inbox = DeliveryQueue()
        loop = self._batches(self.begin(operation, inbox), inbox, inactivity_timeout)
        next(loop)
        return cast("Iterator[Batch]", loop)

    def _messages(
        self, tag: str, inbox: DeliveryQueue, inactivity_timeout: float | None
    ) -> Generator[Message | None, None, None]:
        message: Message | None = None
        delivery: Delivery | None = None
        settler, core = self.settler, self.settler.core
        try:
            yield None  # a generator that was begun runs its `finally`
            for delivery in self._deliveries(inbox, inactivity_timeout):
                for message in delivery.messages():
                    yield message
                    if message.delivery_tag < core.stale_tag and settler.is_stale(delivery):
                        break  # the connection was lost: the rest of it comes again
        finally:
            self._end(tag, inbox, delivery, 0 if message is None else message.delivery_tag + 1)

    def _batches(
        self, tag: str, inbox: DeliveryQueue, inactivity_timeout: float | None
    ) -> Generator[Batch | None, None, None]:
        try:
            yield None
            for delivery in self._deliveries(inbox, inactivity_timeout):
                yield Batch(delivery)
        finally:
            self._end(tag, inbox)

    def _deliveries(self, inbox: DeliveryQueue, inactivity_timeout: float | None) -> Iterator[Delivery]:
        settler = self.settler
        while True:
            try:
                delivery = inbox.take(inactivity_timeout)
            except Empty:
                settler.flush()
                return
            if delivery is None:
                return
            settler.taken(delivery)
            if not settler.is_stale(delivery):
                yield delivery

    def _end(self, tag: str, inbox: DeliveryQueue, delivery: Delivery | None = None, unseen_from: int = 0) -> None:
        """End the consumer of an iterator, and give back what the program has not seen.

        The garbage collector may end an iterator wherever a thread is, also under a lock of this library's, or in the
        thread that reads the answer: another one does it then.

        Args:
            tag: of the consumer.
            inbox: of the iterator.
            delivery: of which a part was handed out; None where there is none.
            unseen_from: delivery tag of its first message that was not.
        """
        end = (tag, inbox, delivery, unseen_from)
        if is_own_code(sys._getframe(2)):
            start_new_thread(self._end_now, end)
        else:
            self._end_now(*end)

    def _end_now(self, tag: str, inbox: DeliveryQueue, delivery: Delivery | None, unseen_from: int) -> None:
        """Cancel, and give back all that is in the inbox. Nothing is left to do where the channel is gone."""
        settler = self.settler
        if settler.core.fault is None and not sys.is_finalizing():  # at exit the I/O thread does not answer any more
            try:
                self.cancel(tag)
            except (ChannelError, ConnectionFault, NotFound):
                settler.forget_prefetch(tag)
            for left in inbox.drain():
                settler.taken(left)
                settler.requeue_unseen(left, left.frame.tag)
        if delivery is not None:
            settler.requeue_unseen(delivery, unseen_from)


class HandlerInbox:
    """A consumer's inbox whose messages a handler gets.

    Args:
        consumers: the channel's.
        handler: the program's function.
        queue: whose messages, for the log.
        on_error: what to do when the handler raises.
        fail: closes the channel because of it.
    """

    def __init__(
        self,
        consumers: ChannelConsumers,
        handler: Callable[[Message], object],
        queue: str,
        on_error: OnError,
        fail: Callable[[Exception], None],
    ) -> None:
        self._settler = consumers.settler
        self._executor = consumers.executor
        self._handler = handler
        self._queue = queue
        self._on_error = on_error
        self._fail = fail
        self._is_ended = False

    def deliver(self, delivery: Delivery) -> None:
        """Have the handler called with messages that have come."""
        self._executor.do(lambda: self._handle(delivery))

    def end(self, _error: ShardmqError | None) -> None:
        """Give back what comes from now on."""
        self._is_ended = True

    def _handle(self, delivery: Delivery) -> None:
        settler, handler, core = self._settler, self._handler, self._settler.core
        settler.taken(delivery)
        for message in delivery.messages():
            if self._is_ended:
                settler.requeue_unseen(delivery, message.delivery_tag)
                return
            if message.delivery_tag <= core.stale_tag and settler.is_stale(delivery):
                return
            try:
                handler(message)
            except Exception as fault:  # noqa: BLE001  it is the program's; the policy says what becomes of the message
                if handler_raised(settler, message, self._queue, self._on_error):
                    self._fail(fault)
                    return


class RemoteCalls:
    """The calls of one channel that wait for an answer; the inbox of the consumer that the answers come to.

    Args:
        connection: the connection's core.
        transport: the connection's.
        consumers: the channel's.
    """

    def __init__(self, connection: ConnectionCore, transport: Transport, consumers: ChannelConsumers) -> None:
        self._connection = connection
        self._transport = transport
        self._consumers = consumers
        self._beginning = threading.Lock()
        self._reply_to = ""
        self._numbers = count(1)
        self._waiting: dict[str, PendingAnswer[Message]] = {}

    def expect(self) -> tuple[str, str, PendingAnswer[Message]]:
        """Where an answer is to go, its correlation id, and the answer; the first call begins the consumer."""
        with self._beginning:
            if not self._reply_to:
                reply_to = consuming.reply_queue()
                self._consumers.begin(consuming.basic_consume(reply_to, "", 0, True, False, None), self)
                self._reply_to = reply_to
            correlation_id = str(next(self._numbers))
            answer = self._waiting[correlation_id] = PendingAnswer()
            return self._reply_to, correlation_id, answer

    def wait(self, correlation_id: str, answer: PendingAnswer[Message], seconds: float, what: str) -> Message:
        """The answer.

        Raises:
            Timeout: it did not come in so many seconds.
            ChannelError, ConnectionFault: the channel or the connection ended.
        """
        try:
            return self._transport.wait(answer, seconds, what)
        finally:
            self.forget(correlation_id)

    def forget(self, correlation_id: str) -> None:
        """Wait for an answer no more."""
        self._waiting.pop(correlation_id, None)

    def deliver(self, delivery: Delivery) -> None:
        """Hand out answers. Called by the core, under the transport's lock."""
        self._connection.state.undelivered -= delivery.size
        for message in delivery.messages():
            answer = self._waiting.pop(message.properties.correlation_id or "", None)
            if answer is not None and not answer.done():
                answer.set_result(message)

    def end(self, error: ShardmqError | None) -> None:
        """Tell all who wait that no answer comes any more. Called by the core, under the transport's lock."""
        self._reply_to = ""
        waiting, self._waiting = self._waiting, {}
        ended = error or ChannelError("the consumer of answers has ended")
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(again(ended))


class CallRequests(ABC):
    """Remote procedure calls: part of a channel."""

    _calls: RemoteCalls
    _timeout: float

    @abstractmethod
    def basic_publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes,
        properties: Properties | None = None,
        mandatory: bool = False,
        delay_ms: int = 0,
    ) -> None:
        """Publish one message."""

    def call(
        self,
        exchange: str,
        routing_key: str,
        body: bytes,
        properties: Properties | None = None,
        timeout: float | None = None,
    ) -> Message:
        """Send a request to another program, and wait for its answer: a remote procedure call over direct reply-to.

        Who answers consumes a queue that the request comes to, and publishes the answer to exchange "" with the
        request's `properties.reply_to` as routing key, and with the request's `properties.correlation_id`. It may do so
        over either protocol. Calls of one channel may overlap, and share one consumer for their answers.

        Args:
            exchange: where the request goes, "" for the default exchange.
            routing_key: what the exchange's bindings are matched with.
            body: the request.
            properties: of the request. Its `reply_to` and `correlation_id` are set here; unless they say otherwise, it
                is transient, and expires when nobody waits for the answer any more.
            timeout: seconds to wait for the answer; the connection's when None.

        Returns:
            The answer; it need not be acked.

        Raises:
            Unroutable: no queue took the request: nobody serves it.
            NotFound, AccessRefused, PublishRefused, ContentTooLarge: as `basic_publish`.
            Timeout: no answer in time; the request may have been carried out or not.
            ChannelError, ConnectionFault: the channel or the connection is closed.
        """
        seconds = self._timeout if timeout is None else timeout
        check_timeout(seconds)
        reply_to, correlation_id, answer = self._calls.expect()
        try:
            asked = consuming.call_properties(properties, reply_to, correlation_id, seconds)
            self.basic_publish(exchange, routing_key, body, asked, mandatory=True)
        except BaseException:
            self._calls.forget(correlation_id)
            raise
        what = f"calling exchange '{exchange}' with routing key '{routing_key}'"
        return self._calls.wait(correlation_id, answer, seconds, what)
