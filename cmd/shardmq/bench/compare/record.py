"""Results of `bench compare` and `bench growth` as files, from which the documents' tables and plots are made."""

import datetime
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from shardmq.cmd.bench.compare.comparison import Outcome, goal_text
from shardmq.cmd.bench.compare.rows import ROWS
from shardmq.cmd.terminal.files import USUAL, write_anew
from shardmq.version import VERSION

TITLE: Final = "Beside RabbitMQ"

STATISTIC: Final = "medians and worst of the turns, both brokers in turns; every message is checked"

PEER_SETTINGS: Final = {
    "rabbitmq": "its default configuration without plugins, classic queues, data on the same disk, started and "
    "stopped by the benchmark; confirms before fsync"
}


def record(path: Path, outcomes: Sequence[Outcome], settings: Mapping[str, Any], where: Mapping[str, Any]) -> None:
    """Write figures into a file. Rows of it that were not measured now stay as they are.

    Args:
        path: of the file; it need not exist.
        outcomes: the figures.
        settings: of the comparison.
        where: the machine that they were measured on.
    """
    new = [{**empty_row(one.row, one.figure), **msgspec.to_builtins(one), "recorded": today()} for one in outcomes]
    peer = next((name for name in settings["brokers"] if name.startswith("RabbitMQ")), None)
    merge(
        path,
        {
            "title": TITLE,
            "command": "shardmq bench compare --record docs/benchmarks/results/compare.json",
            "machine": where,
            "versions": versions() | ({"rabbitmq": peer.removeprefix("RabbitMQ ")} if peer else {}),
            "settings": {**settings, "message_bytes": 100, "persistent": True, "prefetch": 1000, "ack_every": 100},
            "peer_settings": PEER_SETTINGS,
            "statistic": STATISTIC,
            "kept": "every turn's figures",
        },
        [empty_row(name, figure.name) for name, row in ROWS.items() for figure in row.figures],
        new,
    )


def record_growth(
    path: Path,
    series: Mapping[str, Sequence[int]],
    points: Sequence[Any],
    settings: Mapping[str, Any],
    where: Mapping[str, Any],
) -> None:
    """Write the points of `bench growth` into a file. Points of it that were not measured now stay as they are.

    Args:
        path: of the file; it need not exist.
        series: the places of all points, by series.
        points: those that were measured.
        settings: of the measurements.
        where: the machine that they were measured on.
    """
    empty: list[dict[str, Any]] = [
        {"id": f"{along}-{at}", "along": along, "at": at, "cpu_us": None, "of_first": None, "turns": []}
        for along, places in series.items()
        for at in places
    ]
    new = [{"id": f"{point.along}-{point.at}", **msgspec.to_builtins(point), "recorded": today()} for point in points]
    merge(
        path,
        {
            "title": "Processor time for each message, as things grow",
            "command": "shardmq bench growth --record docs/benchmarks/results/growth.json",
            "machine": where,
            "versions": versions(),
            "settings": settings,
            "statistic": "medians of the turns; processor time of all the broker's processes, for each message",
            "kept": "every turn's figures",
        },
        empty,
        new,
    )


def merge(
    path: Path, about: Mapping[str, Any], empty: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]
) -> None:
    """Write a result with all rows: new ones, else those that the file has, else empty ones.

    Args:
        path: of the file.
        about: the result without its rows; what else the file has stays, and so do versions that it does not name.
        empty: all rows, in order.
        new: those that were measured now.
    """
    known: dict[str, Any] = msgspec.json.decode(path.read_bytes()) if path.exists() else {}
    rows = {row["id"]: row for row in (*known.get("rows", ()), *new)}
    all_versions = {**known.get("versions", {}), **about["versions"]}
    result = {
        **known,
        **about,
        "versions": all_versions,
        "recorded": today(),
        "rows": [rows.get(row["id"], row) for row in empty],
    }
    write_anew(path, msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n", USUAL)


def today() -> str:
    """The date, as 2026-11-22."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def versions() -> dict[str, str]:
    """What was measured."""
    return {"shardmq": VERSION, "python": platform.python_version()}


def row_id(row: str, figure: str) -> str:
    """The name of a figure in the file."""
    return row if len(ROWS[row].figures) == 1 else f"{row}.{figure}"


def empty_row(row: str, figure: str) -> dict[str, Any]:
    """A figure that was not measured yet."""
    (declared,) = [one for one in ROWS[row].figures if one.name == figure]
    return {
        "id": row_id(row, figure),
        "row": row,
        "figure": figure,
        "text": ROWS[row].text,
        "unit": declared.unit,
        "shardmq": None,
        "rabbitmq": None,
        "ratio": None,
        "goals": [{"text": goal_text(goal, declared), "measured": None, "is_met": None} for goal in declared.goals],
        "shardmq_cpu_us": None,
        "rabbitmq_cpu_us": None,
        "recorded": None,
    }


def machine(folder: Path) -> dict[str, Any]:
    """What the figures were measured on.

    Args:
        folder: on the disk that was written to.
    """
    cpu = facts("/proc/cpuinfo")
    kind = "virtual machine" if "hypervisor" in cpu.get("flags", "").split() else "machine"
    return {
        "kind": kind,
        "processor": cpu.get("model name", platform.machine()),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(facts("/proc/meminfo")["MemTotal"].split()[0]) / (1 << 20)),
        "file_system": file_system(folder.resolve()),
    }


def facts(path: str) -> dict[str, str]:
    """A file of lines "name: value"; of a name that comes again the first value."""
    found: dict[str, str] = {}
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    return found


def file_system(folder: Path) -> str:
    """The kind of the file system that a folder is on."""
    lines = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    mounts = {Path(fields[1]): fields[2] for fields in lines}
    return next(mounts[place] for place in (folder, *folder.parents) if place in mounts)
