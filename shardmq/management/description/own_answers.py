"""Types of what is answered below /api/shardmq."""

from typing import Any, Final, Literal, NotRequired, TypedDict

Row = dict[str, Any]


class LookedMessage(TypedDict):
    """A message that was looked at; its body is in Base64, and cut off where it is long."""

    position: int
    exchange: str
    routing_key: str
    redelivered: bool
    payload_bytes: int
    payload_base64: str
    is_truncated: bool
    properties: Row


class Looked(TypedDict):
    """Messages that were found, and the position where the search goes on; null at the end.

    `left` is about how many messages are from there on, `cut` how many bodies were looked into in part only.
    """

    messages: list[LookedMessage]
    next: int | None
    looked_at: int
    left: int
    cut: int
    partitions: int


class KeptOfQueue(TypedDict):
    """What was counted of a queue, oldest first; null where nobody looked, empty where nothing is kept yet."""

    name: str
    messages: list[int | None]
    publish: list[int | None]
    deliver_get: list[int | None]
    ack: list[int | None]


class KeptOfQueues(TypedDict):
    """What was counted of queues each `step` seconds, up to `newest`, in milliseconds since 1970."""

    step: int
    newest: int
    queues: list[KeptOfQueue]


class Moved(TypedDict):
    """How many messages were moved, and how many of those that were ready are left."""

    moved: int
    left: int


class Republished(TypedDict):
    """Whether a queue took the copy, and whether the original is gone."""

    routed: bool
    removed: bool


class DeadLetters(TypedDict):
    """Messages of a queue that died alike, with the times of the oldest and the newest death."""

    queue: str
    reason: str
    source: str
    messages: int
    oldest: int | None
    newest: int | None


class Missed(TypedDict):
    """A queue that could not be looked at, and why."""

    queue: str
    reason: str


class Buried(TypedDict):
    """The dead letters of a queue, or of all queues."""

    groups: list[DeadLetters]
    looked_at: int
    is_partial: NotRequired[bool]
    missed: NotRequired[list[Missed]]


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


class TracedRoute(TypedDict):
    """The exchanges that a message would pass from one on, and the queues it would reach."""

    exchange: str
    routing_key: str
    exchanges: list[str]
    queues: list[str]


class Unseen(TypedDict):
    """A queue with messages that nobody sees: unacknowledged or delayed ones."""

    queue: str
    unacknowledged: int
    delayed: int


class Traced(TypedDict):
    """Where a message went."""

    held: list[Held]
    route: TracedRoute | None
    unseen: list[Unseen]
    looked_at: int
    is_partial: bool
    missed: list[Missed]


class Redriven(TypedDict):
    """How many dead letters went, or would go, to which queue, and how many have none."""

    dry_run: bool
    redriven: int
    without_queue: int
    targets: dict[str, int]
    looked_at: int
    left: int
    next: int | None
    ranges: NotRequired[list[tuple[int, int]]]


class Routed(TypedDict):
    """The exchanges that a message would pass, and the queues it would reach."""

    exchanges: list[str]
    queues: list[str]


class ResetPartition(TypedDict):
    """Where a consumer group goes on in a partition, and where it was; null where it had not begun."""

    partition: int
    old: int | None
    new: int


class Reset(TypedDict):
    """Where a consumer group goes on, by partition."""

    dry_run: bool
    partitions: list[ResetPartition]
    messages: int


class Topic(TypedDict):
    """A topic, with how many partitions it has."""

    name: str
    vhost: str
    partitions: int
    arguments: Row


class PartitionGroup(TypedDict):
    """What a group has read of a partition; the member is whose it is in an ordered group, or "".

    The lag is null where the group's cursor there is damaged.
    """

    group: str
    member: str
    consumers: int
    unacked: int
    lag: int | None
    is_damaged: bool


class TopicPartition(TypedDict):
    """A partition of a topic, and what groups have read of it; null while its shard is away."""

    partition: int
    queue: str
    shard: int
    groups: list[PartitionGroup] | None
    first: NotRequired[int | None]
    next: NotRequired[int | None]
    messages: NotRequired[int | None]
    bytes: NotRequired[int | None]


class TopicGroup(TypedDict):
    """A group that reads a topic; its lag is null while a shard is away."""

    group: str
    type: str
    partitions: int
    consumers: int
    unacked: int
    lag: int | None


class TopicDetails(TypedDict):
    """A topic, with its partitions and groups."""

    name: str
    vhost: str
    arguments: Row
    partitions: list[TopicPartition]
    groups: list[TopicGroup]


