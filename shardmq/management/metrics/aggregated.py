"""Metrics of the broker in RabbitMQ's names: what Grafana's dashboard 10991 reads.

Counters have the process that counts as a label, so that one that begins anew is seen to, and sums are right.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from shardmq.definitions.export import RABBITMQ_VERSION
from shardmq.management.metrics.exposition import Exposition, labelled
from shardmq.version import VERSION

Row = Mapping[str, Any]

SIZE_BOUNDS: Final = ("100.0", "1000.0", "10000.0", "100000.0", "1e+06", "1e+07", "5e+07", "1e+08", "+Inf")
"""Upper bounds of message sizes as RabbitMQ writes them: the dashboard names them so."""

AGGREGATED: Final = "aggregated"
PER_OBJECT: Final = "per-object"

PROTOCOLS: Final = {"AMQP 0-9-1": "amqp091", "shardmq": "shardmq"}

_GLOBAL: Final = (
    ("messages_received_total", ("publish",), "Messages received from publishers"),
    ("messages_received_confirm_total", ("publish_confirmed",), "Messages received on channels that confirm them"),
    ("messages_confirmed_total", ("confirm",), "Messages confirmed to publishers"),
    ("messages_unroutable_dropped_total", ("drop_unroutable",), "Messages that no queue took, dropped"),
    ("messages_unroutable_returned_total", ("return_unroutable",), "Messages that no queue took, returned"),
    (
        "messages_delivered_total",
        ("deliver", "deliver_no_ack", "get", "get_no_ack"),
        "Messages delivered to consumers and got",
    ),
    ("messages_delivered_consume_auto_ack_total", ("deliver_no_ack",), "Delivered, not to be acknowledged"),
    ("messages_delivered_consume_manual_ack_total", ("deliver",), "Delivered, to be acknowledged"),
    ("messages_delivered_get_auto_ack_total", ("get_no_ack",), "Got by basic.get, not to be acknowledged"),
    ("messages_delivered_get_manual_ack_total", ("get",), "Got by basic.get, to be acknowledged"),
    ("messages_get_empty_total", ("get_empty",), "Answers of basic.get without a message"),
    ("messages_redelivered_total", ("redeliver",), "Messages delivered that were delivered before"),
    ("messages_acknowledged_total", ("ack",), "Messages acknowledged by consumers"),
)
"""Counters of gateways: name, what is added up, text."""

_CHURN: Final = (
    ("connections_opened_total", "connections_opened", "Connections opened"),
    ("connections_closed_total", "connections_closed", "Connections closed or lost"),
    ("channels_opened_total", "channels_opened", "Channels opened"),
    ("channels_closed_total", "channels_closed", "Channels closed"),
    ("queues_declared_total", "queues_declared", "Queues declared, those that were there already among them"),
)


def write_aggregated(out: Exposition, overview: Row, cluster: str, endpoint: str = AGGREGATED) -> None:
    """Write the broker's metrics.

    Args:
        out: with the prefix "rabbitmq_".
        overview: of all virtual hosts, in detail.
        cluster: the broker's name.
        endpoint: as RabbitMQ names it; at others than AGGREGATED, queues have metrics of their own.
    """
    processes = overview["processes"]
    by_role = {role: [row for row in processes if row["role"] == role] for role in ("gateway", "shard", "coordinator")}
    _write_identity(out, by_role["coordinator"], cluster, endpoint)
    _write_objects(out, overview)
    if endpoint == AGGREGATED:
        _write_messages(out, overview)
    _write_churn(out, by_role)
    _write_global(out, by_role)
    _write_processes(out, processes)
    _write_alarms(out, processes)


def of_process(row: Row, **labels: str) -> str:
    """The label of a process, and more, as they are written."""
    return labelled({"process": row["process"], **labels})


def _write_identity(out: Exposition, coordinators: Sequence[Row], cluster: str, endpoint: str) -> None:
    broker = coordinators[0]["broker"] if coordinators else ""
    build = {
        "rabbitmq_version": RABBITMQ_VERSION,
        "erlang_version": "0",
        "product_name": "shardmq",
        "product_version": VERSION,
        "prometheus_client_version": "0",
        "prometheus_plugin_version": VERSION,
    }
    identity = {
        "rabbitmq_node": cluster,
        "rabbitmq_cluster": cluster,
        "rabbitmq_cluster_permanent_id": broker,
        "rabbitmq_endpoint": endpoint,
    }
    out.family("build_info", "gauge", "What this is, with the version of the interface", [(labelled(build), 1)])
    out.family("identity_info", "gauge", "Which broker this is", [(labelled(identity), 1)])


def _write_objects(out: Exposition, overview: Row) -> None:
    objects = overview["object_totals"]
    for name, text in (
        ("connections", "Connections that are open"),
        ("channels", "Channels that are open"),
        ("consumers", "Consumers that run"),
        ("queues", "Queues that exist"),
        ("exchanges", "Exchanges that exist"),
        ("bindings", "Bindings that exist"),
    ):
        out.one(name, "gauge", text, objects[name])


def _write_messages(out: Exposition, overview: Row) -> None:
    totals = overview["queue_totals"]
    out.one("queue_messages_ready", "gauge", "Messages that wait for a consumer", totals["ready"])
    out.one("queue_messages_unacked", "gauge", "Messages that are not acknowledged yet", totals["unacked"])
    out.one("queue_messages", "gauge", "Messages that are ready or not acknowledged", totals["messages"])


def _write_churn(out: Exposition, by_role: Mapping[str, Sequence[Row]]) -> None:
    for name, counted, text in _CHURN:
        samples = [(of_process(row), row["churn"]["counts"][counted]) for row in by_role["gateway"]]
        out.family(name, "counter", text, samples)
    for name, text in (("queues_created", "Queues created"), ("queues_deleted", "Queues deleted")):
        samples = [(of_process(row), row[name]) for row in by_role["coordinator"]]
        out.family(f"{name}_total", "counter", text, samples)


def _write_global(out: Exposition, by_role: Mapping[str, Sequence[Row]]) -> None:
    gateways = [row for row in by_role["gateway"] if "measures" in row]
    flows = [
        (of_process(row, protocol=PROTOCOLS.get(protocol, protocol)), counts)
        for row in gateways
        for protocol, counts in row["measures"]["protocols"].items()
    ]
    for name, parts, text in _GLOBAL:
        samples = [(labels, sum([counts[part] for part in parts])) for labels, counts in flows]
        out.family(f"global_{name}", "counter", text, samples)
    routed = [(of_process(row), row["measures"]["routed"]) for row in gateways]
    out.family("global_messages_routed_total", "counter", "Messages routed, one for each queue", routed)
    publishers = [(of_process(row), row["measures"]["publishers"]) for row in gateways]
    out.family("global_publishers", "gauge", "Channels that have published", publishers)
    consumers = [(of_process(row), row["consumers"]) for row in gateways]
    out.family("global_consumers", "gauge", "Consumers that run", consumers)
    dead = [(of_process(row), row["dead_lettered"]) for row in by_role["shard"] if "dead_lettered" in row]
    text = "Messages dead-lettered, for whichever reason"
    out.family("global_messages_dead_lettered_confirmed_total", "counter", text, dead)
    out.histogram("message_size_bytes", "Sizes of bodies of all messages that were published", _sizes(gateways))


def _sizes(gateways: Sequence[Row]) -> Iterable[tuple[dict[str, str], list[tuple[str, int]], int]]:
    for row in gateways:
        sizes = row["measures"]["message_bytes"]
        buckets = list(zip(SIZE_BOUNDS, sizes["counts"], strict=True))
        yield {"process": row["process"]}, buckets, sizes["sum"]


def _write_processes(out: Exposition, processes: Sequence[Row]) -> None:
    def write(name: str, text: str, samples: list[tuple[str, int | float]]) -> None:
        out.family(name, "gauge", text, samples)

    limited = [row for row in processes if "limits" in row]
    shards = [row for row in limited if "disk_free_bytes" in row]
    counted = [row for row in processes if "open_fds" in row]
    write("process_open_fds", "Files that are open", [(of_process(row), row["open_fds"]) for row in counted])
    write("process_max_fds", "Files that may be open", [(of_process(row), row["max_fds"]) for row in counted])
    rss = [(of_process(row), row["rss_bytes"]) for row in processes]
    write("process_resident_memory_bytes", "Memory that is taken", rss)
    limits = [(of_process(row), row["limits"]["rss_bytes_max"]) for row in limited]
    write("resident_memory_limit_bytes", "Memory above which publishers wait", limits)
    free = [(of_process(row), row["disk_free_bytes"]) for row in shards]
    write("disk_space_available_bytes", "Disk that is free", free)
    least = [(of_process(row), row["limits"]["disk_free_bytes_min"]) for row in shards]
    write("disk_space_available_limit_bytes", "Disk below which publishers wait", least)
    uptime = [(of_process(row), row["uptime_seconds"]) for row in processes]
    write("erlang_uptime_seconds", "Seconds since the process started", uptime)


def _write_alarms(out: Exposition, processes: Sequence[Row]) -> None:
    texts = [text for row in processes for text in row.get("alarms", ())]
    for resource, name in (("memory", "memory_used_watermark"), ("disk", "free_disk_space_watermark")):
        is_on = any(text.startswith(f"{resource} alarm") for text in texts)
        out.one(f"alarms_{name}", "gauge", f"Whether an alarm of {resource} is on", int(is_on))
