"""Samples from rows of the HTTP API, and samples added to them.

A row has a number as "publish" and what belongs to it as "publish_details": {"rate": …}, in a table of the row or in
the row itself. There, samples, their mean and their mean rate are added.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from shardmq.management.samples.series import Series
from shardmq.management.samples.spans import Spans

Row = dict[str, Any]


class Column(NamedTuple):
    """A number of a row.

    Attributes:
        group: of samples, which requests name.
        table: of the row; "" for the row itself.
        name: of the number.
    """

    group: str
    table: str
    name: str


def _columns(group: str, table: str, *names: str) -> tuple[Column, ...]:
    return tuple(Column(group, table, name) for name in names)


DEPTHS: Final = ("messages", "messages_ready", "messages_unacknowledged")

FLOW: Final = (
    *("publish", "deliver", "deliver_no_ack", "get", "get_no_ack", "get_empty"),
    *("ack", "redeliver", "deliver_get"),
)

OF_CHANNELS: Final = (*FLOW, "confirm", "return_unroutable", "drop_unroutable")

COLUMNS: Final[Mapping[str, tuple[Column, ...]]] = {
    "overview": (
        *_columns("lengths", "queue_totals", *DEPTHS),
        *_columns("msg_rates", "message_stats", *OF_CHANNELS),
        *_columns("msg_rates", "churn_rates", "connection_created", "connection_closed"),
        *_columns("msg_rates", "churn_rates", "channel_created", "channel_closed"),
        *_columns("msg_rates", "churn_rates", "queue_declared", "queue_created", "queue_deleted"),
    ),
    "nodes": _columns("node_stats", "", "mem_used", "disk_free", "fd_used", "sockets_used", "proc_used", "run_queue"),
    "vhosts": (*_columns("lengths", "", *DEPTHS), *_columns("msg_rates", "message_stats", *OF_CHANNELS)),
    "queues": (*_columns("lengths", "", *DEPTHS), *_columns("msg_rates", "message_stats", *FLOW)),
    "exchanges": _columns("msg_rates", "message_stats", "publish_in", "publish_out"),
    "connections": _columns("data_rates", "", "recv_oct", "send_oct"),
    "channels": (
        *_columns("lengths", "", "messages_unacknowledged"),
        *_columns("msg_rates", "message_stats", *OF_CHANNELS),
    ),
}
"""What is kept of each kind of row."""


def values_of(noun: str, row: Row) -> list[float]:
    """The numbers of a row, in the order of its columns; NaN where one is not known."""
    found = []
    for _, table, name in COLUMNS[noun]:
        value = (row.get(table) or {} if table else row).get(name)
        found.append(math.nan if value is None else float(value))
    return found


def add_samples(noun: str, row: Row, series: Sequence[Series], spans: Spans, now: float) -> None:
    """Add samples to a row's details: those of one series, or the sums of several.

    Args:
        noun: of the kind of row.
        row: is changed.
        series: what was kept; of another kind of row, where its columns begin as those of this kind.
        spans: which samples are asked for.
        now: seconds since 1970.
    """
    for group, span in spans.items():
        columns = [(place, column) for place, column in enumerate(COLUMNS[noun]) if column.group == group]
        if not columns:
            continue
        moments = span.moments(now)
        found = [each.at(moments) for each in series]
        for place, (_, table, name) in columns:
            inside = row.get(table) if table else row
            if not isinstance(inside, dict) or name not in inside:
                continue
            points = _points(moments, found, place)
            means = _means(points)
            details = inside.setdefault(f"{name}_details", {"rate": means["avg_rate"]})
            details["samples"] = [{"sample": value, "timestamp": 1000 * moment} for moment, value in points]
            details |= means


def _points(
    moments: Sequence[int], found: Sequence[Sequence[tuple[float, ...] | None]], place: int
) -> list[tuple[int, int]]:
    """One column's samples, the newest first; moments that nobody counted are left out."""
    points = []
    for number, moment in enumerate(moments):
        rows = [row for each in found if (row := each[number]) is not None and place < len(row)]
        values = [row[place] for row in rows if not math.isnan(row[place])]
        if values:
            points.append((moment, round(sum(values))))
    return points


def _means(points: Sequence[tuple[int, int]]) -> Row:
    """The mean of samples, and the mean rate from the oldest to the newest."""
    if not points:
        return {"avg": 0.0, "avg_rate": 0.0}
    (last, newest), (first, oldest) = points[0], points[-1]
    rate = (newest - oldest) / (last - first) if last > first else 0.0
    return {"avg": sum(value for _, value in points) / len(points), "avg_rate": rate}
