"""The broker as clients of RabbitMQ see it: a cluster of one node."""

import os
import platform
from typing import Any, Final

from shardmq.management.samples.spans import now
from shardmq.management.state.facts import LIKE_RABBITMQ, Facts
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import NO_CONTENT, Answer, Endpoint, Right
from shardmq.management.web.errors import ApiError
from shardmq.management.web.paged import asked_spans, message_stats, with_samples
from shardmq.runtime.memory import machine_bytes
from shardmq.version import VERSION

EXCHANGE_TYPES: Final = {
    "direct": "routing keys that are equal",
    "fanout": "everything",
    "headers": "headers that match",
    "topic": "routing keys that match a pattern",
    "x-consistent-hash": "a share of the routing keys, by weight",
    "x-partition": "the partitions of a topic",
}

CHURN: Final = {
    "channel_closed": "channels_closed",
    "channel_created": "channels_opened",
    "connection_closed": "connections_closed",
    "connection_created": "connections_opened",
    "queue_created": "queues_created",
    "queue_declared": "queues_declared",
    "queue_deleted": "queues_deleted",
}
"""What comes and goes, in RabbitMQ's words and ours."""

OBJECTS: Final = ("channels", "connections", "consumers", "exchanges", "queues")

TOTALS: Final = (
    "ack",
    "confirm",
    "deliver",
    "deliver_get",
    "deliver_no_ack",
    "disk_reads",
    "disk_writes",
    "drop_unroutable",
    "get",
    "get_empty",
    "get_no_ack",
    "publish",
    "redeliver",
    "return_unroutable",
)
"""The counts of messages in an overview; agents refuse one that is missing."""


def _nothing() -> Row:
    """Counts of messages before there are any, as RabbitMQ writes them: "publish" and "publish_details"."""
    return {key: value for name in TOTALS for key, value in ((name, 0), (f"{name}_details", {"rate": 0.0}))}


def _churn(found: Row) -> Row:
    """What came and went."""
    counts, rates = found.get("counts", {}), found.get("rates", {})
    shown: Row = {}
    for name, counter in CHURN.items():
        shown[name] = counts.get(counter, 0)
        shown[f"{name}_details"] = {"rate": rates.get(counter, 0.0)}
    return shown


def _types() -> list[Row]:
    return [{"name": name, "description": text, "enabled": True} for name, text in EXCHANGE_TYPES.items()]


def versions() -> Row:
    """What the broker is, and which RabbitMQ's API this resembles."""
    return {
        "management_version": LIKE_RABBITMQ,
        "rabbitmq_version": LIKE_RABBITMQ,
        "product_name": "shardmq",
        "product_version": VERSION,
        "erlang_version": platform.python_version(),
        "erlang_full_version": f"Python {platform.python_version()}, no Erlang",
    }


def listeners(facts: Facts, processes: list[Row]) -> list[Row]:
    """Where clients connect."""
    found = {
        (protocol, port)
        for row in processes
        if row["role"] == "gateway"
        for protocol, port in (("amqp", row.get("port")), ("amqp/ssl", row.get("tls_port")))
        if port
    }
    found.add(("https" if facts.is_tls else "http", facts.port))
    return [
        {"node": facts.node, "protocol": protocol, "ip_address": facts.host, "port": port, "socket_opts": {}}
        for protocol, port in sorted(found)
    ]


def _flow(found: Row) -> Row:
    """The messages of an overview; what is not counted is 0, as agents refuse what is missing."""
    return {**_nothing(), **message_stats(found["counts"], found["rates"])}


async def overview(call: Call) -> Answer:
    """What there is, in numbers."""
    found = await call.overview()
    shown = overview_row(call.facts, found)
    if call.sees_all:
        with_samples(call, "overview", [shown])
    else:
        call.facts.samples.show("overview", shown, list(found["vhosts"]), asked_spans(call), now())
    return Answer(shown)


def _confirm_times(found: Row) -> Row:
    """How long shards took to confirm, of all gateways; for those who see processes."""
    tables = [
        row["measures"]["confirm_seconds"]
        for row in found.get("processes", ())
        if "confirm_seconds" in row.get("measures", {})
    ]
    if not tables:
        return {}
    counts = [sum(column) for column in zip(*(table["counts"] for table in tables), strict=True)]
    return {"confirm_times": {"counts": counts, "sum": sum(table["sum"] for table in tables)}}


