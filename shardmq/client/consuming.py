"""Consumers' loops in threads: the iterators of `consume` and `consume_batches`, and the thread that runs callbacks."""

import logging
import threading
from collections.abc import Callable, Generator
from queue import Empty, SimpleQueue
from typing import Protocol

from shardmq.client.deliveries import Batch, Delivery, Message
from shardmq.client.waiting import DeliveryQueue
from shardmq.errors import ShardmqError

_log = logging.getLogger("shardmq.client")


class Desk(Protocol):
    """What a consumer's loop needs of its channel."""

    def flush(self) -> None:
        """Send what is being collected."""

    def took(self, delivery: Delivery) -> None:
        """A delivery is in the program's hands."""

    def end_consumer(self, tag: str, inbox: DeliveryQueue) -> None:
        """Cancel, and give back all that is in the inbox."""

    def return_unseen(self, delivery: Delivery, first: int) -> None:
        """Give back a delivery's messages from delivery tag `first` on: the program never saw them."""


def messages(
    desk: Desk, tag: str, inbox: DeliveryQueue, inactivity_timeout: float | None
) -> Generator[Message | None, None, None]:
    """The iterator behind `Channel.consume`. The first item is None: a generator that was begun runs its `finally`."""
    message: Message | None = None
    delivery: Delivery | None = None
    try:
        yield None
        for delivery in _deliveries(desk, inbox, inactivity_timeout):
            for message in delivery.messages():
                yield message
    finally:
        desk.end_consumer(tag, inbox)
        if delivery is not None:
            desk.return_unseen(delivery, 0 if message is None else message.delivery_tag + 1)


def batches(
    desk: Desk, tag: str, inbox: DeliveryQueue, inactivity_timeout: float | None
) -> Generator[Batch | None, None, None]:
    """The iterator behind `Channel.consume_batches`. The first item is None, as with `messages`."""
    try:
        yield None
        for delivery in _deliveries(desk, inbox, inactivity_timeout):
            yield Batch(delivery)
    finally:
        desk.end_consumer(tag, inbox)


def _deliveries(desk: Desk, inbox: DeliveryQueue, inactivity_timeout: float | None) -> Generator[Delivery, None, None]:
    while True:
        try:
            delivery = inbox.take(inactivity_timeout)
        except Empty:
            desk.flush()
            return
        if delivery is None:
            return
        desk.took(delivery)
        yield delivery


class _CallbackInbox:
    """A callback consumer's inbox: a channel's share one queue, and so keep the channel's order."""

    __slots__ = ("_worker", "callback", "is_ended")

    def __init__(self, worker: "CallbackWorker", callback: Callable[[Message], object]) -> None:
        self._worker = worker
        self.callback = callback
        self.is_ended = False

    def deliver(self, delivery: Delivery) -> None:
        """Messages have come."""
        self._worker.queue.put((self, delivery))

    def end(self, _error: ShardmqError | None) -> None:
        """None will come any more."""
        if self.is_ended:
            return
        self.is_ended = True
        self._worker.queue.put((self, None))


class CallbackWorker:
    """Runs a channel's callbacks, one after the other, on a thread that lives while there are consumers.

    Args:
        desk: the channel.
        name: of the thread.
        fail: closes the channel because a callback raised.
    """

    def __init__(self, desk: Desk, name: str, fail: Callable[[Exception], None]) -> None:
        self.queue: SimpleQueue[tuple[_CallbackInbox, Delivery | None]] = SimpleQueue()
        self._desk = desk
        self._name = name
        self._fail = fail
        self._lock = threading.Lock()
        self._consumers = 0

    def inbox(self, callback: Callable[[Message], object]) -> _CallbackInbox:
        """An inbox whose messages the callback gets; the thread runs from now until its end."""
        with self._lock:
            self._consumers += 1
            if self._consumers == 1:
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
        return _CallbackInbox(self, callback)

    def _run(self) -> None:
        while True:
            if self.queue.empty():
                self._desk.flush()
            inbox, delivery = self.queue.get()
            if delivery is not None:
                self._desk.took(delivery)
                self._call(inbox, delivery)
                continue
            with self._lock:
                self._consumers -= 1
                if not self._consumers:
                    break
        self._desk.flush()

    def _call(self, inbox: _CallbackInbox, delivery: Delivery) -> None:
        callback = inbox.callback
        for message in delivery.messages():
            if inbox.is_ended:
                self._desk.return_unseen(delivery, message.delivery_tag)
                return
            try:
                callback(message)
            except Exception as fault:  # noqa: BLE001  it is the program's; the channel closes and tells
                _log.exception("a consumer's callback raised; its channel closes")
                self._fail(fault)
                return
