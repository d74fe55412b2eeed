"""Requests of rabbitmqadmin v2 as its HTTP client in Rust sends them, and the answers in the types that it reads.

It reads every answer into a type, and gives up where a field is missing or has another type; `?` behind a type is one
that may be missing or null. https://docs.rs/rabbitmq_http_client
"""

from typing import Any

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.management.browser import Browser, Refused

U16, U32, U64 = (1 << 16) - 1, (1 << 32) - 1, (1 << 64) - 1
NUMBERS = {"u16": U16, "u32": U32, "u64": U64}

MEMORY = (
    *("connection_readers", "connection_writers", "connection_channels", "connection_other", "queue_procs", "metrics"),
    *("quorum_queue_procs", "stream_queue_procs", "stream_queue_replica_reader_procs"),
    *("stream_queue_coordinator_procs", "plugins", "metadata_store", "other_proc", "mgmt_db", "mnesia", "quorum_ets"),
    *("metadata_store_ets", "other_ets", "binary", "msg_index", "code", "atom", "other_system", "allocated_unused"),
    "reserved_unallocated",
)


def fields(text: str) -> dict[str, str]:
    """Names with their types, as they stand in a text."""
    return dict(field.split(":") for field in text.split())


NODE = fields("""
    name:str uptime:u32 run_queue:u32 processors:u32 os_pid:str fd_total:u32 proc_total:u32 mem_limit:u64
    mem_alarm:bool disk_free_limit:u64 being_drained:bool disk_free_alarm:bool rates_mode:str enabled_plugins:list
""")
QUEUE = fields("""
    name:str vhost:str type:str durable:bool auto_delete:bool exclusive:bool arguments:dict node:str state:str
    memory:u64 consumers:u16 policy:str? exclusive_consumer_tag:str? message_bytes:u64 messages:u64
    messages_unacknowledged:u64
""")
CONNECTION = fields("""
    name:str node:str state:str? protocol:str user:str connected_at:u64 host:str? port:u32? peer_host:str?
    peer_port:u32? channel_max:u16? channels:u16 client_properties:dict vhost:str
""")
CHANNEL = fields("""
    number:u32 name:str connection_details:dict vhost:str state:str confirm:bool consumer_count:u32
    prefetch_count:u32 messages_unacknowledged:u32 messages_unconfirmed:u32
""")
CONSUMER = fields("""
    consumer_tag:str active:bool ack_required:bool prefetch_count:u32 exclusive:bool arguments:dict queue:dict
    channel_details:dict
""")
OVERVIEW = fields("""
    cluster_name:str node:str erlang_full_version:str erlang_version:str rabbitmq_version:str product_name:str
    product_version:str statistics_db_event_queue:u64 churn_rates:dict queue_totals:dict object_totals:dict
    message_stats:dict listeners:list
""")
EXCHANGE = fields("name:str vhost:str type:str durable:bool auto_delete:bool arguments:dict")
BINDING = fields("""
    vhost:str source:str destination:str destination_type:str routing_key:str arguments:dict properties_key:str
""")
POLICY = fields("name:str vhost:str pattern:str apply-to:str priority:u16 definition:dict")
USER = fields("name:str tags:list password_hash:str")
PERMISSIONS = fields("user:str vhost:str configure:str read:str write:str")
VHOST = fields("name:str tags:list? description:str? default_queue_type:str? metadata:dict")

LISTS = {
    **dict.fromkeys(("queues", "queues/detailed", "queues/%2F"), QUEUE),
    **dict.fromkeys(("connections", "vhosts/%2F/connections"), CONNECTION),
    **dict.fromkeys(("channels", "vhosts/%2F/channels"), CHANNEL),
    **dict.fromkeys(("consumers", "consumers/%2F"), CONSUMER),
    **dict.fromkeys(("policies", "operator-policies"), POLICY),
    **dict(zip(("nodes", "vhosts", "users", "permissions"), (NODE, VHOST, USER, PERMISSIONS), strict=True)),
    **dict(zip(("exchanges", "bindings"), (EXCHANGE, BINDING), strict=True)),
    "connections/username/guest": fields("name:str node:str user:str vhost:str"),
}


def misread(row: dict[str, Any], wanted: dict[str, str]) -> list[str]:
    """The fields that cannot be read into their types."""
    return [name for name, kind in wanted.items() if not is_read(row.get(name), kind)]


def is_read(value: Any, kind: str) -> bool:
    if value is None:
        return kind.endswith("?")
    kind = kind.rstrip("?")
    if kind in NUMBERS:
        return type(value) is int and 0 <= value <= NUMBERS[kind]
    return type(value).__name__ == kind


