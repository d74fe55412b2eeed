"""Exchanges of topics: a message goes to one partition, chosen by its routing key, in turns, or by a header.

The partitions are bound with their numbers as keys. With the partitioner "key", a message goes to the partition whose
number is the hash of its routing key, modulo their count; the hash is that of consistent-hash exchanges. Adding
partitions moves keys: what a key's messages went to before, stays there.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from xxhash import xxh3_64_intdigest

from shardmq.errors import PreconditionFailed
from shardmq.message.properties import Properties
from shardmq.topology.arguments import PARTITIONER
from shardmq.topology.exchanges.exchange_type import NONE, Destination, ExchangeType

PARTITION_HEADER: Final = "x-partition"
"""The header of a message that names its partition, where the publisher chooses it."""


class Partition(ExchangeType):
    """The partitions of a topic, by number."""

    __slots__ = ("_bound", "_by_number", "_partitioner")

    def __init__(self, arguments: Mapping[str, Any] = NONE) -> None:
        self._partitioner: str = arguments.get(PARTITIONER, "key")
        self._bound: dict[int, Destination] = {}
        self._by_number: list[Destination] | None = None  # arranged when a message needs it

    def add(self, key: str, destination: Destination, arguments: dict[str, Any]) -> None:  # noqa: ARG002
        self._bound[int(key)] = destination
        self._by_number = None

    def remove(self, key: str, destination: Destination, arguments: dict[str, Any]) -> None:  # noqa: ARG002
        del self._bound[int(key)]
        self._by_number = None

    @property
    def count(self) -> int:
        """How many partitions there are."""
        return len(self._bound)

    def first(self, count: int) -> "Partition":
        """An exchange with the first so many of these partitions; itself where messages say which they go to."""
        if self._partitioner == "explicit":
            return self
        fewer = Partition({PARTITIONER: self._partitioner})
        fewer._bound = {number: destination for number, destination in self._bound.items() if number < count}
        return fewer

    def takes_turns(self, routing_key: str) -> bool:
        """Whether messages with this key take partitions in turns: nothing in them says which."""
        return self._partitioner == "round-robin" or (self._partitioner == "key" and not routing_key)

    def numbers_of(self, routing_keys: Sequence[str], turn: int) -> list[int]:
        """The number of the partition that each of some messages goes to, where messages themselves do not say it.

        Args:
            routing_keys: of the messages, valid Unicode.
            turn: whose turn it is, for those that take turns.
        """
        count = len(self._bound)
        own = turn % count
        if self._partitioner == "round-robin":
            return [own] * len(routing_keys)
        return [xxh3_64_intdigest(key.encode()) % count if key else own for key in routing_keys]

    def match(self, routing_key: str, properties: Properties | None = None, turn: int = 0) -> Collection[Destination]:
        partitions = self._by_number
        if partitions is None:
            partitions = self._by_number = [self._bound[number] for number in sorted(self._bound)]
        if not partitions:
            return ()
        if self._partitioner == "explicit":
            headers = properties.headers if properties is not None else None
            number = (headers or NONE).get(PARTITION_HEADER)
            return (partitions[number],) if type(number) is int and 0 <= number < len(partitions) else ()
        if self.takes_turns(routing_key):
            return (partitions[turn % len(partitions)],)
        return (partitions[xxh3_64_intdigest(routing_key.encode("utf-8", "surrogatepass")) % len(partitions)],)

    def match_any(
        self, routing_keys: Sequence[str], properties: Properties | None = None, turn: int = 0
    ) -> Collection[Destination]:
        """The partition of a message, by its first routing key alone: one message, one partition."""
        return self.match(routing_keys[0], properties, turn)

    @property
    def is_empty(self) -> bool:
        return not self._bound

    @property
    def needs_message(self) -> bool:
        return self._partitioner == "explicit"

    @staticmethod
    def check_binding(key: str, arguments: Mapping[str, Any]) -> None:  # noqa: ARG004
        raise PreconditionFailed(f"binding key '{key}': an x-partition exchange has the partitions of its topic alone")