class Group(TypedDict):
    """A consumer group of a topic.

    Its cursor is damaged in some partitions. The sums are without those that are unknown: they are out of service, or
    their shard does not answer.
    """

    group: str
    topic: str
    vhost: str
    type: str
    partitions: int
    read: int
    consumers: int
    members: int
    unacked: int
    lag: int | None
    damaged: list[int]
    unknown: list[int]


class Found(TypedDict):
    """What is wrong, since when (milliseconds since 1970), and what to do; the vhost "" is the broker."""

    rule: str
    severity: Literal["error", "warning"]
    vhost: str
    name: str
    title: str
    evidence: str
    numbers: Row
    since: int
    advice: str
    command: str


class Process(TypedDict):
    """A process of the broker, with its share of the processor since the last look; each role has more."""

    process: str
    role: Literal["coordinator", "gateway", "shard"]
    host: str
    pid: int
    rss_bytes: int
    cpu_seconds: float
    cpu_percent: float | None
    uptime_seconds: float
    version: str
    alarms: NotRequired[list[str]]


class Host(TypedDict):
    """A host of a broker on several: how many shards it leads, has replicas of, and is in sync in.

    `format` is the newest format of stores that it writes.
    """

    host: str
    state: Literal["up", "draining", "stopping", "away", "stopped", "unknown"]
    is_draining: bool
    leads: int
    replicas: int
    in_sync: int
    labels: dict[str, str]
    gateway: str
    management: str
    format: int


class Follower(TypedDict):
    """A replica as its primary sees it, and how far it is behind; null is what that does not know."""

    host: str
    state: Literal["in sync", "joining", "catching up", "away", "unknown"]
    records: int | None
    bytes: int | None
    seconds: float | None
    silent_seconds: float | None
    joined_percent: int | None


class ReplicaGroup(TypedDict):
    """A shard or the coordinator: who leads it in which term, on which hosts it is, and who is in sync."""

    group: str
    term: int
    primary: str
    in_sync: list[str]
    replicas: list[str]
    min_in_sync: int
    state: str
    followers: list[Follower]


class Hosts(TypedDict):
    """The hosts of a broker on several, and its groups of replicas; none on one host."""

    hosts: list[Host]
    groups: list[ReplicaGroup]


class Transaction(TypedDict):
    """A transaction that nobody has decided about; messages and bytes may be null while a shard is away."""

    name: str
    number: int
    vhost: str
    user: str
    timeout_ms: int
    idle_ms: int
    attempts: int
    messages: int | None
    bytes: int | None


class Previewed(TypedDict):
    """A queue or exchange that a policy would change; each change is the value before and the one after."""

    kind: Literal["queue", "exchange"]
    name: str
    policy_before: str | None
    operator_policy_before: str | None
    policy: str | None
    operator_policy: str | None
    changes: dict[str, list[Any]]


POLICIES: Final = ("policies", "operator-policies")

OWN_ANSWERS: Final[dict[str, Any]] = {
    **dict.fromkeys(("/shardmq/queues/{vhost}/{queue}/messages", "/shardmq/topics/{vhost}/{topic}/messages"), Looked),
    "/shardmq/queues/{vhost}/{queue}/move": Moved,
    **dict.fromkeys(
        ("/shardmq/queues/{vhost}/{queue}/republish", "/shardmq/topics/{vhost}/{topic}/republish"), Republished
    ),
    "/shardmq/queues/{vhost}/{queue}/dead-letters": Buried,
    "/shardmq/dead-letters/{vhost}": Buried,
    "/shardmq/samples/queues/{vhost}": KeptOfQueues,
    "/shardmq/traces/{vhost}/{message}": Traced,
    "/shardmq/queues/{vhost}/{queue}/redrive": Redriven,
    "/shardmq/exchanges/{vhost}/{exchange}/route": Routed,
    "/shardmq/groups/{vhost}/{topic}/{group}/reset": Reset,
    "/shardmq/topics": Topic,
    "/shardmq/topics/{vhost}/{topic}": TopicDetails,
    "/shardmq/groups": Group,
    "/shardmq/findings": Found,
    "/shardmq/processes": Process,
    "/shardmq/hosts": Hosts,
    "/shardmq/transactions": Transaction,
    **dict.fromkeys((f"/shardmq/{place}/{{vhost}}/{{name}}/preview" for place in POLICIES), Previewed),
}
"""What a path answers, or what each item of its list is."""
