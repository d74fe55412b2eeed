"""What the coordinator can be asked to do.

The coordinator turns a command into changes, stores them and sends them to all gateways. A command's `vhost` is the
virtual host it is about, "" where it is about none.
"""

from typing import Any

import msgspec


class _Command(msgspec.Struct, frozen=True, array_like=True, tag_field="command"):
    vhost: str


class DeclareExchange(_Command, tag=1, frozen=True):
    """Create an exchange, or check that the existing one is the same."""

    name: str
    type: str
    durable: bool
    arguments: dict[str, Any]
    auto_delete: bool = False
    internal: bool = False


class DeleteExchange(_Command, tag=2, frozen=True):
    """Delete an exchange and its bindings; with `if_unused`, only if it has no bindings as a source."""

    name: str
    if_unused: bool = False


class DeclareQueue(_Command, tag=3, frozen=True):
    """Create a queue, or check that the existing one is the same. The answer is the queue's id.

    `owner` names the connection that an exclusive queue belongs to. `server_named` says that the gateway chose the
    name.
    """

    name: str
    durable: bool
    arguments: dict[str, Any]
    auto_delete: bool = False
    owner: str = ""
    server_named: bool = False


class DeleteQueue(_Command, tag=4, frozen=True):
    """Delete a queue, its messages and its bindings.

    Its shard refuses with `if_unused` if it has consumers, with `if_empty` if it has ready messages. A `queue` other
    than 0 is the id it must have, so that a queue declared since under the same name stays.
    """

    name: str
    if_unused: bool = False
    if_empty: bool = False
    queue: int = 0


class Bind(_Command, tag=5, frozen=True):
    """Create a binding; nothing changes if it exists."""

    exchange: str
    destination: str
    key: str
    arguments: dict[str, Any]
    to_exchange: bool = False


class Unbind(_Command, tag=6, frozen=True):
    """Delete a binding; nothing changes if it does not exist."""

    exchange: str
    destination: str
    key: str
    arguments: dict[str, Any]
    to_exchange: bool = False


class PutVhost(_Command, tag=7, frozen=True):
    """Create a virtual host, or change its description and tags. Its limits stay."""

    description: str = ""
    tags: tuple[str, ...] = ()


class DeleteVhost(_Command, tag=8, frozen=True):
    """Delete a virtual host with everything in it; its connections are closed."""


class PutUser(_Command, tag=9, frozen=True):
    """Create or change a user (vhost ""). `password` is a hash. None changes nothing; the limits stay."""

    name: str
    password: str | None
    tags: tuple[str, ...] | None = None


class DeleteUser(_Command, tag=10, frozen=True):
    """Delete a user with all permissions (vhost ""); the user's connections are closed."""

    name: str


class PutPermission(_Command, tag=11, frozen=True):
    """Set what a user may do in a virtual host."""

    user: str
    configure: str
    write: str
    read: str


class DeletePermission(_Command, tag=12, frozen=True):
    """Delete a user's permission: the user can no longer open the virtual host."""

    user: str


class PutLimits(_Command, tag=13, frozen=True):
    """Limit a virtual host, or the named user (vhost ""). None removes a limit; limits that are not named stay."""

    user: str
    limits: dict[str, int | None]


class CloseConnection(_Command, tag=14, frozen=True):
    """Close a client's connection (vhost ""), whichever gateway it is on. `connection` is its name."""

    connection: str
    reason: str


class BeginTransaction(_Command, tag=15, frozen=True):
    """Create a transaction, or begin the timeout of the open one anew.

    The answer is its number, and whether it is committed already. A `number` other than 0 is the transaction that must
    be open; none is created then.
    """

    name: str
    user: str
    timeout_ms: int
    number: int = 0


class CommitTransaction(_Command, tag=16, frozen=True):
    """Decide that the messages of these attempts appear, and those of no other. Committing again changes nothing.

    `attempts` are pairs of an attempt and its number of messages on all shards. The command is refused unless every one
    is sealed and has that number. The answer is whether all messages are in their queues already.
    """

    name: str
    number: int
    user: str
    attempts: list[tuple[int, int]]


class AbortTransaction(_Command, tag=17, frozen=True):
    """Decide that no message of a transaction appears.

    The command is refused (406) once the transaction is committed, and changes nothing if there is none. `number` 0 is
    the open transaction of that name.
    """

    name: str
    number: int
    user: str
    has_expired: bool = False


class DeclareTopic(_Command, tag=18, frozen=True):
    """Create a topic with its queues, its exchange and their bindings, or check that the existing one is the same."""

    name: str
    partitions: int
    arguments: dict[str, Any]


class DeleteTopic(_Command, tag=19, frozen=True):
    """Delete a topic with all its messages; its shards refuse with `if_unused` if a partition has consumers."""

    name: str
    if_unused: bool = False


class ExtendTopic(_Command, tag=20, frozen=True):
    """Add partitions to a topic, until it has so many; nothing changes if it has them."""

    name: str
    partitions: int


class PutPolicy(_Command, tag=21, frozen=True):
    """Create or change a policy, or an operator policy."""

    name: str
    pattern: str
    definition: dict[str, Any]
    priority: int = 0
    apply_to: str = "all"
    is_operator: bool = False


class DeletePolicy(_Command, tag=22, frozen=True):
    """Delete a policy, or an operator policy."""

    name: str
    is_operator: bool = False


class PutTopicPermission(_Command, tag=23, frozen=True):
    """Set which routing keys a user may use with a topic exchange."""

    user: str
    exchange: str
    write: str
    read: str


class DeleteTopicPermission(_Command, tag=24, frozen=True):
    """Delete a user's topic permission for an exchange; those for all exchanges where it is None."""

    user: str
    exchange: str | None = None


class SetWatermarks(_Command, tag=25, frozen=True):
    """Set the watermarks of all processes (vhost ""), until they end; None leaves one as it is.

    `memory_bytes` is for each shard and each gateway, `disk_free_bytes` for the disk of each shard.
    """

    memory_bytes: int | None
    disk_free_bytes: int | None


class SetTracing(_Command, tag=30, frozen=True):
    """Trace a part of a virtual host's messages, 0 for none, until the coordinator ends."""

    sample: float


class PutParameter(_Command, tag=26, frozen=True):
    """Create or change a parameter, or with `value` None have its component begin anew with the one there is.

    `at_ms`, steady time, tells it from an earlier one of its name.
    """

    component: str
    name: str
    value: dict[str, Any] | None
    at_ms: int = 0


class DeleteParameter(_Command, tag=27, frozen=True):
    """Delete a parameter. A `generation` other than 0 is the one it must have; nothing changes where it has not."""

    component: str
    name: str
    generation: int = 0


class ReportShovels(_Command, tag=28, frozen=True):
    """Tell everybody the states of all shovels (vhost ""), until the next report."""

    rows: list[dict[str, Any]]


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
    | DeclareTopic
    | DeleteTopic
    | ExtendTopic
    | PutPolicy
    | DeletePolicy
    | PutTopicPermission
    | DeleteTopicPermission
    | SetWatermarks
    | SetTracing
    | PutParameter
    | DeleteParameter
    | ReportShovels
)
"""Any command."""
