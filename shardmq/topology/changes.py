"""What the coordinator tells everybody was done.

A removal follows the removals of what depends on it: first topics, then bindings, then queues and exchanges, then
permissions.
"""

from typing import Any

import msgspec

from shardmq.topology.entities import (
    Binding,
    Exchange,
    OpenTransaction,
    Parameter,
    Permission,
    Policy,
    Queue,
    Topic,
    TopicPermission,
    User,
    Vhost,
)


class _Change(msgspec.Struct, frozen=True, array_like=True, tag_field="change"):
    pass


class VhostPut(_Change, tag=1, frozen=True):
    """A virtual host is new, or changed."""

    vhost: Vhost


class ExchangeAdded(_Change, tag=2, frozen=True):
    """An exchange is new."""

    exchange: Exchange


class ExchangeRemoved(_Change, tag=3, frozen=True):
    """An exchange is deleted."""

    vhost: str
    name: str


class QueueAdded(_Change, tag=4, frozen=True):
    """A queue is new."""

    queue: Queue


class QueueRemoved(_Change, tag=5, frozen=True):
    """A queue is deleted."""

    vhost: str
    name: str


class BindingAdded(_Change, tag=6, frozen=True):
    """A binding is new."""

    binding: Binding


class BindingRemoved(_Change, tag=7, frozen=True):
    """A binding is deleted."""

    binding: Binding


class UserPut(_Change, tag=8, frozen=True):
    """A user is new, or changed."""

    user: User


class UserRemoved(_Change, tag=9, frozen=True):
    """A user is deleted."""

    name: str


class VhostRemoved(_Change, tag=10, frozen=True):
    """A virtual host is deleted."""

    name: str


class PermissionPut(_Change, tag=11, frozen=True):
    """A permission is new, or changed."""

    permission: Permission


class PermissionRemoved(_Change, tag=12, frozen=True):
    """A permission is deleted."""

    user: str
    vhost: str


class ConnectionClosed(_Change, tag=13, frozen=True):
    """A client's connection is to be closed by its gateway. The topology stays as it is."""

    connection: str
    reason: str


class TransactionBegun(_Change, tag=14, frozen=True):
    """A transaction is new, or its timeout begins anew."""

    transaction: OpenTransaction


class TransactionEnded(_Change, tag=15, frozen=True):
    """A transaction is decided: committed with the attempts whose messages appear, in their order, or aborted."""

    vhost: str
    name: str
    number: int
    is_committed: bool
    attempts: list[int]
    ended_ms: int


class TopicPut(_Change, tag=16, frozen=True):
    """A topic is new, or has more partitions. Its queues, its exchange and its bindings are there."""

    topic: Topic


class TopicRemoved(_Change, tag=17, frozen=True):
    """A topic is deleted."""

    vhost: str
    name: str


class PolicyPut(_Change, tag=18, frozen=True):
    """A policy or an operator policy is new, or changed."""

    policy: Policy


class PolicyRemoved(_Change, tag=19, frozen=True):
    """A policy or an operator policy is deleted."""

    vhost: str
    name: str
    is_operator: bool


class TopicPermissionPut(_Change, tag=20, frozen=True):
    """A topic permission is new, or changed."""

    permission: TopicPermission


class TopicPermissionRemoved(_Change, tag=21, frozen=True):
    """A topic permission is deleted."""

    user: str
    vhost: str
    exchange: str


class WatermarksSet(_Change, tag=22, frozen=True):
    """Gateways are to have another memory watermark; None is the same. The topology stays as it is."""

    memory_bytes: int | None


class TracingSet(_Change, tag=30, frozen=True):
    """This part of a virtual host's messages is traced from now on, 0 for none; until the coordinator ends."""

    vhost: str
    sample: float


class ParameterPut(_Change, tag=23, frozen=True):
    """A parameter is new, or changed, or its component is to begin anew."""

    parameter: Parameter


class ParameterRemoved(_Change, tag=24, frozen=True):
    """A parameter is deleted."""

    vhost: str
    component: str
    name: str


class ParameterProgressed(_Change, tag=26, frozen=True):
    """The component of a parameter has come further; nothing else of it has changed."""

    parameter: Parameter


class ShovelsReported(_Change, tag=25, frozen=True):
    """The states of all shovels, as their process last reported them. It is not stored."""

    rows: list[dict[str, Any]]


Change = (
    VhostPut
    | ExchangeAdded
    | ExchangeRemoved
    | QueueAdded
    | QueueRemoved
    | BindingAdded
    | BindingRemoved
    | UserPut
    | UserRemoved
    | VhostRemoved
    | PermissionPut
    | PermissionRemoved
    | ConnectionClosed
    | TransactionBegun
    | TransactionEnded
    | TopicPut
    | TopicRemoved
    | PolicyPut
    | PolicyRemoved
    | TopicPermissionPut
    | TopicPermissionRemoved
    | WatermarksSet
    | TracingSet
    | ParameterPut
    | ParameterRemoved
    | ParameterProgressed
    | ShovelsReported
)
"""Any change."""
