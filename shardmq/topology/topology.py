"""All that exists, kept up to date by changes. Authoritative in the coordinator, a replica in every gateway."""

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, Final

from shardmq.errors import NotFound
from shardmq.topology import changes as kinds
from shardmq.topology.binding_ids import BindingId, binding_id, ends, take_out
from shardmq.topology.changes import Change
from shardmq.topology.entities import (
    Binding,
    Exchange,
    OpenTransaction,
    Permission,
    Queue,
    Topic,
    TopicPermission,
    User,
    Vhost,
    partition_name,
)
from shardmq.topology.exchanges import TYPES
from shardmq.topology.exchanges.exchange_type import Destination
from shardmq.topology.parameters.collection import Parameters
from shardmq.topology.policies.matching import Policies
from shardmq.topology.router import Router, not_found
from shardmq.topology.snapshot import TopologyFields, TopologySnapshot


class Topology:
    """What exists, kept up to date by changes.

    Attributes:
        version: the number of applied commands; its owner sets it.
        vhosts: by name, in order of appearance.
        exchanges: by virtual host and name. The default exchange is not among them.
        queues: by virtual host and name.
        bindings: by `binding_id`.
        users: by name.
        permissions: by user and virtual host.
        transactions: the undecided ones, by number.
        topics: by virtual host and name.
        grown: the topics among them that have got partitions since they were declared.
        grown_to: the id of the first queue that was added to a topic last; 1 before any was.
        policies: and operator policies.
        topic_permissions: by user and virtual host, then by exchange.
        tracing: the part of messages that is traced, by virtual host; 0 to 1. Others are not traced.
        parameters: of components, and what those report.
        router: the routes that follow from all this; another one after each `load`.
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
        self.topics: dict[tuple[str, str], Topic] = {}
        self.grown: set[tuple[str, str]] = set()
        self.grown_to = 1
        self._partitions: dict[int, tuple[str, str]] = {}  # names of topics, by id of the queue
        self._queues_by_id: dict[int, Queue] = {}
        self._bindings_by_exchange: dict[tuple[str, str], dict[BindingId, Binding]] = {}
        self._bindings_by_destination: dict[tuple[str, str, bool], dict[BindingId, Binding]] = {}
        self._exclusive_queues: dict[int, Queue] = {}
        self._queue_counts: Counter[str] = Counter()
        self.policies = Policies()
        self.topic_permissions: dict[tuple[str, str], dict[str, TopicPermission]] = {}
        self.tracing: dict[str, float] = {}
        self.parameters = Parameters()
        self.router = Router(self.vhosts, self.exchanges, self._queues_by_id, self.policies)

    def exchange(self, vhost: str, name: str) -> Exchange:
        """An exchange by its name.

        Raises:
            NotFound: there is no such exchange, or virtual host.
        """
        exchange = self.exchanges.get((vhost, name))
        if exchange is None:
            raise not_found("exchange", vhost, name, self.vhosts)
        return exchange

    def queue(self, vhost: str, name: str) -> Queue:
        """A queue by its name.

        Raises:
            NotFound: there is no such queue, or virtual host.
        """
        queue = self.queues.get((vhost, name))
        if queue is None:
            if (vhost, name) in self.topics:
                raise NotFound(
                    f"no queue '{name}' in vhost '{vhost}', but a topic: consume it as a member of a group "
                    f"(x-group; --group), or one of its partitions, as queue '{partition_name(name, 0)}'"
                )
            raise not_found("queue", vhost, name, self.vhosts)
        return queue

    def has_queue(self, queue_id: int) -> bool:
        """Whether there is a queue with this id."""
        return queue_id in self._queues_by_id

    def queue_by_id(self, queue_id: int) -> Queue | None:
        """The queue with this id, if there is one."""
        return self._queues_by_id.get(queue_id)

    def topic(self, vhost: str, name: str) -> Topic:
        """A topic by its name.

        Raises:
            NotFound: there is no such topic, or virtual host.
        """
        topic = self.topics.get((vhost, name))
        if topic is None:
            raise not_found("topic", vhost, name, self.vhosts)
        return topic

    def topic_of(self, queue_id: int) -> Topic | None:
        """The topic that a queue is a partition of; None for any other queue."""
        name = self._partitions.get(queue_id)
        return None if name is None else self.topics[name]

    def queue_count(self, vhost: str) -> int:
        """The number of queues in a virtual host."""
        return self._queue_counts[vhost]

    @property
    def exclusive_queues(self) -> Collection[Queue]:
        """The exclusive queues of all connections; a view that the next change makes invalid."""
        return self._exclusive_queues.values()

    def binding_count(self, vhost: str, exchange: str) -> int:
        """The number of bindings with this exchange as their source."""
        return len(self._bindings_by_exchange.get((vhost, exchange), ()))

    def bindings_of_exchange(self, vhost: str, name: str) -> list[Binding]:
        """The bindings with this exchange as their source."""
        return list(self._bindings_by_exchange.get((vhost, name), {}).values())

    def bindings_of_queue(self, vhost: str, name: str) -> list[Binding]:
        """The bindings of a queue, without the one to the default exchange that every queue has."""
        return list(self._bindings_by_destination.get((vhost, name, False), {}).values())

    def bindings_to_exchange(self, vhost: str, name: str) -> list[Binding]:
        """The bindings with this exchange as their destination."""
        return list(self._bindings_by_destination.get((vhost, name, True), {}).values())

    def transaction(self, vhost: str, name: str) -> OpenTransaction | None:
        """The undecided transaction with this name, if there is one."""
        return self._transactions_by_name.get((vhost, name))

    def check_vhost(self, vhost: str) -> None:
        """Make sure that a virtual host exists.

        Raises:
            NotFound: it does not.
        """
        if vhost not in self.vhosts:
            raise NotFound(f"no vhost '{vhost}'")

    def check_binding_key(self, vhost: str, exchange: str, key: str) -> None:
        """Make sure that a binding key has a meaning for the exchange's type; AMQP clients may use any key.

        Raises:
            InvalidRequest: the key has none.
            NotFound: there is no such exchange, or virtual host.
        """
        TYPES[self.exchange(vhost, exchange).type].check_binding_key(key)

    def snapshot(self) -> TopologySnapshot:
        """All that exists, as lists."""
        return TopologySnapshot(
            self.version,
            list(self.vhosts.values()),
            list(self.exchanges.values()),
            list(self.queues.values()),
            list(self.bindings.values()),
            list(self.users.values()),
            list(self.permissions.values()),
            list(self.transactions.values()),
            list(self.topics.values()),
            list(self.policies),
            [each for there in self.topic_permissions.values() for each in there.values()],
            dict(self.tracing),
            list(self.parameters),
        )

    def routes_differ(self, fields: TopologyFields) -> bool:
        """Whether messages may take other ways by what a snapshot says."""
        other = Topology()
        other.load(fields)
        return (other.exchanges, other.queues, other.bindings) != (self.exchanges, self.queues, self.bindings)

    def load(self, fields: TopologyFields) -> None:
        """Replace everything by what a snapshot says."""
        self._clear()
        for vhost in fields.vhosts:
            self._put_vhost(kinds.VhostPut(vhost))
        for exchange in fields.exchanges:
            self._add_exchange(kinds.ExchangeAdded(exchange))
        for queue in fields.queues:
            self._add_queue(kinds.QueueAdded(queue))
        for binding in fields.bindings:
            self._add_binding(kinds.BindingAdded(binding))
        for user in fields.users:
            self._put_user(kinds.UserPut(user))
        for permission in fields.permissions:
            self._put_permission(kinds.PermissionPut(permission))
        for transaction in fields.transactions:
            self._begin_transaction(kinds.TransactionBegun(transaction))
        for topic in fields.topics:
            self._put_topic(kinds.TopicPut(topic))
        for policy in fields.policies:
            self.policies.put(policy)
        for each in fields.topic_permissions:
            self._put_topic_permission(kinds.TopicPermissionPut(each))
        for parameter in fields.parameters:
            self.parameters.put(kinds.ParameterPut(parameter))
        self.tracing.update(fields.tracing)
        self.version = fields.version

    def apply(self, change: Change) -> None:
        """Apply one change. All changes have to be applied, in order.

        Raises:
            KeyError: the change does not fit what exists. This replica is broken and must be loaded anew.
        """
        _APPLY[type(change)](self, change)

    def _put_vhost(self, change: kinds.VhostPut) -> None:
        name = change.vhost.name
        if name not in self.vhosts:
            self.router.add_vhost(name)
        self.vhosts[name] = change.vhost

    def _remove_vhost(self, change: kinds.VhostRemoved) -> None:
        del self.vhosts[change.name]
        self.tracing.pop(change.name, None)
        del self._queue_counts[change.name]
        self.router.remove_vhost(change.name)

    def _add_exchange(self, change: kinds.ExchangeAdded) -> None:
        exchange = change.exchange
        self.exchanges[exchange.vhost, exchange.name] = exchange
        self.router.add_exchange(exchange)

    def _remove_exchange(self, change: kinds.ExchangeRemoved) -> None:
        self.router.remove_exchange(self.exchanges.pop((change.vhost, change.name)))

    def _add_queue(self, change: kinds.QueueAdded) -> None:
        queue = change.queue
        self.queues[queue.vhost, queue.name] = queue
        self._queues_by_id[queue.id] = queue
        self._queue_counts[queue.vhost] += 1
        if queue.owner:
            self._exclusive_queues[queue.id] = queue
        self.router.add_queue(queue)

    def _remove_queue(self, change: kinds.QueueRemoved) -> None:
        queue = self.queues.pop((change.vhost, change.name))
        del self._queues_by_id[queue.id]
        self._queue_counts[queue.vhost] -= 1
        self._exclusive_queues.pop(queue.id, None)
        self.router.remove_queue(queue)

    def _add_binding(self, change: kinds.BindingAdded) -> None:
        binding, identity = change.binding, binding_id(change.binding)
        source, target = ends(binding)
        self.router.bind(binding, self._destination(binding))
        self.bindings[identity] = binding
        self._bindings_by_exchange.setdefault(source, {})[identity] = binding
        self._bindings_by_destination.setdefault(target, {})[identity] = binding

    def _remove_binding(self, change: kinds.BindingRemoved) -> None:
        binding, identity = change.binding, binding_id(change.binding)
        source, target = ends(binding)
        del self.bindings[identity]
        self.router.unbind(binding, self._destination(binding))
        take_out(self._bindings_by_exchange, source, identity)
        take_out(self._bindings_by_destination, target, identity)

    def _destination(self, binding: Binding) -> Destination:
        """Where a binding leads, as exchange types know it: a queue's id, or an exchange's name."""
        end = binding.vhost, binding.destination
        return self.exchanges[end].name if binding.to_exchange else self.queues[end].id

    def _put_user(self, change: kinds.UserPut) -> None:
        self.users[change.user.name] = change.user

    def _remove_user(self, change: kinds.UserRemoved) -> None:
        del self.users[change.name]

    def _put_permission(self, change: kinds.PermissionPut) -> None:
        self.permissions[change.permission.user, change.permission.vhost] = change.permission

    def _remove_permission(self, change: kinds.PermissionRemoved) -> None:
        del self.permissions[change.user, change.vhost]

    def _begin_transaction(self, change: kinds.TransactionBegun) -> None:
        transaction = change.transaction
        self.transactions[transaction.number] = transaction
        self._transactions_by_name[transaction.vhost, transaction.name] = transaction

    def _end_transaction(self, change: kinds.TransactionEnded) -> None:
        del self.transactions[change.number]
        del self._transactions_by_name[change.vhost, change.name]

    def _put_topic(self, change: kinds.TopicPut) -> None:
        topic = change.topic
        name = topic.vhost, topic.name
        self.topics[name] = topic
        if topic.growth:
            self.grown.add(name)
            self.grown_to = max(self.grown_to, topic.grown_to)
        self._partitions.update(dict.fromkeys(topic.partitions, name))

    def _remove_topic(self, change: kinds.TopicRemoved) -> None:
        self.grown.discard((change.vhost, change.name))
        for queue in self.topics.pop((change.vhost, change.name)).partitions:
            del self._partitions[queue]

    def _put_policy(self, change: kinds.PolicyPut) -> None:
        self.policies.put(change.policy)
        self.router.forget()

    def _remove_policy(self, change: kinds.PolicyRemoved) -> None:
        self.policies.remove(change.vhost, change.name, change.is_operator)
        self.router.forget()

    def _put_topic_permission(self, change: kinds.TopicPermissionPut) -> None:
        there = change.permission
        self.topic_permissions.setdefault((there.user, there.vhost), {})[there.exchange] = there

    def _remove_topic_permission(self, change: kinds.TopicPermissionRemoved) -> None:
        there = self.topic_permissions[change.user, change.vhost]
        del there[change.exchange]
        if not there:
            del self.topic_permissions[change.user, change.vhost]

    def _set_tracing(self, change: kinds.TracingSet) -> None:
        self.tracing.pop(change.vhost, None)
        if change.sample:
            self.tracing[change.vhost] = change.sample

    def _act_on(self, change: kinds.ConnectionClosed | kinds.WatermarksSet) -> None:
        """Change nothing: gateways act on the change."""


_APPLY: Final[dict[type[Any], Callable[[Topology, Any], None]]] = {
    kinds.VhostPut: Topology._put_vhost,
    kinds.VhostRemoved: Topology._remove_vhost,
    kinds.ExchangeAdded: Topology._add_exchange,
    kinds.ExchangeRemoved: Topology._remove_exchange,
    kinds.QueueAdded: Topology._add_queue,
    kinds.QueueRemoved: Topology._remove_queue,
    kinds.BindingAdded: Topology._add_binding,
    kinds.BindingRemoved: Topology._remove_binding,
    kinds.UserPut: Topology._put_user,
    kinds.UserRemoved: Topology._remove_user,
    kinds.PermissionPut: Topology._put_permission,
    kinds.PermissionRemoved: Topology._remove_permission,
    kinds.ConnectionClosed: Topology._act_on,
    kinds.WatermarksSet: Topology._act_on,
    kinds.TracingSet: Topology._set_tracing,
    kinds.TransactionBegun: Topology._begin_transaction,
    kinds.TransactionEnded: Topology._end_transaction,
    kinds.TopicPut: Topology._put_topic,
    kinds.TopicRemoved: Topology._remove_topic,
    kinds.PolicyPut: Topology._put_policy,
    kinds.PolicyRemoved: Topology._remove_policy,
    kinds.TopicPermissionPut: Topology._put_topic_permission,
    kinds.TopicPermissionRemoved: Topology._remove_topic_permission,
    kinds.ParameterProgressed: lambda topology, change: topology.parameters.put(change),
    kinds.ParameterPut: lambda topology, change: topology.parameters.put(change),
    kinds.ParameterRemoved: lambda topology, change: topology.parameters.remove(change),
    kinds.ShovelsReported: lambda topology, change: topology.parameters.report(change),
}