def overview_row(facts: Facts, found: Row) -> Row:
    """The broker's overview, in RabbitMQ's words."""
    totals, objects = found["queue_totals"], found["object_totals"]
    return {
        **versions(),
        "cluster_name": facts.node,
        "cluster_tags": {},
        "node": facts.node,
        "node_tags": {},
        "rates_mode": "basic",
        "statistics_db_event_queue": 0,
        "sample_retention_policies": {"global": [600, 3600, 86400], "basic": [600, 3600], "detailed": [600]},
        "exchange_types": _types(),
        "message_stats": _flow(found),
        "churn_rates": _churn(found.get("churn", {})),
        "queue_totals": {
            "messages": totals["messages"],
            "messages_ready": totals["ready"],
            "messages_unacknowledged": totals["unacked"],
            "messages_details": {"rate": totals["rates"]["messages"]},
            "messages_ready_details": {"rate": totals["rates"]["ready"]},
            "messages_unacknowledged_details": {"rate": totals["rates"]["unacked"]},
        },
        "object_totals": {name: objects[name] for name in OBJECTS},
        **_confirm_times(found),
        "away": found.get("silent", found["away"]),
        "listeners": listeners(facts, found.get("processes", [])),
        "contexts": [
            {
                "node": facts.node,
                "description": "shardmq management",
                "path": "/",
                "ip": facts.host,
                "port": facts.port,
                "ssl": facts.is_tls,
            }
        ],
        "disable_stats": False,
        "enable_queue_totals": False,
        "is_op_policy_updating_enabled": True,
    }


def node_row(facts: Facts, processes: list[Row]) -> Row:
    """The broker as one node."""
    alarms = [text for row in processes for text in row.get("alarms", [])]
    shards = [row for row in processes if "disk_free_bytes" in row and "limits" in row]
    connections = sum(row.get("connections", 0) for row in processes)
    return {
        "name": facts.node,
        "type": "disc",
        "running": True,
        "being_drained": False,
        "partitions": [],
        "os_pid": str(next((row["pid"] for row in processes if row["role"] == "coordinator"), os.getpid())),
        "uptime": int(1000 * max((row["uptime_seconds"] for row in processes), default=0)),
        "run_queue": 0,
        "processors": os.cpu_count() or 1,
        "mem_used": sum(row["rss_bytes"] for row in processes),
        "mem_limit": machine_bytes(),
        "mem_alarm": any("memory" in text for text in alarms),
        "disk_free": min((row["disk_free_bytes"] for row in shards), default=0),
        "disk_free_limit": max((row["limits"]["disk_free_bytes_min"] for row in shards), default=0),
        "disk_free_alarm": any("disk" in text for text in alarms),
        "fd_used": sum(row.get("open_fds", 0) for row in processes),
        "fd_total": _bounded(sum(row.get("max_fds", 0) for row in processes)),
        "sockets_used": connections,
        "sockets_total": _bounded(sum(row.get("max_fds", 0) for row in processes if row["role"] == "gateway")),
        "proc_used": len(processes),
        "proc_total": 1 << 16,
        "rates_mode": "basic",
        "enabled_plugins": ["rabbitmq_management"],
        "exchange_types": _types(),
        "auth_mechanisms": [{"name": name, "enabled": True} for name in ("PLAIN", "AMQPLAIN", "EXTERNAL")],
        "config_files": [],
        "log_files": ["<stderr>"],
        "db_dir": "",
        "cluster_links": [],
        "processes": processes,
    }


def _bounded(count: int) -> int:
    """A count that clients read into 32 bits: systems without limits say a thousand million for each process."""
    return min(count, 2**31 - 1)


async def _node(call: Call) -> Row:
    found = await call.overview()
    return with_samples(call, "nodes", [node_row(call.facts, found.get("processes", []))])[0]


async def list_nodes(call: Call) -> Answer:
    """The broker as a list of one node."""
    return Answer([await _node(call)])


async def _find_node(call: Call) -> Row:
    """The node that the path names.

    Raises:
        ApiError: there is none.
    """
    name = call.part("node")
    host = call.facts.node.partition("@")[2]
    if name not in (call.facts.node, f"rabbit@{host}"):  # what clients of RabbitMQ make of the host
        raise ApiError.not_found(f"no node '{name}'; this broker is '{call.facts.node}'")
    return await _node(call)


async def get_node(call: Call) -> Answer:
    """The broker as one node."""
    return Answer(await _find_node(call))


async def top(call: Call) -> Answer:
    """The processes of the broker, those with most memory first, in the words of RabbitMQ's plugin `top`."""
    node = await _find_node(call)
    rows = sorted(node["processes"], key=lambda row: -row["rss_bytes"])
    processes = [
        {
            "pid": str(row["pid"]),
            "name": row["role"],
            "status": "running",
            "memory": row["rss_bytes"],
        }
        for row in rows
    ]
    return Answer({"node": node["name"], "row_count": len(processes), "processes": processes})


