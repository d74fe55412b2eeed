"""Types of what is answered: fields that are always there, and those that may be. More may come."""

from typing import Any, Final, NotRequired, TypedDict

from shardmq.management.description.checks import CHECKS
from shardmq.management.description.own_answers import OWN_ANSWERS

Row = dict[str, Any]


class Rate(TypedDict):
    """How fast something is counted, in one second."""

    rate: float


class Named(TypedDict):
    """A name."""

    name: str


class ConfirmTimes(TypedDict):
    """How long shards took to confirm: how often so many bits of microseconds, and seconds of all together."""

    counts: list[int]
    sum: float


class Overview(TypedDict):
    """What there is, in numbers."""

    cluster_name: str
    node: str
    rabbitmq_version: str
    management_version: str
    product_name: str
    product_version: str
    erlang_version: str
    erlang_full_version: str
    statistics_db_event_queue: int
    churn_rates: Row
    queue_totals: Row
    object_totals: dict[str, int]
    message_stats: Row
    listeners: list[Row]
    contexts: list[Row]
    exchange_types: list[Row]
    rates_mode: str
    confirm_times: NotRequired[ConfirmTimes]
    away: list[str]


class Node(TypedDict):
    """The broker as one node."""

    name: str
    type: str
    running: bool
    uptime: int
    run_queue: int
    processors: int
    os_pid: str
    fd_used: int
    fd_total: int
    proc_used: int
    proc_total: int
    mem_used: int
    mem_limit: int
    mem_alarm: bool
    disk_free: int
    disk_free_limit: int
    disk_free_alarm: bool
    rates_mode: str
    enabled_plugins: list[str]
    being_drained: bool
    partitions: list[str]


class Queue(TypedDict):
    """A queue; counts are missing where its shard is away, and with disable_stats."""

    name: str
    vhost: str
    type: str
    durable: bool
    auto_delete: bool
    exclusive: bool
    arguments: Row
    node: str
    state: str
    policy: str | None
    operator_policy: str | None
    effective_policy_definition: Row
    messages: NotRequired[int]
    messages_ready: NotRequired[int]
    messages_unacknowledged: NotRequired[int]
    messages_details: NotRequired[Rate]
    message_bytes: NotRequired[int]
    consumers: NotRequired[int]
    message_stats: NotRequired[Row]
    idle_since: NotRequired[str]
    head_message_timestamp: NotRequired[int]
    oldest_unacked_ms: NotRequired[int]
    consumer_details: NotRequired[list[Row]]


class Exchange(TypedDict):
    """An exchange; the default one has the name ""."""

    name: str
    vhost: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Row


class Binding(TypedDict):
    """A binding."""

    source: str
    vhost: str
    destination: str
    destination_type: str
    routing_key: str
    arguments: Row
    properties_key: str


class Connection(TypedDict):
    """A connection."""

    name: str
    node: str
    protocol: str
    user: str
    vhost: str
    state: str
    connected_at: int
    peer_host: str
    peer_port: int
    ssl: bool
    channels: int
    channel_max: int
    client_properties: Row
    frame_max: NotRequired[int]
    timeout: NotRequired[int]
    auth_mechanism: NotRequired[str]
    host: NotRequired[str]
    port: NotRequired[int]
    ssl_protocol: str | None
    ssl_key_exchange: str | None
    ssl_cipher: str | None
    ssl_hash: str | None
    peer_cert_subject: str | None
    peer_cert_issuer: str | None
    peer_cert_validity: str | None
    recv_oct: NotRequired[int]
    send_oct: NotRequired[int]
    message_stats: NotRequired[Row]


class Channel(TypedDict):
    """A channel."""

    name: str
    number: int
    node: str
    connection_details: Row
    user: str
    vhost: str
    state: str
    consumer_count: int
    confirm: bool
    transactional: bool
    prefetch_count: int
    global_prefetch_count: int
    messages_unacknowledged: int
    messages_unconfirmed: int
    consumer_details: NotRequired[list[Row]]


class Place(TypedDict):
    """The queue of a consumer."""

    name: str
    vhost: str


class Consumer(TypedDict):
    """A consumer."""

    consumer_tag: str
    active: bool
    ack_required: bool
    prefetch_count: int
    exclusive: bool
    arguments: Row
    queue: Place
    channel_details: Row
    unacked: NotRequired[int]
    oldest_unacked_ms: NotRequired[int]
    ack_latency_ms: NotRequired[float]
    ack_latency_ms_max: NotRequired[float]


class Vhost(TypedDict):
    """A virtual host."""

    name: str
    description: str
    tags: list[str]
    metadata: Row
    tracing: bool
    trace_sample: float
    cluster_state: dict[str, str]
    messages: NotRequired[int]


class User(TypedDict):
    """A user."""

    name: str
    password_hash: str
    hashing_algorithm: str
    tags: list[str]
    limits: Row


