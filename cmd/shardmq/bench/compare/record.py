"""Results of `bench compare` and `bench growth` as files, from which the documents' tables and plots are made."""

import datetime
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from shardmq.cmd.bench.compare.comparison import Outcome
from shardmq.cmd.bench.compare.rows import ROWS, Figure
from shardmq.version import VERSION

TITLE: Final = "Every workload beside RabbitMQ"

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
    known: dict[str, Any] = msgspec.json.decode(path.read_bytes()) if path.exists() else {}
    rows = {row["id"]: row for row in known.get("rows", [])}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    for outcome in outcomes:
        rows[row_id(outcome.row, outcome.figure)] = {
            **empty_row(outcome.row, outcome.figure),
            **msgspec.to_builtins(outcome),
            "recorded": today,
        }
    ids = [(name, figure.name) for name, row in ROWS.items() for figure in row.figures]
    peer = next((name for name in settings["brokers"] if name.startswith("RabbitMQ")), None)
    versions = {"shardmq": VERSION, "python": platform.python_version()}
    result = {
        **known,
        "title": TITLE,
        "recorded": today,
        "command": "shardmq bench compare --record docs/benchmarks/results/compare.json",
        "machine": where,
        "versions": {**versions, **({"rabbitmq": peer.removeprefix("RabbitMQ ")} if peer else {})},
        "settings": {**settings, "message_bytes": 100, "persistent": True, "prefetch": 1000, "ack_every": 100},
        "peer_settings": PEER_SETTINGS,
        "statistic": STATISTIC,
        "kept": "every turn's figures",
        "rows": [rows.get(row_id(*key)) or empty_row(*key) for key in ids],
    }
    write(path, result)


def row_id(row: str, figure: str) -> str:
    """The name of a figure in the file."""
    return row if len(ROWS[row].figures) == 1 else f"{row}.{figure}"


def empty_row(row: str, figure: str) -> dict[str, Any]:
    """A figure that was not measured yet."""
    return {
        "id": row_id(row, figure),
        "row": row,
        "figure": figure,
        "text": ROWS[row].text,
        "unit": Figure(figure).unit,
        "shardmq": None,
        "rabbitmq": None,
        "ratio": None,
        "goals": [],
        "recorded": None,
    }


def write(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result for people to read and for `make figures`."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")


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