MEMORY: Final = (
    *("connection_readers", "connection_writers", "connection_channels", "connection_other", "queue_procs"),
    *("quorum_queue_procs", "quorum_queue_dlx_procs", "stream_queue_procs", "stream_queue_replica_reader_procs"),
    *("stream_queue_coordinator_procs", "plugins", "metadata_store", "other_proc", "metrics", "mgmt_db", "mnesia"),
    *("quorum_ets", "metadata_store_ets", "other_ets", "binary", "msg_index", "code", "atom", "other_system"),
    *("allocated_unused", "reserved_unallocated"),
)
"""What RabbitMQ's memory consists of; rabbitmqadmin reads all of it."""

MEMORY_OF_ROLE: Final = {
    "gateway": "connection_other",
    "shard": "queue_procs",
    "coordinator": "metadata_store",
    "management": "mgmt_db",
}
"""What our processes are nearest to."""


async def memory(call: Call) -> Answer:
    """The memory of the broker, by process and in RabbitMQ's words; all of it is what the kernel counts as resident."""
    node = await _find_node(call)
    taken = {row["process"]: row["rss_bytes"] for row in node["processes"]}
    parts = dict.fromkeys(MEMORY, 0)
    for row in node["processes"]:
        parts[MEMORY_OF_ROLE.get(row["role"], "other_proc")] += row["rss_bytes"]
    total = dict.fromkeys(("rss", "allocated", "erlang"), sum(taken.values()))
    return Answer({"memory": {**parts, "strategy": "rss", "total": total}, "processes": taken})


async def login_attempts(call: Call) -> Answer:
    """How many logins there were, by protocol."""
    counts = call.facts.logins.since((await _find_node(call))["processes"])
    return Answer(
        [
            {
                "protocol": protocol,
                "auth_attempts": sum(found.values()),
                "auth_attempts_failed": found["failed"],
                "auth_attempts_succeeded": found["succeeded"],
            }
            for protocol, found in sorted(counts.items())
        ]
    )


async def reset_login_attempts(call: Call) -> Answer:
    """Have logins count from 0; of sources nothing is counted."""
    call.facts.logins.reset((await _find_node(call))["processes"])
    return NO_CONTENT


async def reset(call: Call) -> Answer:
    """Forget all samples; counts stay."""
    if "node" in call.request.match_info:
        await _find_node(call)
    call.facts.samples.clear()
    return NO_CONTENT


async def cluster_name(call: Call) -> Answer:
    """The broker's name."""
    return Answer({"name": call.facts.node})


async def extensions(call: Call) -> Answer:
    """Extensions of the page: there are none."""
    del call
    return Answer([])


async def version(call: Call) -> Answer:
    """The version of RabbitMQ's API."""
    del call
    return Answer(LIKE_RABBITMQ)


def _get(path: str, handler: Any, right: Right, summary: str, answer: Any = Row) -> Endpoint:
    return Endpoint(
        "GET", path, handler, right, summary, answer, has_samples=handler in SAMPLED, is_shared=handler in SAMPLED
    )


SAMPLED: Final = (overview, list_nodes, get_node)
"""What answers with samples."""


ENDPOINTS: Final = (
    _get("/overview", overview, Right.MANAGEMENT, "What there is, in numbers."),
    _get("/nodes", list_nodes, Right.MONITORING, "The broker as a list of one node.", list[Row]),
    _get("/nodes/{node}", get_node, Right.MONITORING, "The broker as one node."),
    _get("/nodes/{node}/memory", memory, Right.MONITORING, "The memory of the broker, by process."),
    _get("/auth/attempts/{node}", login_attempts, Right.MONITORING, "Logins, by protocol.", list[Row]),
    *(
        Endpoint("DELETE", path, reset_login_attempts, Right.MONITORING, "Count logins from 0.")
        for path in ("/auth/attempts/{node}", "/auth/attempts/{node}/source")
    ),
    *(
        Endpoint("DELETE", path, reset, Right.ADMINISTRATOR, "Forget all samples.")
        for path in ("/reset", "/reset/{node}")
    ),
    _get("/top/{node}", top, Right.MONITORING, "The processes of the broker, by memory."),
    _get("/cluster-name", cluster_name, Right.MANAGEMENT, "The broker's name."),
    _get("/extensions", extensions, Right.MANAGEMENT, "Extensions of the page: none.", list[Row]),
    _get("/version", version, Right.NOTHING, "The version of RabbitMQ's API.", str),
)
"""What this file answers."""
