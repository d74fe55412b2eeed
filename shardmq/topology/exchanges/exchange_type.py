"""What every exchange type can do."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from shardmq.message.properties import Properties

Destination = int | str
"""Where a binding leads: a queue, by its id, or another exchange, by its name."""

NONE: Final[Mapping[str, Any]] = MappingProxyType({})
"""An exchange declared without arguments."""


class ExchangeType(ABC):
    """The bindings of one exchange, arranged for finding the destinations of a message.

    Two bindings may differ in their arguments only; each is added and removed by itself, and the message still goes to
    the destination once. Made with the exchange's arguments.
    """

    __slots__ = ()

    @abstractmethod
    def __init__(self, arguments: Mapping[str, Any] = NONE) -> None: ...

    @abstractmethod
    def add(self, key: str, destination: Destination, arguments: dict[str, Any]) -> None:
        """Put in a binding that is not there yet."""

    @abstractmethod
    def remove(self, key: str, destination: Destination, arguments: dict[str, Any]) -> None:
        """Take out a binding that is there; KeyError when it is not."""

    @abstractmethod
    def match(self, routing_key: str, properties: Properties | None = None) -> Collection[Destination]:
        """Where a message with this routing key goes to, each once. To be read before the next change.

        Args:
            routing_key: of the message.
            properties: of the message; looked at only where `needs_message`.
        """

    def match_any(self, routing_keys: Sequence[str], properties: Properties | None = None) -> Collection[Destination]:
        """Where one message with several routing keys (CC) goes to, each once: wherever any of them leads."""
        return {destination: None for key in routing_keys for destination in self.match(key, properties)}

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether there are no bindings."""

    @property
    def needs_message(self) -> bool:
        """Whether `match` looks at a message's properties: such a publish is routed message by message."""
        return False

    @staticmethod
    def check_binding_key(key: str) -> None:  # noqa: ARG004  (any key will do where a type does not say otherwise)
        """Refuse binding keys that cannot mean what their author hopes.

        The native protocol asks; AMQP clients get RabbitMQ's behaviour, which takes every key.

        Raises:
            InvalidRequest: the key has no sensible meaning for this type.
        """
        return

    @staticmethod
    def check_binding(key: str, arguments: Mapping[str, Any]) -> None:  # noqa: ARG004
        """Refuse bindings that RabbitMQ refuses, whatever the protocol.

        Raises:
            PreconditionFailed: key or arguments are none this type can work by.
        """
        return


class BindingCounts(dict[Destination, int]):
    """Destinations with the number of bindings that lead to each."""

    __slots__ = ()

    def bind(self, destination: Destination) -> None:
        """One binding more to it."""
        self[destination] = self.get(destination, 0) + 1

    def unbind(self, destination: Destination) -> None:
        """One binding less; KeyError when there is none."""
        if self[destination] == 1:
            del self[destination]
        else:
            self[destination] -= 1
