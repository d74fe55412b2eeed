"""Metrics of hosts and replicas, of a broker on several hosts. RabbitMQ has none of these."""

from collections.abc import Mapping
from typing import Any, Final

from shardmq.management.metrics.exposition import Exposition, Value, labelled

Row = Mapping[str, Any]

UP: Final = ("up", "draining", "stopping")
"""States of hosts of which something answers."""

_LAGS: Final = (
    ("records", "replica_lag_records", "Records that a follower does not have on its disk yet"),
    ("bytes", "replica_lag_bytes", "Bytes that a follower has yet to read"),
    ("seconds", "replica_lag_seconds", "For how long the oldest record that a follower lacks has been there"),
)
"""Field of a follower, name, text."""


def write_replicas(out: Exposition, overview: Row) -> None:
    """Write metrics of hosts and of the replicas of shards and coordinator; none in a broker on one host.

    Args:
        out: with the prefix "shardmq_".
        overview: of all virtual hosts, in detail.
    """
    if "hosts" not in overview:
        return
    hosts, groups = overview["hosts"], overview["groups"]
    is_up = [(labelled({"host": row["host"]}), int(row["state"] in UP)) for row in hosts if row["state"] != "unknown"]
    out.family("host_up", "gauge", "Whether something of a host answers", is_up)
    for name, text, value in (
        ("replicas", "Replicas that a group has", lambda row: len(row["replicas"])),
        ("replicas_in_sync", "Replicas of a group that are in sync", lambda row: len(row["in_sync"])),
        ("replicas_in_sync_min", "With fewer in sync, publishes are refused", lambda row: row["min_in_sync"]),
        ("replica_term", "The term of a group: each primary has a higher one", lambda row: row["term"]),
    ):
        out.family(name, "gauge", text, [(_label(row), value(row)) for row in groups])
    replicas = [(row, host) for row in groups for host in row["replicas"]]
    leads = [(_label(row, host), int(host == row["primary"])) for row, host in replicas]
    out.family("replica_is_primary", "gauge", "Whether a replica leads its group", leads)
    in_sync = [(_label(row, host), int(host in row["in_sync"])) for row, host in replicas]
    out.family("replica_is_in_sync", "gauge", "Whether a replica holds all that was confirmed", in_sync)
    for field, name, text in _LAGS:
        samples: list[tuple[str, Value]] = [
            (_label(row, follower["host"]), follower[field])
            for row in groups
            for follower in row["followers"]
            if follower[field] is not None
        ]
        out.family(name, "gauge", text, samples)


def _label(row: Row, host: str = "") -> str:
    """The labels of a group, or of one of its replicas."""
    return labelled({"process": row["group"], **({"host": host} if host else {})})
