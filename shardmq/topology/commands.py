"""Commands ask, changes tell. The coordinator turns a command into changes, writes them down and sends them to all.

A command's `vhost` is the virtual host it is about, "" where it is about none.
"""

from typing import Any

import msgspec


class _Command(msgspec.Struct, frozen=True, array_like=True, tag_field="command"):
    vhost: str


class DeclareExchange(_Command, tag=1, frozen=True):
    """Make an exchange, or find the same one there."""

    name: str
    type: str
    durable: bool
    arguments: dict[str, Any]
    auto_delete: bool = False
    internal: bool = False


class DeleteExchange(_Command, tag=2, frozen=True):
    """Remove an exchange and its bindings; with `if_unused` only where nothing is bound to it."""

    name: str
    if_unused: bool = False


class DeclareQueue(_Command, tag=3, frozen=True):
    """Make a queue, or find the same one there. The answer is the queue's id.

    `owner` names the connection that an exclusive queue is for. `server_named`: the gateway made the name up.
    """

    name: str
    durable: bool
    arguments: dict[str, Any]
    auto_delete: bool = False
    owner: str = ""
    server_named: bool = False


class DeleteQueue(_Command, tag=4, frozen=True):
    """Remove a queue, its messages and its bindings. The answer is how many ready messages it had.

    With `if_unused` only where it has no consumers, with `if_empty` only where it has no ready messages: its shard
    knows. `queue` is the id it must have, where not 0: one of the same name declared since is not meant.
    """

    name: str
    if_unused: bool = False
    if_empty: bool = False
    queue: int = 0


class Bind(_Command, tag=5, frozen=True):
    """Make a binding, or find it there."""

    exchange: str
    destination: str
    key: str
    arguments: dict[str, Any]
    to_exchange: bool = False


class Unbind(_Command, tag=6, frozen=True):
    """Remove a binding, if it is there."""

    exchange: str
    destination: str
    key: str
    arguments: dict[str, Any]
    to_exchange: bool = False


class PutVhost(_Command, tag=7, frozen=True):
    """Make a virtual host, or change what is said of it. Its limits stay."""

    description: str = ""
    tags: tuple[str, ...] = ()


class DeleteVhost(_Command, tag=8, frozen=True):
    """Remove a virtual host with everything in it; its connections are closed."""


class PutUser(_Command, tag=9, frozen=True):
    """Make a user, or change one (vhost ""). `password` is a hash; None leaves it as it is. The limits stay."""

    name: str
    password: str | None
    tags: tuple[str, ...] | None = None


class DeleteUser(_Command, tag=10, frozen=True):
    """Remove a user with all permissions (vhost ""); the user's connections are closed."""

    name: str


class PutPermission(_Command, tag=11, frozen=True):
    """Say what a user may do in a virtual host."""

    user: str
    configure: str
    write: str
    read: str


class DeletePermission(_Command, tag=12, frozen=True):
    """A user may do nothing in a virtual host any more, nor open it."""

    user: str


class PutLimits(_Command, tag=13, frozen=True):
    """Limit a virtual host, or the user named (vhost ""). A limit that is None is lifted, one not named stays."""

    user: str
    limits: dict[str, int | None]


class CloseConnection(_Command, tag=14, frozen=True):
    """Close a client's connection (vhost ""), wherever it is. `connection` is its `Session.identity`."""

    connection: str
    reason: str


class BeginTransaction(_Command, tag=15, frozen=True):
    """Make a transaction, or find it undecided: its time begins anew. The answer is its number, and whether it was
    committed already (`TransactionEnded.is_committed`). Where `number` is not 0, only that one is to go on.
    """

    name: str
    user: str
    timeout_ms: int
    number: int = 0


class CommitTransaction(_Command, tag=16, frozen=True):
    """Decide that the messages of these attempts appear; those of all others never will. Once it is decided, asking
    again changes nothing.

    `attempts` are (attempt, how many messages it has on all shards together): refused unless every one is sealed and
    has so many. The answer is whether all of them are in their queues already.
    """

    name: str
    number: int
    user: str
    attempts: list[tuple[int, int]]


class AbortTransaction(_Command, tag=17, frozen=True):
    """Decide that nothing of it appears. Refused (406) once it was committed; nothing to do where it is not there.
    `number` 0 is whichever has the name now.
    """

    name: str
    number: int
    user: str
    has_expired: bool = False


Command = (
    DeclareExchange
    | DeleteExchange
    | DeclareQueue
    | DeleteQueue
    | Bind
    | Unbind
    | PutVhost
    | DeleteVhost
    | PutUser
    | DeleteUser
    | PutPermission
    | DeletePermission
    | PutLimits
    | CloseConnection
    | BeginTransaction
    | CommitTransaction
    | AbortTransaction
)
