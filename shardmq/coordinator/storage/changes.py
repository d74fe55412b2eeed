"""What each change of the topology writes."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from shardmq.coordinator.storage.schema import (
    DURABLE,
    NEXT_QUEUE,
    PERMISSIONS,
    binding_key,
    decode_exchange,
    decode_queue,
    encode,
    name_key,
    parameter_key,
    policy_key,
    topic_permission_key,
)
from shardmq.coordinator.storage.transactions import TransactionTable
from shardmq.coordinator.storage.write_batch import WriteBatch
from shardmq.topology.changes import (
    BindingAdded,
    BindingRemoved,
    Change,
    ConnectionClosed,
    ExchangeAdded,
    ExchangeRemoved,
    ParameterProgressed,
    ParameterPut,
    ParameterRemoved,
    PermissionPut,
    PermissionRemoved,
    PolicyPut,
    PolicyRemoved,
    QueueAdded,
    QueueRemoved,
    ShovelsReported,
    TopicPermissionPut,
    TopicPermissionRemoved,
    TopicPut,
    TopicRemoved,
    TracingSet,
    TransactionBegun,
    TransactionEnded,
    UserPut,
    UserRemoved,
    VhostPut,
    VhostRemoved,
    WatermarksSet,
)
from shardmq.topology.entities import Binding

ADDING: Final = (
    ExchangeAdded,
    QueueAdded,
    BindingAdded,
    UserPut,
    VhostPut,
    PermissionPut,
    TransactionBegun,
    TopicPut,
    PolicyPut,
    TopicPermissionPut,
    ParameterPut,
)
"""Changes that make the store larger."""


class ChangeWriter:
    """Turns changes into edits.

    Args:
        boot_id: of this life of the broker, in which what is not durable exists.
        transactions: has the rows of transactions.

    Attributes:
        shards: how many shards there are, which are all to follow a decision; 0 while that is not known.
    """

    def __init__(self, boot_id: str, transactions: TransactionTable) -> None:
        self.shards = 0
        self._boot_id = boot_id
        self._transactions = transactions

    def write(self, batch: WriteBatch, change: Change) -> None:
        """Add a change's edits to a batch.

        Raises:
            KeyError: the store lacks what the change builds on.
        """
        _WRITERS[type(change)](self, batch, change)

    def _add_exchange(self, batch: WriteBatch, change: ExchangeAdded) -> None:
        exchange = change.exchange
        key = name_key(exchange.vhost, exchange.name)
        batch.put(b"exchanges", key, encode((self._boot(exchange.durable), exchange)))

    def _remove_exchange(self, batch: WriteBatch, change: ExchangeRemoved) -> None:
        batch.delete(b"exchanges", name_key(change.vhost, change.name))

    def _add_queue(self, batch: WriteBatch, change: QueueAdded) -> None:
        queue = change.queue
        content = encode((self._boot(queue.durable and not queue.owner), queue))
        batch.put(b"queues", name_key(queue.vhost, queue.name), content)
        batch.put(b"state", NEXT_QUEUE, (queue.id + 1).to_bytes(8, "big"))

    def _remove_queue(self, batch: WriteBatch, change: QueueRemoved) -> None:
        key = name_key(change.vhost, change.name)
        queue = decode_queue(_found(batch.get(b"queues", key))).value
        batch.delete(b"queues", key)
        batch.put(b"tombstones", queue.id.to_bytes(8, "big"), queue.shard.to_bytes(4, "big"))

    def _add_binding(self, batch: WriteBatch, change: BindingAdded) -> None:
        binding = change.binding
        content = encode((self._boot(_is_durable(batch, binding)), binding))
        batch.put(b"bindings", binding_key(binding), content)

    def _remove_binding(self, batch: WriteBatch, change: BindingRemoved) -> None:
        batch.delete(b"bindings", binding_key(change.binding))

    def _put_user(self, batch: WriteBatch, change: UserPut) -> None:
        batch.put(b"users", change.user.name.encode(), encode(change.user))

    def _remove_user(self, batch: WriteBatch, change: UserRemoved) -> None:
        batch.delete(b"users", change.name.encode())

    def _put_vhost(self, batch: WriteBatch, change: VhostPut) -> None:
        key = change.vhost.name.encode()
        if batch.get(b"vhosts", key) is None:
            self._transactions.add_vhost(batch, change.vhost.name)
        batch.put(b"vhosts", key, encode(change.vhost))

    def _remove_vhost(self, batch: WriteBatch, change: VhostRemoved) -> None:
        batch.delete(b"vhosts", change.name.encode())
        self._transactions.remove_vhost(batch, change.name)

    def _put_permission(self, batch: WriteBatch, change: PermissionPut) -> None:
        permission = change.permission
        batch.put(b"permissions", name_key(permission.user, permission.vhost), encode(permission))
        batch.put(b"state", PERMISSIONS, b"1")

    def _remove_permission(self, batch: WriteBatch, change: PermissionRemoved) -> None:
        batch.delete(b"permissions", name_key(change.user, change.vhost))

    def _begin_transaction(self, batch: WriteBatch, change: TransactionBegun) -> None:
        self._transactions.begin(batch, change.transaction)

    def _end_transaction(self, batch: WriteBatch, change: TransactionEnded) -> None:
        assert self.shards, "a transaction ends for all shards, and `load` tells how many there are"
        self._transactions.end(batch, change, self.shards)

    def _put_topic(self, batch: WriteBatch, change: TopicPut) -> None:
        batch.put(b"topics", name_key(change.topic.vhost, change.topic.name), encode(change.topic))

    def _remove_topic(self, batch: WriteBatch, change: TopicRemoved) -> None:
        batch.delete(b"topics", name_key(change.vhost, change.name))

    def _put_policy(self, batch: WriteBatch, change: PolicyPut) -> None:
        policy = change.policy
        batch.put(b"policies", policy_key(policy.vhost, policy.name, policy.is_operator), encode(policy))

    def _remove_policy(self, batch: WriteBatch, change: PolicyRemoved) -> None:
        batch.delete(b"policies", policy_key(change.vhost, change.name, change.is_operator))

    def _put_topic_permission(self, batch: WriteBatch, change: TopicPermissionPut) -> None:
        put = change.permission
        batch.put(b"topic_permissions", topic_permission_key(put.user, put.vhost, put.exchange), encode(put))

    def _remove_topic_permission(self, batch: WriteBatch, change: TopicPermissionRemoved) -> None:
        batch.delete(b"topic_permissions", topic_permission_key(change.user, change.vhost, change.exchange))

    def _put_parameter(self, batch: WriteBatch, change: ParameterPut | ParameterProgressed) -> None:
        put = change.parameter
        batch.put(b"parameters", parameter_key(put.vhost, put.component, put.name), encode(put))

    def _remove_parameter(self, batch: WriteBatch, change: ParameterRemoved) -> None:
        batch.delete(b"parameters", parameter_key(change.vhost, change.component, change.name))

    def _tell_only(
        self, batch: WriteBatch, change: ConnectionClosed | WatermarksSet | TracingSet | ShovelsReported
    ) -> None:
        """Write nothing: the gateways act on it once, or as long as the coordinator lives."""

    def _boot(self, is_durable: bool) -> str:
        return DURABLE if is_durable else self._boot_id


_WRITERS: Final[Mapping[type[Any], Callable[[ChangeWriter, WriteBatch, Any], None]]] = {
    ExchangeAdded: ChangeWriter._add_exchange,
    ExchangeRemoved: ChangeWriter._remove_exchange,
    QueueAdded: ChangeWriter._add_queue,
    QueueRemoved: ChangeWriter._remove_queue,
    BindingAdded: ChangeWriter._add_binding,
    BindingRemoved: ChangeWriter._remove_binding,
    UserPut: ChangeWriter._put_user,
    UserRemoved: ChangeWriter._remove_user,
    VhostPut: ChangeWriter._put_vhost,
    VhostRemoved: ChangeWriter._remove_vhost,
    PermissionPut: ChangeWriter._put_permission,
    PermissionRemoved: ChangeWriter._remove_permission,
    ConnectionClosed: ChangeWriter._tell_only,
    WatermarksSet: ChangeWriter._tell_only,
    TracingSet: ChangeWriter._tell_only,
    ParameterPut: ChangeWriter._put_parameter,
    ParameterProgressed: ChangeWriter._put_parameter,
    ParameterRemoved: ChangeWriter._remove_parameter,
    ShovelsReported: ChangeWriter._tell_only,
    TransactionBegun: ChangeWriter._begin_transaction,
    TransactionEnded: ChangeWriter._end_transaction,
    TopicPut: ChangeWriter._put_topic,
    TopicRemoved: ChangeWriter._remove_topic,
    PolicyPut: ChangeWriter._put_policy,
    PolicyRemoved: ChangeWriter._remove_policy,
    TopicPermissionPut: ChangeWriter._put_topic_permission,
    TopicPermissionRemoved: ChangeWriter._remove_topic_permission,
}


def _is_durable(batch: WriteBatch, binding: Binding) -> bool:
    """Whether both ends of a binding are durable; they are in the store, or in this batch."""
    exchange = _found(batch.get(b"exchanges", name_key(binding.vhost, binding.exchange)))
    source = decode_exchange(exchange).value
    destination = name_key(binding.vhost, binding.destination)
    if binding.to_exchange:
        return source.durable and decode_exchange(_found(batch.get(b"exchanges", destination))).value.durable
    queue = decode_queue(_found(batch.get(b"queues", destination))).value
    return source.durable and queue.durable and not queue.owner


def _found(content: bytes | None) -> bytes:
    """What must be there, as changes come in order."""
    if content is None:
        raise KeyError("the coordinator's store lacks what a change builds on")
    return content
