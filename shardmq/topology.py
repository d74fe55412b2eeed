"""What exists: exchanges, queues, bindings, users. Authoritative in the coordinator, a replica in every gateway.

Commands ask, changes tell. The coordinator turns a command into changes, writes them down and sends them to all.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from shardmq.errors import NotFound
from shardmq.model import DEFAULT_EXCHANGE, Binding, Exchange, Queue, User
from shardmq.routing import TYPES
from shardmq.routing.direct import Direct
from shardmq.routing.exchange_type import ExchangeType


class _Command(msgspec.Struct, frozen=True, array_like=True, tag_field="command"):
    vhost: str


class DeclareExchange(_Command, tag=1, frozen=True):
    """Make an exchange, or find the same one there."""

    name: str
    type: str
    durable: bool
    arguments: dict[str, Any]


class DeleteExchange(_Command, tag=2, frozen=True):
    """Remove an exchange and its bindings."""

    name: str


class DeclareQueue(_Command, tag=3, frozen=True):
    """Make a queue, or find the same one there. The answer is the queue's id."""

    name: str
    durable: bool
    arguments: dict[str, Any]


class DeleteQueue(_Command, tag=4, frozen=True):
    """Remove a queue, its messages and its bindings. The answer is how many messages it had."""

    name: str


class Bind(_Command, tag=5, frozen=True):
    """Make a binding, or find it there."""

    exchange: str
    queue: str
    key: str
    arguments: dict[str, Any]


class Unbind(_Command, tag=6, frozen=True):
    """Remove a binding, if it is there."""

    exchange: str
    queue: str
    key: str
    arguments: dict[str, Any]


Command = DeclareExchange | DeleteExchange | DeclareQueue | DeleteQueue | Bind | Unbind


class _Change(msgspec.Struct, frozen=True, array_like=True, tag_field="change"):
    pass


class VhostAdded(_Change, tag=1, frozen=True):
    vhost: str


class ExchangeAdded(_Change, tag=2, frozen=True):
    exchange: Exchange


class ExchangeRemoved(_Change, tag=3, frozen=True):
    vhost: str
    name: str


class QueueAdded(_Change, tag=4, frozen=True):
    queue: Queue


class QueueRemoved(_Change, tag=5, frozen=True):
    vhost: str
    name: str


class BindingAdded(_Change, tag=6, frozen=True):
    binding: Binding


class BindingRemoved(_Change, tag=7, frozen=True):
    binding: Binding


class UserAdded(_Change, tag=8, frozen=True):
    user: User


Change = (
    VhostAdded | ExchangeAdded | ExchangeRemoved | QueueAdded | QueueRemoved | BindingAdded | BindingRemoved | UserAdded
)
"""Removing an exchange or a queue is told as the removal of its bindings first, then of itself."""

BindingId = tuple[str, str, str, str, bytes]


def binding_id(binding: Binding) -> BindingId:
    """What makes a binding itself: both ends, key and arguments, in which the order of names does not count."""
    arguments = _encode_sorted(binding.arguments) if binding.arguments else b""
    return binding.vhost, binding.exchange, binding.queue, binding.key, arguments


_encode_sorted = msgspec.msgpack.Encoder(order="sorted").encode


class TopologyFields(Protocol):
    """All there is, as lists: what `bus.messages.Snapshot` carries."""

    @property
    def version(self) -> int: ...
    @property
    def vhosts(self) -> Sequence[str]: ...
    @property
    def exchanges(self) -> Sequence[Exchange]: ...
    @property
    def queues(self) -> Sequence[Queue]: ...
    @property
    def bindings(self) -> Sequence[Binding]: ...
    @property
    def users(self) -> Sequence[User]: ...


class TopologySnapshot(NamedTuple):
    """A topology at one version, as lists."""

    version: int
    vhosts: list[str]
    exchanges: list[Exchange]
    queues: list[Queue]
    bindings: list[Binding]
    users: list[User]


ROUTES_MAX: Final = 32_768
"""Routes remembered, each counted once and once more for every queue in it. With the longest keys that is about 16 MB;
a working set of keys that is larger pays for finding its routes again, some microseconds each."""


