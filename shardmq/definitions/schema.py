"""The shape of what is read."""

from typing import Any

import msgspec

from shardmq.errors import InvalidRequest
from shardmq.topology.entities import check_nesting

Table = dict[str, Any] | list[Any]
"""A table; RabbitMQ writes an empty one, and limits, as a list at times."""


class _Metadata(msgspec.Struct):
    description: str | None = None
    tags: list[str] | str | None = None


class _Vhost(msgspec.Struct):
    name: str
    description: str | None = None
    tags: list[str] | str | None = None
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    limits: Table = {}


class _User(msgspec.Struct):
    name: str
    password_hash: str | None = None
    password: str | None = None
    hashing_algorithm: str | None = None
    tags: list[str] | str = []
    limits: Table = {}


class _Permission(msgspec.Struct):
    user: str
    configure: str
    write: str
    read: str
    vhost: str | None = None


class _Parameter(msgspec.Struct):
    component: str
    name: str
    value: Any = None
    vhost: str | None = None


class _Exchange(msgspec.Struct):
    name: str
    type: str
    vhost: str | None = None
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Table = {}


class _Queue(msgspec.Struct):
    name: str
    vhost: str | None = None
    type: str | None = None
    durable: bool = True
    auto_delete: bool = False
    arguments: Table = {}


class _Binding(msgspec.Struct):
    source: str
    destination: str
    vhost: str | None = None
    destination_type: str = "queue"
    routing_key: str = ""
    arguments: Table = {}


class _Definitions(msgspec.Struct):
    vhosts: list[_Vhost] = []
    users: list[_User] = []
    permissions: list[_Permission] = []
    parameters: list[_Parameter] = []
    exchanges: list[_Exchange] = []
    queues: list[_Queue] = []
    bindings: list[_Binding] = []
    policies: list[dict[str, Any]] = []
    topic_permissions: list[dict[str, Any]] = []
    global_parameters: list[dict[str, Any]] = []


def _read(definitions: dict[str, Any]) -> _Definitions:
    try:
        read = msgspec.convert(definitions, _Definitions)
    except msgspec.ValidationError as fault:
        raise InvalidRequest(f"definitions: {fault}") from fault
    arguments = [item.arguments for items in (read.exchanges, read.queues, read.bindings) for item in items]
    for each in arguments:
        check_nesting(_table(each))
    return read


def _table(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    if isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        return {name: content for name, content in value if isinstance(name, str)}
    raise InvalidRequest(f"definitions: {value!r} is no table of names and values")


def _plain(value: Any) -> Any:
    """A queue is classic where nothing is said of its type; RabbitMQ's exports say it at times."""
    return {"x-queue-type": "classic", **value} if isinstance(value, dict) else value


def _tags(tags: list[str] | str) -> tuple[str, ...]:
    """RabbitMQ wrote them with commas between up to 3.8."""
    return tuple(tag.strip() for tag in tags.split(",") if tag.strip()) if isinstance(tags, str) else tuple(tags)