@pytest.fixture(scope="module")
def used(managed: Broker) -> Any:
    """A broker with one of each thing, made by the requests of `rabbitmqadmin declare`."""
    with Browser(managed.management_url) as admin, shardmq.connect(managed.url) as connection:
        vhost = {"name": "v2", "description": None, "tags": None, "default_queue_type": "classic", "tracing": False}
        assert admin.put("/vhosts/v2", vhost) == 201
        hashed = "5nLZ2yVcXjOcLhVqmYh2wNdbNJ1XKpqPz4pUAvOvxTRzdQ4F"  # salted SHA-256 in RabbitMQ's form
        assert admin.put("/users/u2", {"name": "u2", "password_hash": hashed, "tags": "monitoring"}) == 201
        rights = {"user": "u2", "vhost": "v2", "configure": ".*", "read": ".*", "write": ".*"}
        assert admin.put("/permissions/v2/u2", rights) == 201
        queue = {"name": "q2", "durable": True, "auto_delete": False, "exclusive": False, "arguments": None}
        assert admin.put("/queues/%2F/q2", queue) == 201
        exchange = {"name": "x2", "type": "topic", "durable": True, "auto_delete": False, "arguments": None}
        assert admin.put("/exchanges/%2F/x2", exchange) == 201
        admin.post("/bindings/%2F/e/x2/q/q2", {"routing_key": "a.#"})
        for noun in ("policies", "operator-policies"):
            policy = {"vhost": "/", "name": "p2", "pattern": "^none", "apply-to": "queues", "priority": 1}
            assert admin.put(f"/{noun}/%2F/p2", {**policy, "definition": {"max-length": 10}}) == 201
        assert admin.put("/vhost-limits/v2/max-queues", {"value": 10}) == 204
        assert admin.put("/user-limits/u2/max-channels", {"value": 10}) == 204
        channel = connection.channel()
        channel.basic_consume("q2", print)
        yield admin


@pytest.mark.parametrize("path", LISTS)
def test_each_row_of_a_list_is_read(used: Browser, path: str) -> None:
    rows = used.get(f"/{path}")
    assert rows
    assert [misread(row, LISTS[path]) for row in rows] == [[]] * len(rows)


def test_the_overview_a_node_and_its_memory_are_read(used: Browser) -> None:
    overview = used.get("/overview")
    assert misread(overview, OVERVIEW) == []
    assert misread(overview["churn_rates"], dict.fromkeys(("connection_created", "queue_deleted"), "u32")) == []
    (node,) = used.get("/nodes")
    assert int(node["os_pid"]) > 0
    memory = used.get(f"/nodes/{node['name']}/memory")["memory"]
    assert misread(memory, {**dict.fromkeys(MEMORY, "u64"), "strategy": "str", "total": "dict"}) == []
    assert misread(memory["total"], dict.fromkeys(("rss", "allocated", "erlang"), "u64")) == []
    assert sum(memory[name] for name in MEMORY) == memory["total"]["rss"]


@pytest.mark.parametrize(
    "path",
    [
        *("health/checks/alarms", "health/checks/local-alarms", "health/checks/node-is-quorum-critical"),
        *(
            "health/checks/ready-to-serve-clients",
            "health/checks/protocol-listener/amqp",
            "health/checks/virtual-hosts",
        ),
        *("feature-flags", "deprecated-features", "deprecated-features/used", "whoami", "cluster-name", "definitions"),
        *(
            "definitions/v2",
            "users/without-permissions",
            "vhost-limits",
            "vhost-limits/v2",
            "user-limits/u2",
            "shovels",
        ),
        *("shovels/%2F", "parameters", "parameters/shovel/%2F", "global-parameters", "federation-links", "extensions"),
        *("auth/attempts/NODE", "nodes/NODE", "queues/%2F/q2", "exchanges/%2F/x2", "queues/%2F/q2/bindings"),
        *("exchanges/%2F/x2/bindings/source", "exchanges/%2F/x2/bindings/destination", "users/u2/permissions"),
        *("permissions/v2/u2", "vhosts/v2/permissions", "policies/%2F/p2", "vhosts/v2", "users/u2", "version"),
        *("topic-permissions", "vhosts/v2/topic-permissions", "users/u2/topic-permissions"),
    ],
)
def test_what_it_asks_for_is_there(used: Browser, path: str) -> None:
    node = used.get("/overview")["node"]
    assert used.get("/" + path.replace("NODE", node)) is not None


def test_what_it_deletes_is_gone(used: Browser) -> None:
    with pytest.raises(Refused, match="a queue stays on its shard"):
        used.post("/rebalance/queues", {})
    for name in ("gone-1", "gone-2"):
        used.put(f"/users/{name}", {"name": name, "password_hash": "", "tags": ""})
    used.post("/users/bulk-delete", {"users": ["gone-1", "gone-2"]})
    key = used.get("/bindings/%2F/e/x2/q/q2")[0]["properties_key"]
    used.put("/exchanges/%2F/short-lived", {"name": "short-lived", "type": "fanout", "durable": False})
    assert used.delete("/exchanges/%2F/short-lived") == 204
    assert used.delete(f"/bindings/%2F/e/x2/q/q2/{key.replace('%', '%25')}") == 204
    for path in ("users/gone-1", "exchanges/%2F/short-lived", "nodes/none", "vhosts/none", "queues/%2F/none"):
        with pytest.raises(Refused) as refused:
            used.get(f"/{path}")
        assert refused.value.status == 404
