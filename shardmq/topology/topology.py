"""What exists: virtual hosts, exchanges, queues, bindings, users. Authoritative in the coordinator, a replica in every
gateway; kept up to date by changes (`shardmq.topology.commands`).

A message's way: the bindings of its exchange lead to queues and to other exchanges, whose bindings lead on; where an
exchange's bindings lead nowhere, its alternate exchange is tried. Nothing is passed twice, so cycles end.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from shardmq.errors import AccessRefused, NotFound
from shardmq.message.properties import Properties
from shardmq.topology.changes import (
    BindingAdded,
    BindingRemoved,
    Change,
    ConnectionClosed,
    ExchangeAdded,
    ExchangeRemoved,
    PermissionPut,
    PermissionRemoved,
    QueueAdded,
    QueueRemoved,
    TransactionBegun,
    TransactionEnded,
    UserPut,
    UserRemoved,
    VhostPut,
    VhostRemoved,
)
from shardmq.topology.entities import (
    DEFAULT_EXCHANGE,
    Binding,
    Exchange,
    OpenTransaction,
    Permission,
    Queue,
    User,
    Vhost,
)
from shardmq.topology.exchanges import TYPES
from shardmq.topology.exchanges.direct import Direct
from shardmq.topology.exchanges.exchange_type import Bound, Destination, ExchangeType
from shardmq.topology.router import ALTERNATE, ROUTES_MAX

BindingId = tuple[str, str, str, bool, str, bytes]


def binding_id(binding: Binding) -> BindingId:
    """What makes a binding itself: both ends, key and arguments, in which the order of names does not count."""
    arguments = _encode_sorted(binding.arguments) if binding.arguments else b""
    return binding.vhost, binding.exchange, binding.destination, binding.to_exchange, binding.key, arguments


_encode_sorted = msgspec.msgpack.Encoder(order="sorted").encode


class TopologyFields(Protocol):
    """All there is, as lists: what `bus.messages.Snapshot` carries."""

    @property
    def version(self) -> int: ...
    @property
    def vhosts(self) -> Sequence[Vhost]: ...
    @property
    def exchanges(self) -> Sequence[Exchange]: ...
    @property
    def queues(self) -> Sequence[Queue]: ...
    @property
    def bindings(self) -> Sequence[Binding]: ...
    @property
    def users(self) -> Sequence[User]: ...
    @property
    def permissions(self) -> Sequence[Permission]: ...
    @property
    def transactions(self) -> Sequence[OpenTransaction]: ...


class TopologySnapshot(NamedTuple):
    """A topology at one version, as lists."""

    version: int
    vhosts: list[Vhost]
    exchanges: list[Exchange]
    queues: list[Queue]
    bindings: list[Binding]
    users: list[User]
    permissions: list[Permission]
    transactions: Sequence[OpenTransaction] = ()


class Topology:
    """What exists, kept up to date by changes, and the routes that follow from it.

    Attributes:
        version: counts the applied commands; its owner sets it.
        vhosts: by name, in order of appearance.
        exchanges: by virtual host and name. The default exchange is in none of them.
        queues: by virtual host and name.
        bindings: by `binding_id`.
        users: by name.
        permissions: by user and virtual host.
        transactions: that are undecided, by number.
    """

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.version = 0
        self.vhosts: dict[str, Vhost] = {}
        self.exchanges: dict[tuple[str, str], Exchange] = {}
        self.queues: dict[tuple[str, str], Queue] = {}
        self.bindings: dict[BindingId, Binding] = {}
        self.users: dict[str, User] = {}
        self.permissions: dict[tuple[str, str], Permission] = {}
        self.transactions: dict[int, OpenTransaction] = {}
        self._transactions_by_name: dict[tuple[str, str], OpenTransaction] = {}
        self._by_id: dict[int, Queue] = {}
        self._of_exchange: dict[tuple[str, str], dict[BindingId, Binding]] = {}
        self._to: dict[tuple[str, str, bool], dict[BindingId, Binding]] = {}
        self._exclusive: dict[int, Queue] = {}
        self._queues_of: Counter[str] = Counter()
        self._exchanges_behind: dict[tuple[str, str], Bound] = {}  # bound to an exchange, by name
        self._alternates_to_default: Counter[str] = Counter()
        self._rules: dict[tuple[str, str], ExchangeType] = {}
        self._routes: dict[tuple[str, str, str], tuple[Queue, ...]] = {}
        self._routes_size = 0
        self._by_message: dict[tuple[str, str], bool] = {}

    # --- looking ------------------------------------------------------------------------------------------------------

    def route(self, vhost: str, exchange: str, routing_key: str) -> tuple[Queue, ...]:
        """The queues that a message goes to, each once, where `by_message` is false.

        The hot path of a gateway: a route found before costs one dict lookup (0.1 µs).

        Raises:
            NotFound: no such exchange, or virtual host.
            AccessRefused: the exchange is internal.
        """
        try:
            return self._routes[vhost, exchange, routing_key]
        except KeyError:
            return self._find_route(vhost, exchange, routing_key)

    def by_message(self, vhost: str, exchange: str) -> bool:
        """Whether the key does not settle where a message goes: an exchange on its way looks at its properties."""
        try:
            return self._by_message[vhost, exchange]
        except KeyError:
            found = self._by_message[vhost, exchange] = self._leads_by_message(vhost, exchange)
            return found

    def route_message(
        self, vhost: str, exchange: str, keys: Sequence[str], properties: Properties | None
    ) -> tuple[Queue, ...]:
        """The queues that one message goes to, each once: with several keys (CC), or where its properties matter.

        Raises:
            NotFound: no such exchange, or virtual host.
            AccessRefused: the exchange is internal.
        """
        self._check_publishable(vhost, exchange)
        return self.reach(vhost, exchange, keys, properties)

    def reach(self, vhost: str, exchange: str, keys: Sequence[str], properties: Properties | None) -> tuple[Queue, ...]:
        """As `route_message`, for what the broker itself passes on (dead letters): the exchange may be internal, and
        where it is not there, this leads nowhere.
        """
        return tuple([self._by_id[queue] for queue in self._reach(vhost, exchange, keys, properties)])

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
        """Whether there is a queue of that id."""
        return queue_id in self._by_id

    def queue_by_id(self, queue_id: int) -> Queue | None:
        """The queue of that id, if there is one."""
        return self._by_id.get(queue_id)

    def queue_count(self, vhost: str) -> int:
        """How many queues a virtual host has."""
        return self._queues_of[vhost]

    @property
    def exclusive_queues(self) -> Collection[Queue]:
        """The queues that belong to a connection. To be read before the next change."""
        return self._exclusive.values()

    def binding_count(self, vhost: str, exchange: str) -> int:
        """How many bindings have it as their source."""
        return len(self._of_exchange.get((vhost, exchange), ()))

    def bindings_of_exchange(self, vhost: str, name: str) -> list[Binding]:
        """The bindings whose source it is."""
        return list(self._of_exchange.get((vhost, name), {}).values())

    def bindings_of_queue(self, vhost: str, name: str) -> list[Binding]:
        """The bindings that lead to it, without that to the default exchange, which every queue has."""
        return list(self._to.get((vhost, name, False), {}).values())

    def bindings_to_exchange(self, vhost: str, name: str) -> list[Binding]:
        """The bindings whose destination it is."""
        return list(self._to.get((vhost, name, True), {}).values())

    def transaction(self, vhost: str, name: str) -> OpenTransaction | None:
        """The undecided transaction of that name, if there is one."""
        return self._transactions_by_name.get((vhost, name))

    def check_vhost(self, vhost: str) -> None:
        """Make sure that a virtual host is there.

        Raises:
            NotFound: it is not.
        """
        if vhost not in self.vhosts:
            raise NotFound(f"no vhost '{vhost}'")

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
            list(self.vhosts.values()),
            list(self.exchanges.values()),
            list(self.queues.values()),
            list(self.bindings.values()),
            list(self.users.values()),
            list(self.permissions.values()),
            list(self.transactions.values()),
        )

    # --- changing -----------------------------------------------------------------------------------------------------

    def load(self, fields: TopologyFields) -> None:
        """Forget all and hold what a snapshot says instead."""
        self._clear()
        for vhost in fields.vhosts:
            self._put_vhost(VhostPut(vhost))
        for exchange in fields.exchanges:
            self._add_exchange(ExchangeAdded(exchange))
        for queue in fields.queues:
            self._add_queue(QueueAdded(queue))
        for binding in fields.bindings:
            self._add_binding(BindingAdded(binding))
        for user in fields.users:
            self._put_user(UserPut(user))
        for permission in fields.permissions:
            self._put_permission(PermissionPut(permission))
        for transaction in fields.transactions:
            self._begin_transaction(TransactionBegun(transaction))
        self.version = fields.version

    def apply(self, change: Change) -> None:
        """Take in one change. It must fit what is here: whoever tells changes tells them all, in order.

        Raises:
            KeyError: it does not fit; this replica is broken and must be loaded anew.
        """
        _APPLY[type(change)](self, change)

    def _put_vhost(self, change: VhostPut) -> None:
        name = change.vhost.name
        if name not in self.vhosts:
            self._rules[name, DEFAULT_EXCHANGE] = Direct()
        self.vhosts[name] = change.vhost

    def _remove_vhost(self, change: VhostRemoved) -> None:
        del self.vhosts[change.name]
        del self._rules[change.name, DEFAULT_EXCHANGE]
        self._forget_routes()
        self._by_message.clear()

    def _add_exchange(self, change: ExchangeAdded) -> None:
        exchange = change.exchange
        self.exchanges[exchange.vhost, exchange.name] = exchange
        self._rules[exchange.vhost, exchange.name] = TYPES[exchange.type](exchange.arguments)
        self._alternates_to_default[exchange.vhost] += exchange.arguments.get(ALTERNATE) == DEFAULT_EXCHANGE
        self._forget_routes()
        self._by_message.clear()

    def _remove_exchange(self, change: ExchangeRemoved) -> None:
        exchange = self.exchanges.pop((change.vhost, change.name))
        del self._rules[change.vhost, change.name]
        self._alternates_to_default[exchange.vhost] -= exchange.arguments.get(ALTERNATE) == DEFAULT_EXCHANGE
        self._forget_routes()
        self._by_message.clear()

    def _add_queue(self, change: QueueAdded) -> None:
        queue = change.queue
        self.queues[queue.vhost, queue.name] = queue
        self._by_id[queue.id] = queue
        self._queues_of[queue.vhost] += 1
        if queue.owner:
            self._exclusive[queue.id] = queue
        self._rules[queue.vhost, DEFAULT_EXCHANGE].add(queue.name, queue.id, {})
        self._forget_routes_by_name(queue)

    def _remove_queue(self, change: QueueRemoved) -> None:
        queue = self.queues.pop((change.vhost, change.name))
        del self._by_id[queue.id]
        self._queues_of[queue.vhost] -= 1
        self._exclusive.pop(queue.id, None)
        self._rules[queue.vhost, DEFAULT_EXCHANGE].remove(queue.name, queue.id, {})
        self._forget_routes_by_name(queue)

    def _add_binding(self, change: BindingAdded) -> None:
        binding, identity = change.binding, binding_id(change.binding)
        source, target = (binding.vhost, binding.exchange), (binding.vhost, binding.destination, binding.to_exchange)
        destination = self._destination(binding)
        self._rules[source].add(binding.key, destination, binding.arguments)
        self.bindings[identity] = binding
        self._of_exchange.setdefault(source, {})[identity] = binding
        self._to.setdefault(target, {})[identity] = binding
        if binding.to_exchange:
            self._exchanges_behind.setdefault(source, Bound()).bind(destination)
            self._by_message.clear()
        self._forget_routes()

    def _remove_binding(self, change: BindingRemoved) -> None:
        binding, identity = change.binding, binding_id(change.binding)
        source, target = (binding.vhost, binding.exchange), (binding.vhost, binding.destination, binding.to_exchange)
        destination = self._destination(binding)
        del self.bindings[identity]
        self._rules[source].remove(binding.key, destination, binding.arguments)
        _take_out(self._of_exchange, source, identity)
        _take_out(self._to, target, identity)
        if binding.to_exchange:
            self._exchanges_behind[source].unbind(destination)
            self._by_message.clear()
        self._forget_routes()

    def _destination(self, binding: Binding) -> Destination:
        """As it stands in the exchange's rule: a queue's id, or an exchange's name."""
        end = binding.vhost, binding.destination
        return self.exchanges[end].name if binding.to_exchange else self.queues[end].id

    def _forget_routes(self) -> None:
        self._routes.clear()
        self._routes_size = 0

    def _forget_routes_by_name(self, queue: Queue) -> None:
        """Only what goes by the default exchange can lead to a queue without bindings: while queues are declared by the
        thousand, publishers find their routes as before.
        """
        if self._alternates_to_default[queue.vhost]:
            self._forget_routes()
            return
        route = self._routes.pop((queue.vhost, DEFAULT_EXCHANGE, queue.name), None)
        if route is not None:
            self._routes_size -= 1 + len(route)

    def _put_user(self, change: UserPut) -> None:
        self.users[change.user.name] = change.user

    def _remove_user(self, change: UserRemoved) -> None:
        del self.users[change.name]

    def _put_permission(self, change: PermissionPut) -> None:
        self.permissions[change.permission.user, change.permission.vhost] = change.permission

    def _remove_permission(self, change: PermissionRemoved) -> None:
        del self.permissions[change.user, change.vhost]

    def _begin_transaction(self, change: TransactionBegun) -> None:
        transaction = change.transaction
        self.transactions[transaction.number] = transaction
        self._transactions_by_name[transaction.vhost, transaction.name] = transaction

    def _end_transaction(self, change: TransactionEnded) -> None:
        del self.transactions[change.number]
        del self._transactions_by_name[change.vhost, change.name]

    def _expel(self, change: ConnectionClosed) -> None:
        """Not of the topology; whoever has the connection looks at the change itself."""

    # --- routes -------------------------------------------------------------------------------------------------------

    def _find_route(self, vhost: str, exchange: str, routing_key: str) -> tuple[Queue, ...]:
        route = self.route_message(vhost, exchange, (routing_key,), None)
        self._routes_size += 1 + len(route)
        if self._routes_size > ROUTES_MAX:
            self._routes.clear()
            self._routes_size = 1 + len(route)
        self._routes[vhost, exchange, routing_key] = route
        return route

    def _reach(self, vhost: str, exchange: str, keys: Sequence[str], properties: Properties | None) -> dict[int, None]:
        """The ids of the queues that a message gets to from an exchange."""
        found: dict[int, None] = {}
        seen = {exchange}
        ahead = [exchange]
        while ahead:
            name = ahead.pop()
            rule = self._rules.get((vhost, name))
            if rule is None:
                continue  # an alternate exchange that was never declared, or is deleted
            matched = rule.match(keys[0], properties) if len(keys) == 1 else rule.match_any(keys, properties)
            for destination in matched or self._alternate(vhost, name):
                if isinstance(destination, int):
                    found[destination] = None
                elif destination not in seen:
                    seen.add(destination)
                    ahead.append(destination)
        return found

    def _leads_by_message(self, vhost: str, exchange: str) -> bool:
        seen = {exchange}
        ahead = [exchange]
        while ahead:
            name = ahead.pop()
            rule = self._rules.get((vhost, name))
            if rule is not None and rule.by_message:
                return True
            following = self._exchanges_behind.get((vhost, name), ())
            for destination in [*following, *self._alternate(vhost, name)]:
                if isinstance(destination, str) and destination not in seen:
                    seen.add(destination)
                    ahead.append(destination)
        return False

    def _alternate(self, vhost: str, name: str) -> tuple[str, ...]:
        exchange = self.exchanges.get((vhost, name))
        alternate = exchange.arguments.get(ALTERNATE) if exchange is not None else None
        return () if alternate is None else (alternate,)

    def _check_publishable(self, vhost: str, name: str) -> None:
        exchange = self.exchanges.get((vhost, name))
        if exchange is None and (name != DEFAULT_EXCHANGE or vhost not in self.vhosts):
            raise self._missing("exchange", vhost, name)
        if exchange is not None and exchange.internal:
            raise AccessRefused(f"cannot publish to internal exchange '{name}' in vhost '{vhost}'; use one bound to it")

    def _missing(self, noun: str, vhost: str, name: str) -> NotFound:
        if vhost not in self.vhosts:
            return NotFound(f"no vhost '{vhost}'")
        return NotFound(f"no {noun} '{name}' in vhost '{vhost}'; declare it first")


def _take_out(index: dict[Any, dict[BindingId, Binding]], end: Any, identity: BindingId) -> None:
    bindings = index[end]
    del bindings[identity]
    if not bindings:
        del index[end]


_APPLY: Final[dict[type[Any], Callable[[Topology, Any], None]]] = {
    VhostPut: Topology._put_vhost,
    VhostRemoved: Topology._remove_vhost,
    ExchangeAdded: Topology._add_exchange,
    ExchangeRemoved: Topology._remove_exchange,
    QueueAdded: Topology._add_queue,
    QueueRemoved: Topology._remove_queue,
    BindingAdded: Topology._add_binding,
    BindingRemoved: Topology._remove_binding,
    UserPut: Topology._put_user,
    UserRemoved: Topology._remove_user,
    PermissionPut: Topology._put_permission,
    PermissionRemoved: Topology._remove_permission,
    ConnectionClosed: Topology._expel,
    TransactionBegun: Topology._begin_transaction,
    TransactionEnded: Topology._end_transaction,
}
