"""The way of a message: exchanges, exchange-to-exchange bindings, alternate exchanges, and a cache of routes.

The bindings of an exchange lead to queues and to other exchanges, whose bindings lead on. Where the bindings of an
exchange match nothing, its alternate exchange is tried. No exchange is passed twice, so cycles end.
"""

from collections import ChainMap, Counter
from collections.abc import Container, Iterator, Mapping, MutableMapping, Sequence
from math import lcm
from typing import Final

from shardmq.errors import AccessRefused, NotFound
from shardmq.message.properties import Properties
from shardmq.topology.entities import DEFAULT_EXCHANGE, Binding, Exchange, Queue
from shardmq.topology.exchanges import TYPES
from shardmq.topology.exchanges.direct import Direct
from shardmq.topology.exchanges.exchange_type import BindingCounts, Destination, ExchangeType
from shardmq.topology.exchanges.partition import Partition
from shardmq.topology.policies.keys import ALTERNATE
from shardmq.topology.policies.matching import Policies

ROUTES_MAX: Final = 32_768
"""Routes remembered, each counted once and once more for every queue in it. With the longest keys that is about 16 MB;
a working set of keys that is larger pays for finding its routes again, some microseconds each."""


TURNS_MAX: Final = 16_384
"""Turns after which the same queues come again, where a message passes several topics; past it some come more often."""


