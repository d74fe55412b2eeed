"""What every exchange type can do."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from shardmq.message.properties import Properties

Destination = int | str
"""Where a binding leads: the id of a queue, or the name of another exchange."""

NONE: Final[Mapping[str, Any]] = MappingProxyType({})
"""The arguments of an exchange that is declared without any."""


class ExchangeType(ABC):
    """The bindings of one exchange, arranged for finding the destinations of a message.

    Bindings may differ in their arguments alone. Each is added and removed by itself, and a message goes to their
    common destination once.

    Args:
        arguments: of the exchange.
    """

    __slots__ = ()

    @abstractmethod
    def __init__(self, arguments: Mapping[str, Any] = NONE) -> None: ...

    @abstractmethod
    def add(self, key: str, destination: Destination, arguments: dict[str, Any]) -> None:
        """Add a binding that is not there yet."""

    @abstractmethod
    def remove(self, key: str, destination: Destination, arguments: dict[str, Any]) -> None:
        """Remove a binding.

        Raises:
            KeyError: it is not there.
        """

    @abstractmethod
    def match(self, routing_key: str, properties: Properties | None = None) -> Collection[Destination]:
        """The destinations of a message, each once; a view that the next change makes invalid.

        Args:
            routing_key: of the message.
            properties: of the message; without a meaning unless `needs_message`.
        """

    def match_any(self, routing_keys: Sequence[str], properties: Properties | None = None) -> Collection[Destination]:
        """The destinations of a message with several routing keys (CC), each once: those of any key."""
        return {destination: None for key in routing_keys for destination in self.match(key, properties)}

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether there are no bindings."""

    @property
    def needs_message(self) -> bool:
        """Whether `match` looks at a message's properties, so that publishes are routed message by message."""
        return False

    @staticmethod
    def check_binding_key(key: str) -> None:  # noqa: ARG004  (most types take any key)
        """Make sure that a binding key has a meaning for this type.

        This is for clients of the native protocol; AMQP clients may use any key, as in RabbitMQ.

        Raises:
            InvalidRequest: the key has no meaning.
        """
        return

    @staticmethod
    def check_binding(key: str, arguments: Mapping[str, Any]) -> None:  # noqa: ARG004
        """Make sure that this type can work with a binding; what is refused here, RabbitMQ refuses, too.

        Raises:
            PreconditionFailed: it cannot work with the key or the arguments.
        """
        return


class BindingCounts(dict[Destination, int]):
    """The number of bindings that lead to each destination."""

    __slots__ = ()

    def bind(self, destination: Destination) -> None:
        """Count one binding more."""
        self[destination] = self.get(destination, 0) + 1

    def unbind(self, destination: Destination) -> None:
        """Count one binding less.

        Raises:
            KeyError: no binding leads there.
        """
        if self[destination] == 1:
            del self[destination]
        else:
            self[destination] -= 1
