"""What `bench queues` and `bench delays` write into a file of results."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from shardmq.cmd.bench.compare.record import machine, merge, today, versions

IDS: Final = (
    *("queues_memory", "queues_declared", "connections_memory", "connections_opened"),
    *("delays", "delays_killed", "delays_memory"),
)
"""Rows of the file, in order."""

AT_ONCE: Final = 64
"""Requests of one connection that are under way at the same time, where many queues are declared."""


def of_queues(figures: Mapping[str, Any], queues: int, connections: int) -> list[dict[str, str]]:
    """The rows of `bench queues`.

    Args:
        figures: as it prints them.
        queues: how many there were.
        connections: how many there were.
    """
    queue, connection = figures["bytes_per_queue"], figures["bytes_per_connection"]
    roles = ", ".join(f"{role} {queue[role] / 1000:.1f}" for role in ("shard", "coordinator", "gateway"))
    rows = [
        row(
            "queues_memory",
            f"`bench queues`: {queues:,} durable queues, memory of all processes for each",
            f"{queue['all'] / 1000:.1f} kB ({roles})",
        ),
        row(
            "queues_declared",
            f"— declared, {AT_ONCE} under way / one after the other",
            f"{figures['declare_per_s']:,.0f}/s / {figures['declare_one_by_one_per_s']:,.0f}/s",
        ),
    ]
    if not connections:
        return rows
    what = f"{connections:,} connections beside them, one channel each: memory for each"
    memory = f"{connection['all'] / 1000:.1f} kB (gateway {connection['gateway'] / 1000:.1f})"
    opened = row("connections_opened", "— opened", f"{figures['connect_per_s']:,.0f}/s")
    return [*rows, row("connections_memory", what, memory), opened]


def of_delays(figures: Mapping[str, Any]) -> list[dict[str, str]]:
    """The rows of `bench delays`: of a run without kills what is late, of one with `--kill` the memory, too.

    Args:
        figures: as it prints them.
    """
    late = " / ".join(f"{figures['late_ms'][name]:.1f}" for name in ("p50", "p99", "max")) + " ms"
    messages, spread = figures["settings"]["messages"], figures["settings"]["spread"]
    if not figures["settings"]["kill"]:
        what = (
            f"`bench delays`: {messages:,} delayed messages, due within {spread:.0f} s: later than due, p50 / p99 / max"
        )
        return [row("delays", what, late)]
    shards = figures["shards_rss_bytes"]
    holder = max(shards["pending"], key=shards["pending"].__getitem__)
    memory = " / ".join(f"{shards[moment][holder] / 1e6:.0f}" for moment in ("pending", "after_kill"))
    return [
        row("delays_killed", "— the same, all shards killed while they wait", late),
        row(
            "delays_memory",
            "— memory of the shard that has them, pending / after a kill, still pending",
            f"{memory} MB",
        ),
    ]


def row(name: str, what: str, measured: str) -> dict[str, str]:
    """A row of the file."""
    return {"id": name, "what": what, "measured": measured, "recorded": today()}


def record(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows into a file; those of it that were not measured now stay.

    Args:
        path: of the file; it need not exist.
        rows: of `of_queues` or `of_delays`.
    """
    about = {
        "title": "Many queues, connections and delayed messages",
        "command": "shardmq bench queues; shardmq bench delays; shardmq bench delays --kill",
        "machine": machine(path.resolve().parent),
        "versions": versions(),
        "settings": {},
        "statistic": "as measured",
        "kept": "the figures alone",
    }
    empty = [{"id": name, "what": name, "measured": "not yet measured", "recorded": None} for name in IDS]
    merge(path, about, empty, rows)
