"""What a shard sends once for many consumers, handed to each as if it had come by itself."""

from collections.abc import Callable
from typing import Any

from shardmq.bus.messages.deliveries import CommonDelivery, CommonForgotten, DeliveredPart
from shardmq.bus.messages.shard import Delivered
from shardmq.message.batch_parts import CommonBatch


class CommonDeliveries:
    """The batches that deliveries of a session refer to.

    Args:
        deliver: takes each delivery.

    Attributes:
        handlers: take what comes, by the type of the message.
    """

    __slots__ = ("_batches", "_deliver", "handlers")

    def __init__(self, deliver: Callable[[Delivered], None]) -> None:
        self._deliver = deliver
        self._batches: dict[int, CommonBatch] = {}
        self.handlers: dict[type, Callable[[Any], None]] = {
            CommonDelivery: self._on_common,
            CommonForgotten: self._on_forgotten,
            DeliveredPart: self._on_part,
        }

    def clear(self) -> None:
        """Let go of the batches: the session is over."""
        self._batches.clear()

    def _on_common(self, message: CommonDelivery) -> None:
        self._batches[message.number] = message.batch

    def _on_forgotten(self, message: CommonForgotten) -> None:
        for number in message.numbers:
            del self._batches[number]

    def _on_part(self, message: DeliveredPart) -> None:
        batch = self._batches[message.common].part(message.start, message.count, message.begin, message.size)
        self._deliver(Delivered(message.consumer, message.first, message.redelivered, batch, message.deliveries))
