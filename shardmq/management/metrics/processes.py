"""Metrics of the broker's processes, which RabbitMQ does not have."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from shardmq.management.findings.finding import KNOWN
from shardmq.management.metrics.aggregated import of_process
from shardmq.management.metrics.exposition import Exposition, labelled, time_buckets

Row = Mapping[str, Any]

_TIMES: Final = (
    ("confirm_seconds", "From sending record batches to a shard until it confirmed them"),
    ("delivery_seconds", "From a publish until its delivery to a client, one message each pass"),
    ("loop_seconds", "By how much ticks of the gateway's loop were late"),
    ("pass_seconds", "How long passes of a shard took in which something came"),
    ("commit_seconds", "How long commits took"),
    ("flush_seconds", "How long it took to have entries of the redo log on disk"),
)
"""Histograms: name, text."""

_COUNTERS: Final = (
    ("passes", "passes_total", "Passes"),
    ("events", "pass_events_total", "What came in passes of a shard"),
    ("bytes_in", "received_bytes_total", "Bytes from clients"),
    ("bytes_out", "sent_bytes_total", "Bytes to clients"),
)

_GAUGES: Final = (
    ("staged_bytes", "staged_bytes", "Messages staged in transactions that are not decided"),
    ("segments", "segments", "Segments of messages"),
    ("delayed", "delayed_messages", "Delayed messages"),
)

_STORE: Final = (
    ("file_bytes", "store_file_bytes", "Bytes of the store's file"),
    ("used_bytes", "store_used_bytes", "Bytes of it that hold something"),
    ("free_bytes", "store_free_bytes", "Bytes of it that hold nothing"),
)


def write_processes(out: Exposition, overview: Row, groups: Sequence[Row]) -> None:
    """Write metrics of processes and of consumer groups.

    Args:
        out: with the prefix "shardmq_".
        overview: of all virtual hosts, in detail.
        groups: of consumers, as lists show them.
    """
    processes = overview["processes"]
    measured = [row for row in processes if "measures" in row]
    for name, text in _TIMES:
        samples = [
            ({"process": row["process"]}, time_buckets(times["counts"]), times["sum"])
            for row in measured
            if (times := row["measures"].get(name)) is not None
        ]
        out.histogram(name, text, samples)
    for key, name, text in _COUNTERS:
        found = [(of_process(row), row["measures"][key]) for row in measured if key in row["measures"]]
        out.family(name, "counter", text, found)
    cpu = [(of_process(row), row["cpu_seconds"]) for row in processes]
    out.family("process_cpu_seconds_total", "counter", "Processor time", cpu)
    for key, name, text in _GAUGES:
        out.family(name, "gauge", text, [(of_process(row), row[key]) for row in processes if key in row])
    for key, name, text in _STORE:
        found = [(of_process(row), row["store"][key]) for row in processes if "store" in row]
        out.family(name, "gauge", text, found)
    out.family(
        "queues_out_of_service",
        "gauge",
        "Queues of which something stored is damaged",
        [(of_process(row), len(row["damaged"])) for row in processes if "damaged" in row],
    )
    out.one("shards_away", "gauge", "Shards that the gateway that was asked cannot reach", len(overview["away"]))
    lags = [
        (labelled({"vhost": row["vhost"], "topic": row["topic"], "group": row["group"]}), row["lag"])
        for row in groups
        if row["lag"] is not None
    ]
    out.family("group_lag_messages", "gauge", "Messages that a group has still to read", lags)


def write_findings(out: Exposition, found: Sequence[Row]) -> None:
    """Write how much is wrong, by rule; rules that find nothing have 0, so that alerts end.

    Args:
        out: with the prefix "shardmq_".
        found: rows of findings.
    """
    counts = Counter((row["rule"], row["severity"]) for row in found)
    samples = [
        (labelled({"rule": rule, "severity": severity}), counts[rule, severity])
        for rule, severities in KNOWN.items()
        for severity in severities
    ]
    out.family("findings", "gauge", "What is wrong, of what the user may see, by rule", samples)