class Whoami(TypedDict):
    """Who the caller is."""

    name: str
    tags: list[str]
    is_internal_user: bool


class Permission(TypedDict):
    """What a user may do in a virtual host, as regular expressions of names."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


class TopicPermission(TypedDict):
    """With which routing keys a user may write and read at an exchange, as regular expressions."""

    user: str
    vhost: str
    exchange: str
    write: str
    read: str


Policy = TypedDict(
    "Policy", {"vhost": str, "name": str, "pattern": str, "definition": Row, "priority": int, "apply-to": str}
)
"""A policy."""


class VhostLimits(TypedDict):
    """The limits of a virtual host."""

    vhost: str
    value: dict[str, int]


class UserLimits(TypedDict):
    """The limits of a user."""

    user: str
    value: dict[str, int]


class Got(TypedDict):
    """A message that was got."""

    payload_bytes: int
    redelivered: bool
    exchange: str
    routing_key: str
    message_count: int
    properties: Row
    payload: str
    payload_encoding: str


class Logins(TypedDict):
    """How many logins there were with a protocol."""

    protocol: str
    auth_attempts: int
    auth_attempts_succeeded: int
    auth_attempts_failed: int


class Hashed(TypedDict):
    """The hash of a password."""

    ok: str


class Memory(TypedDict):
    """The memory of the broker in bytes, by process, with the strategy and the total."""

    memory: Row
    processes: dict[str, int]


class TopProcess(TypedDict):
    """A process of the broker, with its memory in bytes."""

    pid: str
    name: str
    status: str
    memory: int


class Top(TypedDict):
    """The processes of the broker, those with most memory first."""

    node: str
    row_count: int
    processes: list[TopProcess]


class Published(TypedDict):
    """Whether a message reached a queue."""

    routed: bool


ANSWERS: Final[dict[str, Any]] = {
    "/overview": Overview,
    "/nodes": Node,
    "/nodes/{node}": Node,
    "/cluster-name": Named,
    "/whoami": Whoami,
    **dict.fromkeys(("/queues", "/queues/detailed", "/queues/{vhost}", "/queues/{vhost}/{queue}"), Queue),
    **dict.fromkeys(("/exchanges", "/exchanges/{vhost}", "/exchanges/{vhost}/{exchange}"), Exchange),
    "/exchanges/{vhost}/{exchange}/publish": Published,
    "/queues/{vhost}/{queue}/get": Got,
    **dict.fromkeys(("/bindings", "/bindings/{vhost}", "/queues/{vhost}/{queue}/bindings"), Binding),
    "/exchanges/{vhost}/{exchange}/bindings/source": Binding,
    "/exchanges/{vhost}/{exchange}/bindings/destination": Binding,
    "/bindings/{vhost}/e/{source}/{kind}/{destination}": Binding,
    "/bindings/{vhost}/e/{source}/{kind}/{destination}/{key}": Binding,
    **dict.fromkeys(("/connections", "/connections/{connection}", "/connections/username/{user}"), Connection),
    "/vhosts/{vhost}/connections": Connection,
    **dict.fromkeys(("/channels", "/channels/{channel}", "/connections/{connection}/channels"), Channel),
    "/vhosts/{vhost}/channels": Channel,
    **dict.fromkeys(("/consumers", "/consumers/{vhost}"), Consumer),
    **dict.fromkeys(("/vhosts", "/vhosts/{vhost}"), Vhost),
    **dict.fromkeys(("/users", "/users/{user}", "/users/without-permissions"), User),
    **dict.fromkeys(("/permissions", "/permissions/{vhost}", "/permissions/{vhost}/{user}"), Permission),
    **dict.fromkeys(("/users/{user}/permissions", "/vhosts/{vhost}/permissions"), Permission),
    **dict.fromkeys(("/topic-permissions", "/topic-permissions/{vhost}"), TopicPermission),
    "/topic-permissions/{vhost}/{user}": TopicPermission,
    **dict.fromkeys(("/users/{user}/topic-permissions", "/vhosts/{vhost}/topic-permissions"), TopicPermission),
    **dict.fromkeys(("/policies", "/policies/{vhost}", "/policies/{vhost}/{name}"), Policy),
    **dict.fromkeys(("/operator-policies", "/operator-policies/{vhost}", "/operator-policies/{vhost}/{name}"), Policy),
    **dict.fromkeys(("/vhost-limits", "/vhost-limits/{vhost}"), VhostLimits),
    **dict.fromkeys(("/user-limits", "/user-limits/{user}"), UserLimits),
    "/auth/attempts/{node}": Logins,
    "/auth/hash_password/{password}": Hashed,
    "/nodes/{node}/memory": Memory,
    "/top/{node}": Top,
    **CHECKS,
    **OWN_ANSWERS,
}
"""What a path answers, or what each item of its list is. Paths that are not here answer objects of any shape."""
