"""The consumers of a channel: their beginning and end, the iterators behind `consume`, the calls of handlers."""

import sys
import threading
from _thread import start_new_thread
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from queue import Empty
from typing import cast

from shardmq.client.api.handler_errors import OnError, handler_raised
from shardmq.client.api.message import Batch, Delivery, Message
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.groups.membership import Membership
from shardmq.client.core.groups.plain import PlainInbox, PlainMember, is_plain_member
from shardmq.client.core.interfaces import Inbox
from shardmq.client.sync.answers import DeliveryQueue, PendingAnswer
from shardmq.client.sync.settler import ChannelSettler
from shardmq.client.sync.transport import Transport
from shardmq.client.sync.workers import SerialExecutor, WorkerPool, is_own_code
from shardmq.errors import ChannelError, ConnectionFault, NotFound, ShardmqError, Timeout
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
        if isinstance(inbox, PlainInbox) and is_plain_member(operation.arguments, operation.auto_ack):
            inbox.member = PlainMember(threading.Lock(), self._let_go_soon)
        answer: PendingAnswer[str] = PendingAnswer()
        with self._transport.lock, self._transport.uninterrupted:
            self._connection.consume(self.settler.core, operation, inbox, answer)
            self._transport.transmit()
        try:
            tag = self._transport.wait(answer, self._timeout, f"consuming queue '{operation.queue}'")
        except BaseException:
            if answer.has_result:  # it has begun for nobody
                self._leave(answer.result(), inbox)
            raise
        self.settler.note_prefetch(tag, 0 if operation.auto_ack else operation.prefetch)
        return tag

    def end(self, tag: str, inbox: Inbox) -> None:
        """Cancel, and give back all that is in the inbox. Nothing is left to do where the channel is gone."""
        settler = self.settler
        if settler.core.fault is not None:
            return
        try:
            self.cancel(tag)
        except (ChannelError, ConnectionFault, NotFound, Timeout):
            settler.forget_prefetch(tag)
        finally:  # also where nobody has answered, or the thread was interrupted
            self._leave(tag, inbox)

    def _leave(self, tag: str, inbox: Inbox) -> None:
        """Hear no more of a consumer, and give back what has come for it and the program has not seen."""
        settler = self.settler
        with self._transport.lock, self._transport.uninterrupted:
            self._connection.state.leave_consumer(settler.core, tag)
            self._transport.transmit()
        if isinstance(inbox, Membership):
            with suppress(ChannelError, ConnectionFault):  # it is given back with its channel
                for first, last in inbox.handed_out.take_all():
                    settler.nack(first, last, requeue=True)
                for first, last in inbox.unseen():
                    settler.put_back(first, last)
        elif isinstance(inbox, DeliveryQueue):
            for delivery in inbox.drain():
                settler.taken(delivery)
                settler.requeue_unseen(delivery, delivery.frame.tag)

    def cancel(self, tag: str) -> None:
        """End a consumer."""
        self.settler.flush()
        answer: PendingAnswer[None] = PendingAnswer()
        with self._transport.lock, self._transport.uninterrupted:
            self._connection.cancel(self.settler.core, tag, answer)
            self._transport.transmit()
        self.settler.forget_prefetch(tag)
        self._transport.wait(answer, self._timeout, f"cancelling consumer '{tag}'")

    def let_go(self, tag: str, partitions: list[int]) -> None:
        """Tell the broker that a consumer has let go of partitions; what was acked of them goes before."""
        self.settler.flush()
        with self._transport.lock, self._transport.uninterrupted:
            self._connection.let_go(self.settler.core, tag, partitions)
            self._transport.transmit()

    def let_go_of_owed(self, member: PlainMember) -> None:
        """Tell the broker of revoked partitions of which a plain consumer has nothing in hand. Waits for nothing."""
        partitions = member.to_let_go()
        if partitions:
            self.settler.flush_acks()
            with self._transport.lock, self._transport.uninterrupted:
                self._connection.let_go(self.settler.core, member.tag, partitions)
                self._transport.transmit()

    def _let_go_soon(self, member: PlainMember) -> None:
        self._transport.due(lambda: self.let_go_of_owed(member))

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
        settler, core, member = self.settler, self.settler.core, inbox.member
        try:
            yield None  # a generator that was begun runs its `finally`
            for delivery in self._deliveries(inbox, inactivity_timeout):
                for message in delivery.messages():
                    yield message
                    if message.delivery_tag < core.stale_tag and settler.is_stale(delivery):
                        break  # the connection was lost: the rest of it comes again
                    if member is not None and inbox.has_lost(delivery):
                        break  # it goes to another member of the group
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
            if (member := inbox.put_down()) is not None:
                self.let_go_of_owed(member)
            try:
                delivery = inbox.take(inactivity_timeout)
            except Empty:
                settler.flush()
                return
            if delivery is None:
                return
            settler.taken(delivery)
            if not settler.is_stale(delivery) and inbox.takes(delivery):
                yield delivery
            elif inbox.member is not None:
                self.let_go_of_owed(inbox.member)

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
        if sys.is_finalizing():  # the I/O thread has stopped, and so will the connection: all is given back with it
            return
        end = (tag, inbox, delivery, unseen_from)
        if is_own_code(sys._getframe(1).f_back):
            start_new_thread(self._end_now, end)
        else:
            self._end_now(*end)

    def _end_now(self, tag: str, inbox: DeliveryQueue, delivery: Delivery | None, unseen_from: int) -> None:
        try:
            self.end(tag, inbox)
        finally:
            if delivery is not None:
                self.settler.requeue_unseen(delivery, unseen_from)


class HandlerInbox(PlainInbox):
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
        fail: Callable[[BaseException], None],
    ) -> None:
        self._consumers = consumers
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
        self._settler.taken(delivery)
        if self.takes(delivery):
            try:
                self._hand_out(delivery)
            finally:
                if (member := self.put_down()) is not None:
                    self._consumers.let_go_of_owed(member)
        elif self.member is not None:
            self._consumers.let_go_of_owed(self.member)

    def _hand_out(self, delivery: Delivery) -> None:
        settler, handler, core = self._settler, self._handler, self._settler.core
        for message in delivery.messages():
            if self._is_ended:
                settler.requeue_unseen(delivery, message.delivery_tag)
                return
            if message.delivery_tag <= core.stale_tag and settler.is_stale(delivery):
                return
            if self.member is not None and self.has_lost(delivery):
                return
            try:
                handler(message)
            except BaseException as fault:  # noqa: BLE001  the program's; the policy says what becomes of the message
                if handler_raised(settler, message, self._queue, self._on_error):
                    self._fail(fault)
                    return
