"""What `bench scaling` measures, and how it is recorded."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from shardmq.cmd.bench.compare.record import merge, versions
from shardmq.cmd.bench.scaling.usage import ROLES, Seconds

SPARK: Final = "spark"
MESSAGES: Final = "messages"
QUEUES: Final = "queues"
GROUPS: Final = "groups"
COPIES: Final = "copies"
ETCD: Final = "etcd"

TITLES: Final = {
    SPARK: "Spark, as gateways and shards grow",
    MESSAGES: "Messages over AMQP, as gateways and shards grow",
    QUEUES: "The coordinator, as queues grow",
    GROUPS: "The coordinator, as groups grow",
    COPIES: "A shard with one copy and with two, behind etcd and encrypted links",
    ETCD: "Changes of a group in etcd, as processes that hear of them grow",
}

LAYOUTS: Final = ((1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (2, 4))
"""Numbers of gateways and shards."""


class Point(msgspec.Struct, frozen=True):
    """One measurement of a load on a layout.

    Attributes:
        rate: messages or rows a second.
        cpu_us: processor time of all processes of a role for each message, in µs.
        cores: cores that all processes of a role took.
    """

    rate: float
    cpu_us: dict[str, float]
    cores: dict[str, float]


class Scaled(msgspec.Struct, frozen=True):
    """A load on a layout: medians of turns.

    Attributes:
        id: of the row.
        load: what was done.
        gateways: how many there were.
        shards: how many there were.
        rate: messages or rows a second.
        least: the least rate of a turn.
        most: the greatest.
        cpu_us: as in `Point`.
        cores: as in `Point`.
    """

    id: str
    load: str
    gateways: int
    shards: int
    rate: float
    least: float
    most: float
    cpu_us: dict[str, float]
    cores: dict[str, float]


def point(count: int, seconds: float, used: Seconds) -> Point:
    """What so many messages in so many seconds are."""
    return Point(
        round(count / seconds, 1),
        {role: round(used[role] * 1e6 / count, 3) for role in ROLES},
        {role: round(used[role] / seconds, 3) for role in ROLES},
    )


def scaled(load: str, layout: tuple[int, int], points: Sequence[Point]) -> Scaled:
    """The medians of a load's turns on a layout."""
    gateways, shards = layout
    rates = [each.rate for each in points]
    cpu_us = {role: round(statistics.median(each.cpu_us[role] for each in points), 3) for role in ROLES}
    cores = {role: round(statistics.median(each.cores[role] for each in points), 3) for role in ROLES}
    name = f"{load}-{gateways}-{shards}"
    return Scaled(name, load, gateways, shards, statistics.median(rates), min(rates), max(rates), cpu_us, cores)


def empty(kind: type[msgspec.Struct], **known: Any) -> dict[str, Any]:
    """A row that was not measured yet: its place is known, and nothing else."""
    return {**dict.fromkeys(kind.__struct_fields__), **known}


def empty_scaled(*loads: str) -> list[dict[str, Any]]:
    """Rows of loads on all layouts, not measured yet."""
    return [
        empty(Scaled, id=f"{load}-{gateways}-{shards}", load=load, gateways=gateways, shards=shards)
        for load in loads
        for gateways, shards in LAYOUTS
    ]


def record(
    path: Path,
    part: str,
    rows: Sequence[msgspec.Struct],
    all_rows: Sequence[dict[str, Any]],
    settings: dict[str, Any],
    where: dict[str, Any],
) -> None:
    """Write rows into a file; rows of it that were not measured now stay as they are.

    Args:
        path: of the file; it need not exist.
        part: of the command that measures it.
        rows: that were measured.
        all_rows: all that there are, empty.
        settings: of the measurement.
        where: the machine.
    """
    new = [msgspec.to_builtins(row) for row in rows]
    about = {
        "title": TITLES[part],
        "command": f"shardmq bench scaling --part {part} --record docs/benchmarks/results",
        "machine": where,
        "versions": versions(),
        "settings": settings,
        "statistic": "medians of the turns",
        "kept": "medians, least and most",
    }
    merge(path, about, all_rows, new)
