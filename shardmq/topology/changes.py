"""What it tells everybody was done."""

import msgspec

from shardmq.topology.entities import Binding, Exchange, OpenTransaction, Permission, Queue, User, Vhost


class _Change(msgspec.Struct, frozen=True, array_like=True, tag_field="change"):
    pass


class VhostPut(_Change, tag=1, frozen=True):
    """New, or changed."""

    vhost: Vhost


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


class UserPut(_Change, tag=8, frozen=True):
    """New, or changed."""

    user: User


class UserRemoved(_Change, tag=9, frozen=True):
    name: str


class VhostRemoved(_Change, tag=10, frozen=True):
    name: str


class PermissionPut(_Change, tag=11, frozen=True):
    """New, or changed."""

    permission: Permission


class PermissionRemoved(_Change, tag=12, frozen=True):
    user: str
    vhost: str


class ConnectionClosed(_Change, tag=13, frozen=True):
    """Nothing of the topology: the gateway that has this connection closes it."""

    connection: str
    reason: str


class TransactionBegun(_Change, tag=14, frozen=True):
    """New, or its time begins anew."""

    transaction: OpenTransaction


class TransactionEnded(_Change, tag=15, frozen=True):
    """Decided: what `attempts` staged appears, in their order, and nothing else of it; none where it was aborted."""

    vhost: str
    name: str
    number: int
    is_committed: bool
    attempts: list[int]
    ended_ms: int


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
)
"""Removing something is told as the removal of what depends on it first (bindings, then queues and exchanges, then
permissions), then of itself."""
