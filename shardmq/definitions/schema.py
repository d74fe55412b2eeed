"""The shape of the definitions that are read; what is optional in RabbitMQ's exports has a default."""

from typing import Any, Final

import msgspec

from shardmq.errors import InvalidRequest
from shardmq.topology.entities import check_nesting

AROUND_ARGUMENTS: Final = 5
"""Levels that definitions have around the arguments of things, where they are lists of pairs."""

Table = dict[str, Any] | list[Any]
"""A table; RabbitMQ writes empty ones, and limits, as lists in some exports."""


class VhostMetadata(msgspec.Struct):
    """What newer exports say of a virtual host in a table of its own."""

    description: str | None = None
    tags: list[str] | str | None = None


class VhostItem(msgspec.Struct):
    """A virtual host."""

    name: str
    description: str | None = None
    tags: list[str] | str | None = None
    metadata: VhostMetadata = msgspec.field(default_factory=VhostMetadata)
    limits: Table = {}


class UserItem(msgspec.Struct):
    """A user, with a hash of the password or the password itself; what is None stays as it is."""

    name: str
    password_hash: str | None = None
    password: str | None = None
    hashing_algorithm: str | None = None
    tags: list[str] | str | None = None
    limits: Table = {}


class PermissionItem(msgspec.Struct):
    """What a user may do in a virtual host."""

    user: str
    configure: str
    write: str
    read: str
    vhost: str | None = None


class ParameterItem(msgspec.Struct):
    """A parameter of a component of RabbitMQ, such as the limits of a virtual host."""

    component: str
    name: str
    value: Any = None
    vhost: str | None = None


class ExchangeItem(msgspec.Struct):
    """An exchange."""

    name: str
    type: str
    vhost: str | None = None
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Table = {}


class QueueItem(msgspec.Struct):
    """A queue."""

    name: str
    vhost: str | None = None
    type: str | None = None
    durable: bool = True
    auto_delete: bool = False
    arguments: Table = {}


class BindingItem(msgspec.Struct):
    """A binding of a queue or an exchange to an exchange."""

    source: str
    destination: str
    vhost: str | None = None
    destination_type: str = "queue"
    routing_key: str = ""
    arguments: Table = {}


class TopicItem(msgspec.Struct):
    """A topic; only shardmq has them."""

    name: str
    partitions: int
    vhost: str | None = None
    arguments: Table = {}


class PolicyItem(msgspec.Struct, rename={"apply_to": "apply-to"}):
    """A policy."""

    name: str
    pattern: str
    definition: Table
    vhost: str | None = None
    priority: int = 0
    apply_to: str = "all"


class TopicPermissionItem(msgspec.Struct):
    """Which routing keys a user may use with an exchange."""

    user: str
    exchange: str
    write: str
    read: str
    vhost: str | None = None


class Definitions(msgspec.Struct):
    """All of the definitions that the broker looks at."""

    vhosts: list[VhostItem] = []
    users: list[UserItem] = []
    permissions: list[PermissionItem] = []
    parameters: list[ParameterItem] = []
    topics: list[TopicItem] = []
    exchanges: list[ExchangeItem] = []
    queues: list[QueueItem] = []
    bindings: list[BindingItem] = []
    policies: list[PolicyItem] = []
    topic_permissions: list[TopicPermissionItem] = []
    global_parameters: list[dict[str, Any]] = []


def read_definitions(definitions: dict[str, Any]) -> Definitions:
    """Check the shape of definitions.

    Raises:
        InvalidRequest: a part has another type, or arguments nest too deep.
    """
    check_nesting(definitions, -AROUND_ARGUMENTS)
    try:
        read = msgspec.convert(definitions, Definitions)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"definitions: {error}") from error
    arguments = [
        item.arguments for items in (read.topics, read.exchanges, read.queues, read.bindings) for item in items
    ]
    for each in arguments:
        check_nesting(as_table(each))
    return read


def as_table(value: Any) -> dict[str, Any]:
    """A table from either way in which RabbitMQ writes it: a map, or a list of pairs.

    Raises:
        InvalidRequest: it is neither.
    """
    if isinstance(value, dict):
        return value
    if isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        return {name: content for name, content in value if isinstance(name, str)}
    raise InvalidRequest(f"definitions: {value!r} is no table of names and values")


def comparable(value: Any) -> Any:
    """A value as it is compared with what exists: a queue without x-queue-type is a classic one."""
    return {"x-queue-type": "classic", **value} if isinstance(value, dict) else value


def tags_of(tags: list[str] | str) -> tuple[str, ...]:
    """Tags as a tuple; RabbitMQ up to 3.8 wrote them as one string with commas."""
    return tuple(tag.strip() for tag in tags.split(",") if tag.strip()) if isinstance(tags, str) else tuple(tags)
