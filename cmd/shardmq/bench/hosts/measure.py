"""The figures of `bench hosts` over the turns."""

import statistics
from collections.abc import Callable, Iterator

import msgspec

from shardmq.cmd.bench.compare.comparison import rounded
from shardmq.cmd.bench.compare.load import Figures
from shardmq.cmd.bench.hosts.rows import BROKERS, ROWS, TWO, Row
from shardmq.errors import ShardmqError


class Found(msgspec.Struct, frozen=True):
    """A row's figure of one broker.

    Attributes:
        median: of the turns.
        worst: of the turns.
        turns: all of them.
    """

    median: float
    worst: float
    turns: tuple[float, ...]


class Turns:
    """What was measured, by load or fault and by broker.

    Attributes:
        failures: why there are no figures.
    """

    def __init__(self) -> None:
        self.failures: dict[tuple[str, str], str] = {}
        self._measured: dict[tuple[str, str], list[Figures]] = {}

    def attempt(self, run: str, broker: str, measure: Callable[[], Figures], counts: bool = True) -> Figures | None:
        """Measure once, unless it failed before."""
        if (run, broker) in self.failures:
            return None
        try:
            figures = measure()
        except ShardmqError as fault:
            self.failures[run, broker] = f"{run}, {BROKERS[broker]}: {fault.text}"
            return None
        if counts:
            self._measured.setdefault((run, broker), []).append(figures)
        return figures

    def found(self, row: Row, broker: str) -> Found | None:
        """A row's figure of one broker; None where it was not measured."""
        turns = self._measured.get((row.run, broker))
        if not turns:
            return None
        numbers = tuple(rounded(turn[row.figure]) for turn in turns)
        worst = max(numbers) if row.is_less_better else min(numbers)
        return Found(rounded(statistics.median(numbers)), worst, numbers)

    def is_met(self, row: Row) -> bool | None:
        """Whether a row's goal was reached; None where it has none, or was not measured."""
        found, base = self.found(row, TWO), self.found(row, row.of) if row.of else None
        if row.goal is None or found is None or (row.of and base is None):
            return None
        figure = found.worst if row.every else found.median
        if base is not None:
            figure /= base.median
        return figure <= row.goal if row.is_less_better else figure >= row.goal

    def rows(self) -> Iterator[dict[str, object]]:
        """All rows of which something was measured, for files and tables."""
        for name, row in ROWS.items():
            found = {broker: self.found(row, broker) for broker in BROKERS}
            if any(each is not None for each in found.values()):
                yield {**empty_row(name), **msgspec.to_builtins(found), "is_met": self.is_met(row)}


def empty_row(name: str) -> dict[str, object]:
    """A row that was not measured yet."""
    row = ROWS[name]
    nothing: dict[str, object] = dict.fromkeys(BROKERS)
    return {"id": name, "text": row.text, "unit": row.unit, "goal": goal_of(row), **nothing, "is_met": None}


def goal_of(row: Row) -> str:
    """A row's goal for people."""
    if row.goal is None:
        return ""
    sign = "≤" if row.is_less_better else "≥"
    worst = "worst " if row.every and row.goal else ""
    return f"{worst}{sign} {row.goal:,g}" + (f" x {BROKERS[row.of]}" if row.of else "")


def said(run: str, figures: Figures) -> str:
    """Figures of a load or fault, for people."""
    rows = [row for row in ROWS.values() if row.run == run]
    return ", ".join(f"{figures[row.figure]:,.4g} {row.unit}" for row in rows)