class Topology:
    """What exists, kept up to date by changes, and the routes that follow from it.

    Attributes:
        version: counts the applied commands; its owner sets it.
        vhosts: names of the virtual hosts, in order of appearance.
        exchanges: by virtual host and name. The default exchange is in none of them.
        queues: by virtual host and name.
        bindings: by `binding_id`.
        users: by name.
    """

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.version = 0
        self.vhosts: dict[str, None] = {}
        self.exchanges: dict[tuple[str, str], Exchange] = {}
        self.queues: dict[tuple[str, str], Queue] = {}
        self.bindings: dict[BindingId, Binding] = {}
        self.users: dict[str, User] = {}
        self._by_id: dict[int, Queue] = {}
        self._of_exchange: dict[tuple[str, str], dict[BindingId, Binding]] = {}
        self._of_queue: dict[tuple[str, str], dict[BindingId, Binding]] = {}
        self._rules: dict[tuple[str, str], ExchangeType] = {}
        self._routes: dict[tuple[str, str, str], tuple[Queue, ...]] = {}
        self._routes_size = 0

    # --- looking ------------------------------------------------------------------------------------------------------

    def route(self, vhost: str, exchange: str, routing_key: str) -> tuple[Queue, ...]:
        """The queues that a message goes to, each once.

        The hot path of a gateway: a route found before costs one dict lookup (0.1 µs).

        Raises:
            NotFound: no such exchange, or virtual host.
        """
        try:
            return self._routes[vhost, exchange, routing_key]
        except KeyError:
            return self._find_route(vhost, exchange, routing_key)

    def exchange(self, vhost: str, name: str) -> Exchange:
        """An exchange by its name.

        Raises:
            NotFound: no such exchange, or virtual host.
        """
        exchange = self.exchanges.get((vhost, name))
        if exchange is None:
            raise self._missing("exchange", vhost, name)
        return exchange

    def queue(self, vhost: str, name: str) -> Queue:
        """A queue by its name.

        Raises:
            NotFound: no such queue, or virtual host.
        """
        queue = self.queues.get((vhost, name))
        if queue is None:
            raise self._missing("queue", vhost, name)
        return queue

    def has_queue(self, queue_id: int) -> bool:
        """Whether there is a queue of that id; looks at all of them."""
        return any(queue.id == queue_id for queue in self.queues.values())

    def bindings_of_exchange(self, vhost: str, name: str) -> list[Binding]:
        """The bindings whose source it is."""
        return list(self._of_exchange.get((vhost, name), {}).values())

    def bindings_of_queue(self, vhost: str, name: str) -> list[Binding]:
        """The bindings that lead to it, without that to the default exchange, which every queue has."""
        return list(self._of_queue.get((vhost, name), {}).values())

    def check_vhost(self, vhost: str) -> None:
        """Make sure that a virtual host is there.

        Raises:
            NotFound: it is not.
        """
        if vhost not in self.vhosts:
            raise NotFound(f"no virtual host '{vhost}'")

    def check_binding_key(self, vhost: str, exchange: str, key: str) -> None:
        """Refuse binding keys the exchange's type has no sensible meaning for; for the native protocol, not for AMQP.

        Raises:
            InvalidRequest: as `routing.ExchangeType.check_binding_key`.
            NotFound: no such exchange, or virtual host.
        """
        TYPES[self.exchange(vhost, exchange).type].check_binding_key(key)

    def snapshot(self) -> TopologySnapshot:
        """All there is."""
        return TopologySnapshot(
            self.version,
            list(self.vhosts),
            list(self.exchanges.values()),
            list(self.queues.values()),
            list(self.bindings.values()),
            list(self.users.values()),
        )

    # --- changing -----------------------------------------------------------------------------------------------------

    def load(self, fields: TopologyFields) -> None:
        """Forget all and hold what a snapshot says instead."""
        self._clear()
        for vhost in fields.vhosts:
            self._add_vhost(VhostAdded(vhost))
        for exchange in fields.exchanges:
            self._add_exchange(ExchangeAdded(exchange))
        for queue in fields.queues:
            self._add_queue(QueueAdded(queue))
        for binding in fields.bindings:
            self._add_binding(BindingAdded(binding))
        for user in fields.users:
            self._add_user(UserAdded(user))
        self.version = fields.version

    def apply(self, change: Change) -> None:
        """Take in one change. It must fit what is here: whoever tells changes tells them all, in order.

        Raises:
            KeyError: it does not fit; this replica is broken and must be loaded anew.
        """
        _APPLY[type(change)](self, change)
        self._routes.clear()
        self._routes_size = 0

    def _add_vhost(self, change: VhostAdded) -> None:
        self.vhosts[change.vhost] = None
        self._rules[change.vhost, DEFAULT_EXCHANGE] = Direct()

    def _add_exchange(self, change: ExchangeAdded) -> None:
        exchange = change.exchange
        self.exchanges[exchange.vhost, exchange.name] = exchange
        self._rules[exchange.vhost, exchange.name] = TYPES[exchange.type]()

    def _remove_exchange(self, change: ExchangeRemoved) -> None:
        del self.exchanges[change.vhost, change.name]
        del self._rules[change.vhost, change.name]

    def _add_queue(self, change: QueueAdded) -> None:
        queue = change.queue
        self.queues[queue.vhost, queue.name] = queue
        self._by_id[queue.id] = queue
        self._rules[queue.vhost, DEFAULT_EXCHANGE].add(queue.name, queue.id, {})

    def _remove_queue(self, change: QueueRemoved) -> None:
        queue = self.queues.pop((change.vhost, change.name))
        del self._by_id[queue.id]
        self._rules[queue.vhost, DEFAULT_EXCHANGE].remove(queue.name, queue.id, {})

    def _add_binding(self, change: BindingAdded) -> None:
        binding, identity = change.binding, binding_id(change.binding)
        source, target = (binding.vhost, binding.exchange), (binding.vhost, binding.queue)
        self._rules[source].add(binding.key, self.queues[target].id, binding.arguments)
        self.bindings[identity] = binding
        self._of_exchange.setdefault(source, {})[identity] = binding
        self._of_queue.setdefault(target, {})[identity] = binding

    def _remove_binding(self, change: BindingRemoved) -> None:
        binding, identity = change.binding, binding_id(change.binding)
        source, target = (binding.vhost, binding.exchange), (binding.vhost, binding.queue)
        del self.bindings[identity]
        self._rules[source].remove(binding.key, self.queues[target].id, binding.arguments)
        for index, end in ((self._of_exchange, source), (self._of_queue, target)):
            del index[end][identity]
            if not index[end]:
                del index[end]

    def _add_user(self, change: UserAdded) -> None:
        self.users[change.user.name] = change.user

    def _find_route(self, vhost: str, exchange: str, routing_key: str) -> tuple[Queue, ...]:
        rule = self._rules.get((vhost, exchange))
        if rule is None:
            raise self._missing("exchange", vhost, exchange)
        by_id = self._by_id
        route = tuple([by_id[queue] for queue in rule.match(routing_key)])
        self._routes_size += 1 + len(route)
        if self._routes_size > ROUTES_MAX:
            self._routes.clear()
            self._routes_size = 1 + len(route)
        self._routes[vhost, exchange, routing_key] = route
        return route

    def _missing(self, noun: str, vhost: str, name: str) -> NotFound:
        if vhost not in self.vhosts:
            return NotFound(f"no virtual host '{vhost}'")
        return NotFound(f"no {noun} '{name}' in virtual host '{vhost}'; declare it first")


_APPLY: Final[dict[type[Any], Callable[[Topology, Any], None]]] = {
    VhostAdded: Topology._add_vhost,
    ExchangeAdded: Topology._add_exchange,
    ExchangeRemoved: Topology._remove_exchange,
    QueueAdded: Topology._add_queue,
    QueueRemoved: Topology._remove_queue,
    BindingAdded: Topology._add_binding,
    BindingRemoved: Topology._remove_binding,
    UserAdded: Topology._add_user,
}
