"""What exists: exchanges, queues, bindings, users. Authoritative in the coordinator, a replica in every gateway.

Commands ask, changes tell. The coordinator turns a command into changes, writes them down and sends them to all.
"""

from typing import Any

import msgspec

from shardmq.model import Binding, Exchange, Queue, User


class _Command(msgspec.Struct, frozen=True, array_like=True, tag_field="command"):
    vhost: str


class DeclareExchange(_Command, tag=1):
    """Make an exchange, or find the same one there."""

    name: str
    type: str
    durable: bool
    arguments: dict[str, Any]


class DeleteExchange(_Command, tag=2):
    """Remove an exchange and its bindings."""

    name: str


class DeclareQueue(_Command, tag=3):
    """Make a queue, or find the same one there. The answer is the queue's id."""

    name: str
    durable: bool
    arguments: dict[str, Any]


class DeleteQueue(_Command, tag=4):
    """Remove a queue, its messages and its bindings. The answer is how many messages it had."""

    name: str


class Bind(_Command, tag=5):
    """Make a binding, or find it there."""

    exchange: str
    queue: str
    key: str
    arguments: dict[str, Any]


class Unbind(_Command, tag=6):
    """Remove a binding, if it is there."""

    exchange: str
    queue: str
    key: str
    arguments: dict[str, Any]


Command = DeclareExchange | DeleteExchange | DeclareQueue | DeleteQueue | Bind | Unbind


class _Change(msgspec.Struct, frozen=True, array_like=True, tag_field="change"):
    pass


class VhostAdded(_Change, tag=1):
    vhost: str


class ExchangeAdded(_Change, tag=2):
    exchange: Exchange


class ExchangeRemoved(_Change, tag=3):
    vhost: str
    name: str


class QueueAdded(_Change, tag=4):
    queue: Queue


class QueueRemoved(_Change, tag=5):
    vhost: str
    name: str


class BindingAdded(_Change, tag=6):
    binding: Binding


class BindingRemoved(_Change, tag=7):
    binding: Binding


class UserAdded(_Change, tag=8):
    user: User


Change = (
    VhostAdded
    | ExchangeAdded
    | ExchangeRemoved
    | QueueAdded
    | QueueRemoved
    | BindingAdded
    | BindingRemoved
    | UserAdded
)
"""Removing an exchange or a queue is told as the removal of its bindings first, then of itself."""
