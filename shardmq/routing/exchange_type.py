"""What every exchange type can do."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any


class ExchangeType(ABC):
    """The bindings of one exchange, arranged for finding the queues of a routing key.

    Queues stand here by their ids. Two bindings may differ in their arguments only; each is added and removed by
    itself, and the message still goes to the queue once.
    """

    __slots__ = ()

    @abstractmethod
    def add(self, key: str, queue: int, arguments: dict[str, Any]) -> None:
        """Put in a binding that is not there yet."""

    @abstractmethod
    def remove(self, key: str, queue: int, arguments: dict[str, Any]) -> None:
        """Take out a binding that is there; KeyError when it is not."""

    @abstractmethod
    def match(self, routing_key: str) -> Collection[int]:
        """The queues that a message with this routing key goes to, each once. To be read before the next change."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether there is no binding."""

    @staticmethod
    def check_binding_key(key: str) -> None:  # noqa: ARG004  (any key will do where a type does not say otherwise)
        """Refuse binding keys that cannot mean what their author hopes.

        The native protocol asks; AMQP clients get RabbitMQ's behaviour, which takes every key.

        Raises:
            InvalidRequest: the key has no sensible meaning for this type.
        """
        return


class BoundQueues(dict[int, int]):
    """Queue ids with the number of bindings that lead to each."""

    __slots__ = ()

    def bind(self, queue: int) -> None:
        """One binding more to that queue."""
        self[queue] = self.get(queue, 0) + 1

    def unbind(self, queue: int) -> None:
        """One binding less; KeyError when there is none."""
        if self[queue] == 1:
            del self[queue]
        else:
            self[queue] -= 1