class Router:
    """Finds the queues of a message, and remembers what it found.

    Its topology tells it of every change, after the change.

    Args:
        vhosts: names of the virtual hosts there are.
        exchanges: by virtual host and name.
        queues: by id.
        policies: may give exchanges an alternate exchange.
    """

    def __init__(
        self,
        vhosts: Container[str],
        exchanges: Mapping[tuple[str, str], Exchange],
        queues: Mapping[int, Queue],
        policies: Policies,
    ) -> None:
        self._vhosts = vhosts
        self._exchanges = exchanges
        self._queues = queues
        self._policies = policies
        self._matchers: MutableMapping[tuple[str, str], ExchangeType] = {}
        self._bound_exchanges: dict[tuple[str, str], BindingCounts] = {}  # by the exchange they are bound to
        self._alternates_to_default: Counter[str] = Counter()
        self._routes: dict[tuple[str, str, str], tuple[Queue, ...]] = {}
        self._routes_size = 0
        self._needs_message: dict[tuple[str, str], bool] = {}
        self._turns: dict[tuple[str, str, bool], int] = {}

    def with_partitions(self, counts: Mapping[tuple[str, str], int]) -> "Router":
        """The routes where topics have the first so many of their partitions alone; until the next change.

        Args:
            counts: of partitions, by virtual host and name of the topic.
        """
        matchers = {topic: self._matchers.get(topic) for topic in counts}
        fewer = {
            topic: matcher.first(counts[topic]) for topic, matcher in matchers.items() if isinstance(matcher, Partition)
        }
        router = Router(self._vhosts, self._exchanges, self._queues, self._policies)
        router._matchers = ChainMap[tuple[str, str], ExchangeType]({**fewer}, self._matchers)
        router._bound_exchanges = self._bound_exchanges
        return router

    def route(self, vhost: str, exchange: str, routing_key: str) -> tuple[Queue, ...]:
        """The queues of a message that has one routing key, each once, where `needs_message` is false.

        Raises:
            NotFound: there is no such exchange, or virtual host.
            AccessRefused: the exchange is internal.
        """
        route = self._routes.get((vhost, exchange, routing_key))
        return self._find_route(vhost, exchange, routing_key) if route is None else route

    def needs_message(self, vhost: str, exchange: str) -> bool:
        """Whether the key does not settle the route: an exchange on the way looks at the message's properties."""
        try:
            return self._needs_message[vhost, exchange]
        except KeyError:
            matchers = (self._matchers.get((vhost, name)) for name in self._exchanges_ahead(vhost, exchange))
            found = any(matcher is not None and matcher.needs_message for matcher in matchers)
            self._needs_message[vhost, exchange] = found
            return found

    def partition_of(self, vhost: str, exchange: str, routing_key: str) -> Queue | None:
        """The partition of a topic that messages with this key go to; None where there is more to it."""
        matcher = self._matchers.get((vhost, exchange))
        if not isinstance(matcher, Partition) or matcher.needs_message or matcher.takes_turns(routing_key):
            return None
        for partition in matcher.match(routing_key):
            if isinstance(partition, int):
                return self._queues[partition]
        return None

    def topic(self, vhost: str, exchange: str) -> Partition | None:
        """The exchange of a topic that has partitions, if keys and turns choose between them; None for all else."""
        matcher = self._matchers.get((vhost, exchange))
        if not isinstance(matcher, Partition) or matcher.needs_message or matcher.is_empty:
            return None
        return matcher

    def turns(self, vhost: str, exchange: str, routing_key: str) -> int:
        """After how many turns messages with this key come to the same partitions again; 0 where they take none."""
        place = vhost, exchange, bool(routing_key)
        turns = self._turns.get(place)
        if turns is None:
            ahead = (self._matchers.get((vhost, name)) for name in self._exchanges_ahead(vhost, exchange))
            topics = [matcher for matcher in ahead if isinstance(matcher, Partition)]
            counts = [topic.count for topic in topics if topic.count and topic.takes_turns(routing_key)]
            common = lcm(*counts) if counts else 0
            turns = self._turns[place] = common if common <= TURNS_MAX else max(counts)
        return turns

    def route_message(
        self, vhost: str, exchange: str, routing_keys: Sequence[str], properties: Properties | None, turn: int = 0
    ) -> tuple[Queue, ...]:
        """The queues of one message, each once: with several routing keys (CC), or where its properties matter.

        Where topics on the way take turns, `turn` says whose turn it is.

        Raises:
            NotFound: there is no such exchange, or virtual host.
            AccessRefused: the exchange is internal.
        """
        declared = self._exchanges.get((vhost, exchange))
        if declared is None and (exchange != DEFAULT_EXCHANGE or vhost not in self._vhosts):
            raise not_found("exchange", vhost, exchange, self._vhosts)
        if declared is not None and declared.internal:
            raise AccessRefused(
                f"cannot publish to internal exchange '{exchange}' in vhost '{vhost}'; use one bound to it"
            )
        return self.queues_reached(vhost, exchange, routing_keys, properties, turn)

    def queues_reached(
        self, vhost: str, exchange: str, routing_keys: Sequence[str], properties: Properties | None, turn: int = 0
    ) -> tuple[Queue, ...]:
        """The queues of a message that the broker itself passes on, such as a dead letter, each once.

        The exchange may be internal. An exchange that does not exist leads nowhere.
        """
        matcher = self._matchers.get((vhost, exchange))
        if matcher is not None and len(routing_keys) == 1 and not self._bound_exchanges.get((vhost, exchange)):
            if type(matcher) is Partition:  # isinstance takes 0.4 us more here, for the sake of abstract classes
                matched = matcher.match(routing_keys[0], properties, turn)
            else:
                matched = matcher.match(routing_keys[0], properties)
            if matched:  # no exchange is among them
                return tuple([self._queues[queue] for queue in matched if isinstance(queue, int)])
        found: dict[int, None] = {}
        seen = {exchange}
        ahead = [exchange]
        while ahead:
            name = ahead.pop()
            matcher = self._matchers.get((vhost, name))
            if matcher is None:
                continue  # an alternate exchange that was never declared, or is deleted
            if isinstance(matcher, Partition):
                matched = matcher.match_any(routing_keys, properties, turn)
            elif len(routing_keys) == 1:
                matched = matcher.match(routing_keys[0], properties)
            else:
                matched = matcher.match_any(routing_keys, properties)
            for destination in matched or self._alternate(vhost, name):
                if isinstance(destination, int):
                    found[destination] = None
                elif destination not in seen:
                    seen.add(destination)
                    ahead.append(destination)
        return tuple([self._queues[queue] for queue in found])

    def add_vhost(self, vhost: str) -> None:
        """Give a virtual host its default exchange."""
        self._matchers[vhost, DEFAULT_EXCHANGE] = Direct()

    def remove_vhost(self, vhost: str) -> None:
        """Remove the default exchange of a virtual host that has nothing else any more."""
        del self._matchers[vhost, DEFAULT_EXCHANGE]
        del self._alternates_to_default[vhost]
        self.forget()

    def add_exchange(self, exchange: Exchange) -> None:
        """Take in an exchange without bindings."""
        self._matchers[exchange.vhost, exchange.name] = TYPES[exchange.type](exchange.arguments)
        self._alternates_to_default[exchange.vhost] += exchange.arguments.get(ALTERNATE) == DEFAULT_EXCHANGE
        self.forget()

    def remove_exchange(self, exchange: Exchange) -> None:
        """Remove an exchange that has no bindings any more."""
        del self._matchers[exchange.vhost, exchange.name]
        self._alternates_to_default[exchange.vhost] -= exchange.arguments.get(ALTERNATE) == DEFAULT_EXCHANGE
        self.forget()

    def add_queue(self, queue: Queue) -> None:
        """Bind a queue to the default exchange."""
        self._matchers[queue.vhost, DEFAULT_EXCHANGE].add(queue.name, queue.id, {})
        self._forget_routes_by_name(queue)

    def remove_queue(self, queue: Queue) -> None:
        """Unbind a queue without other bindings from the default exchange."""
        self._matchers[queue.vhost, DEFAULT_EXCHANGE].remove(queue.name, queue.id, {})
        self._forget_routes_by_name(queue)

    def bind(self, binding: Binding, destination: Destination) -> None:
        """Take in a binding, which leads to `destination`."""
        source = binding.vhost, binding.exchange
        self._matchers[source].add(binding.key, destination, binding.arguments)
        if binding.to_exchange:
            self._bound_exchanges.setdefault(source, BindingCounts()).bind(destination)
            self._needs_message.clear()
        self._forget_routes()

    def unbind(self, binding: Binding, destination: Destination) -> None:
        """Remove a binding, which leads to `destination`."""
        source = binding.vhost, binding.exchange
        self._matchers[source].remove(binding.key, destination, binding.arguments)
        if binding.to_exchange:
            bound = self._bound_exchanges[source]
            bound.unbind(destination)
            if not bound:
                del self._bound_exchanges[source]
            self._needs_message.clear()
        self._forget_routes()

    def _find_route(self, vhost: str, exchange: str, routing_key: str) -> tuple[Queue, ...]:
        route = self.route_message(vhost, exchange, (routing_key,), None)
        self._routes_size += 1 + len(route)
        if self._routes_size > ROUTES_MAX:
            self._routes.clear()
            self._routes_size = 1 + len(route)
        self._routes[vhost, exchange, routing_key] = route
        return route

    def _exchanges_ahead(self, vhost: str, exchange: str) -> Iterator[str]:
        """The exchange and all that a message could pass after it, each once."""
        seen = {exchange}
        ahead = [exchange]
        while ahead:
            name = ahead.pop()
            yield name
            for destination in [*self._bound_exchanges.get((vhost, name), ()), *self._alternate(vhost, name)]:
                if isinstance(destination, str) and destination not in seen:
                    seen.add(destination)
                    ahead.append(destination)

    def _alternate(self, vhost: str, name: str) -> tuple[str, ...]:
        exchange = self._exchanges.get((vhost, name))
        alternate = self._policies.alternate(exchange) if exchange is not None else None
        return () if alternate is None else (alternate,)

    def forget(self) -> None:
        """Forget all routes: there are other exchanges, or policies."""
        self._forget_routes()
        self._needs_message.clear()

    def _forget_routes(self) -> None:
        self._routes.clear()
        self._turns.clear()
        self._routes_size = 0

    def _forget_routes_by_name(self, queue: Queue) -> None:
        """Forget the routes that a queue without bindings is on: only the default exchange leads to it.

        While queues are declared by the thousand, publishers keep all other routes.
        """
        if self._alternates_to_default[queue.vhost] or queue.vhost in self._policies.to_default:
            self._forget_routes()
            return
        route = self._routes.pop((queue.vhost, DEFAULT_EXCHANGE, queue.name), None)
        if route is not None:
            self._routes_size -= 1 + len(route)


def not_found(noun: str, vhost: str, name: str, vhosts: Container[str]) -> NotFound:
    """The error for an exchange or a queue that does not exist; it says so where the virtual host does not, either."""
    if vhost not in vhosts:
        return NotFound(f"no vhost '{vhost}'")
    return NotFound(f"no {noun} '{name}' in vhost '{vhost}'; declare it first")
