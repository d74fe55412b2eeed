"""Consumers' loops in threads: the iterators of `consume` and `consume_batches`, and the calls of handlers."""

from collections.abc import Callable, Generator
from queue import Empty
from typing import Protocol

from shardmq.client.api.handler_errors import OnError, handler_raised
from shardmq.client.api.message import Batch, Delivery, Message
from shardmq.client.sync.answers import DeliveryQueue
from shardmq.client.sync.workers import SerialExecutor, WorkerPool
from shardmq.errors import ShardmqError


class Marks(Protocol):
    """What a loop looks at after each message: a plain attribute, 15 ns where a property takes 60.

    Attributes:
        stale_tag: messages up to this delivery tag are the broker's again, and will be delivered again.
    """

    stale_tag: int


class ConsumerOwner(Protocol):
    """What a consumer's loop needs of its channel."""

    @property
    def marks(self) -> Marks:
        """The channel's."""

    def flush(self) -> None:
        """Send what is being collected."""

    def took(self, delivery: Delivery) -> None:
        """A delivery is in the program's hands."""

    def end_consumer(self, tag: str, inbox: DeliveryQueue) -> None:
        """Cancel, and give back all that is in the inbox."""

    def return_unseen(self, delivery: Delivery, first: int) -> None:
        """Give back a delivery's messages from delivery tag `first` on: the program never saw them."""

    def is_stale(self, delivery: Delivery) -> bool:
        """Whether all of it is the broker's again."""

    def is_unsettled(self, tag: int) -> bool:
        """Whether that message is unacked."""


def messages(
    desk: ConsumerOwner, tag: str, inbox: DeliveryQueue, inactivity_timeout: float | None
) -> Generator[Message | None, None, None]:
    """The iterator behind `Channel.consume`. The first item is None: a generator that was begun runs its `finally`."""
    message: Message | None = None
    delivery: Delivery | None = None
    marks = desk.marks
    try:
        yield None
        for delivery in _deliveries(desk, inbox, inactivity_timeout):
            for message in delivery.messages():
                yield message
                if message.delivery_tag < marks.stale_tag and desk.is_stale(delivery):
                    break  # the connection was lost: the rest of it comes again
    finally:
        desk.end_consumer(tag, inbox)
        if delivery is not None:
            desk.return_unseen(delivery, 0 if message is None else message.delivery_tag + 1)


def batches(
    desk: ConsumerOwner, tag: str, inbox: DeliveryQueue, inactivity_timeout: float | None
) -> Generator[Batch | None, None, None]:
    """The iterator behind `Channel.consume_batches`. The first item is None, as with `messages`."""
    try:
        yield None
        for delivery in _deliveries(desk, inbox, inactivity_timeout):
            yield Batch(delivery)
    finally:
        desk.end_consumer(tag, inbox)


def _deliveries(
    desk: ConsumerOwner, inbox: DeliveryQueue, inactivity_timeout: float | None
) -> Generator[Delivery, None, None]:
    while True:
        try:
            delivery = inbox.take(inactivity_timeout)
        except Empty:
            desk.flush()
            return
        if delivery is None:
            return
        desk.took(delivery)
        if not desk.is_stale(delivery):
            yield delivery


class HandlerInbox:
    """A consumer's inbox whose messages a handler gets.

    Args:
        desk: the channel.
        strand: the channel's, which keeps the order of all its handlers.
        handler: the program's function.
        queue: whose messages, for the log.
        on_error: what to do when the handler raises.
        fail: closes the channel because of it.
    """

    def __init__(
        self,
        desk: ConsumerOwner,
        strand: SerialExecutor,
        handler: Callable[[Message], object],
        queue: str,
        on_error: OnError,
        fail: Callable[[Exception], None],
    ) -> None:
        self._desk = desk
        self._strand = strand
        self._handler = handler
        self._queue = queue
        self._on_error = on_error
        self._fail = fail
        self._is_ended = False

    def deliver(self, delivery: Delivery) -> None:
        """Messages have come."""
        self._strand.do(lambda: self._handle(delivery))

    def end(self, _error: ShardmqError | None) -> None:
        """None will come any more."""
        self._is_ended = True

    def _handle(self, delivery: Delivery) -> None:
        desk, handler, marks = self._desk, self._handler, self._desk.marks
        desk.took(delivery)
        for message in delivery.messages():
            if self._is_ended:
                desk.return_unseen(delivery, message.delivery_tag)
                return
            if message.delivery_tag <= marks.stale_tag and desk.is_stale(delivery):
                return
            try:
                handler(message)
            except Exception as fault:  # noqa: BLE001  it is the program's; the policy says what becomes of the message
                if handler_raised(desk, message, self._queue, self._on_error):
                    self._fail(fault)
                    return


def strand_of(workers: WorkerPool, desk: ConsumerOwner) -> SerialExecutor:
    """A channel's strand of handlers. What they acked is sent when they have nothing to do."""
    return SerialExecutor(workers, desk.flush)
