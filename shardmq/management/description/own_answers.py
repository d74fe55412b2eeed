"""Types of what is answered below /api/shardmq."""

from typing import Any, Final, NotRequired, TypedDict

Row = dict[str, Any]


class Looked(TypedDict):
    """Messages that were found, and the position where the search goes on; null at the end.

    `left` is about how many messages are from there on, `cut` how many bodies were looked into in part only.
    """

    messages: list[Row]
    next: int | None
    looked_at: int
    left: int
    cut: int
    partitions: int


class Moved(TypedDict):
    """How many messages were moved, and how many of those that were ready are left."""

    moved: int
    left: int


class DeadLetters(TypedDict):
    """Messages of a queue that died alike, with the times of the oldest and the newest death."""

    queue: str
    reason: str
    source: str
    messages: int
    oldest: int | None
    newest: int | None


class Buried(TypedDict):
    """The dead letters of a queue, or of all queues."""

    groups: list[DeadLetters]
    looked_at: int
    is_partial: NotRequired[bool]
    missed: NotRequired[list[Row]]


class Held(TypedDict):
    """A message in a queue or stream, with its deaths."""

    queue: str
    is_stream: bool
    position: int
    exchange: str
    routing_key: str
    redelivered: bool
    payload_bytes: int
    deaths: list[Any]


class Traced(TypedDict):
    """Where a message went."""

    held: list[Held]
    route: Row | None
    unseen: list[Row]
    looked_at: int
    is_partial: bool
    missed: list[Row]


class Redriven(TypedDict):
    """How many dead letters went, or would go, to which queue, and how many have none."""

    dry_run: bool
    redriven: int
    without_queue: int
    targets: dict[str, int]


class Routed(TypedDict):
    """The exchanges that a message would pass, and the queues it would reach."""

    exchanges: list[str]
    queues: list[str]


class Reset(TypedDict):
    """Where a consumer group goes on, by partition."""

    dry_run: bool
    partitions: list[Row]
    messages: int


class Topic(TypedDict):
    """A topic."""

    name: str
    arguments: Row


OWN_ANSWERS: Final[dict[str, Any]] = {
    **dict.fromkeys(("/shardmq/queues/{vhost}/{queue}/messages", "/shardmq/topics/{vhost}/{topic}/messages"), Looked),
    "/shardmq/queues/{vhost}/{queue}/move": Moved,
    "/shardmq/queues/{vhost}/{queue}/dead-letters": Buried,
    "/shardmq/dead-letters/{vhost}": Buried,
    "/shardmq/traces/{vhost}/{message}": Traced,
    "/shardmq/queues/{vhost}/{queue}/redrive": Redriven,
    "/shardmq/exchanges/{vhost}/{exchange}/route": Routed,
    "/shardmq/groups/{vhost}/{topic}/{group}/reset": Reset,
    **dict.fromkeys(("/shardmq/topics", "/shardmq/topics/{vhost}/{topic}"), Topic),
}
"""What a path answers, or what each item of its list is."""
