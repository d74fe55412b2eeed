"""Types of requests' bodies, where the endpoint itself reads a table of its own."""

from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

import msgspec

Row = dict[str, Any]

PolicyBody = TypedDict(
    "PolicyBody",
    {"pattern": str, "definition": Row, "priority": NotRequired[int], "apply-to": NotRequired[str]},
)
"""What a policy is to be."""


class TopicPermissionBody(TypedDict):
    """With which routing keys a user may write and read at an exchange, as regular expressions."""

    exchange: str
    write: str
    read: str


class TopicBody(TypedDict):
    """What a topic is to be."""

    partitions: NotRequired[Annotated[int, msgspec.Meta(ge=1)]]


class ResetBody(TypedDict):
    """Where a consumer group is to go on."""

    to: Literal["earliest", "latest"] | int
    partitions: NotRequired[list[int] | None]
    dry_run: NotRequired[bool]


class DrainBody(TypedDict):
    """Whether a host may have replicas again."""

    undo: NotRequired[bool]


class TransferBody(TypedDict):
    """Which host is to lead."""

    host: str


ReplicaMoveBody = TypedDict("ReplicaMoveBody", {"from": str, "to": str})
"""Which host has a replica, and which one is to have it."""


class MoveBody(TypedDict):
    """Where messages are to be moved."""

    to: str
    limit: NotRequired[Annotated[int, msgspec.Meta(ge=1)] | None]


class RedriveBody(TypedDict):
    """Which dead letters are to be redriven; "" and none are any."""

    reason: NotRequired[str]
    source: NotRequired[str]
    key: NotRequired[str]
    header: NotRequired[str | list[str]]
    text: NotRequired[str]
    regex: NotRequired[str]
    json: NotRequired[str | list[str]]
    message_id: NotRequired[str]
    older_than: NotRequired[Annotated[int, msgspec.Meta(ge=0)] | None]
    newer_than: NotRequired[Annotated[int, msgspec.Meta(ge=0)] | None]
    id: NotRequired[str]
    limit: NotRequired[Annotated[int, msgspec.Meta(ge=1)] | None]
    start: NotRequired[Annotated[int, msgspec.Meta(ge=0)] | None]
    seconds: NotRequired[Annotated[int, msgspec.Meta(ge=1)] | None]
    ranges: NotRequired[list[tuple[int, int]] | None]
    dry_run: NotRequired[bool]


BODIES: Final[dict[str, Any]] = {
    "/policies/{vhost}/{name}": PolicyBody,
    "/operator-policies/{vhost}/{name}": PolicyBody,
    "/shardmq/policies/{vhost}/{name}/preview": PolicyBody,
    "/shardmq/operator-policies/{vhost}/{name}/preview": PolicyBody,
    "/topic-permissions/{vhost}/{user}": TopicPermissionBody,
    "/shardmq/topics/{vhost}/{topic}": TopicBody,
    "/shardmq/groups/{vhost}/{topic}/{group}/reset": ResetBody,
    "/shardmq/queues/{vhost}/{queue}/move": MoveBody,
    "/shardmq/hosts/{host}/drain": DrainBody,
    "/shardmq/shards/{shard}/transfer": TransferBody,
    "/shardmq/shards/{shard}/move": ReplicaMoveBody,
    "/shardmq/queues/{vhost}/{queue}/redrive": RedriveBody,
}
"""What a path takes. Other paths are told by their endpoints."""
