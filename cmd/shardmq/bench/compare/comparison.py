"""The measurements of `bench compare`, turn by turn, and the figures that they make."""

import math
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from shardmq.cmd.bench.compare.load import Contestant, Figures, run_load
from shardmq.cmd.bench.compare.rows import RABBITMQ, ROWS, Figure, Goal
from shardmq.errors import ShardmqError

MESSAGES_MAX: Final = 5_000_000
"""Most messages in one measurement: a queue that holds them all must fit on the disk."""


class Turns(msgspec.Struct, frozen=True):
    """A figure over the turns.

    Attributes:
        median: of the turns.
        worst: the least, or the greatest where less is better.
        turns: all of them.
    """

    median: float
    worst: float
    turns: tuple[float, ...]


class Result(msgspec.Struct, frozen=True):
    """What became of a goal.

    Attributes:
        text: the goal for people.
        measured: the figure, divided as the goal says; None where what it is divided by was not measured.
        is_met: whether it was reached.
    """

    text: str
    measured: float | None
    is_met: bool | None


class Outcome(msgspec.Struct, frozen=True):
    """A figure of a row. Where RabbitMQ was not measured there is no ratio.

    Attributes:
        row: name of the row.
        figure: name of the figure.
        text: description of the row.
        unit: of the figure.
        shardmq: the figure.
        rabbitmq: the same.
        ratio: shardmq's by RabbitMQ's, turn by turn.
        goals: what it is to reach.
        shardmq_cpu_us: median processor time of the broker for each message of this row, in µs.
        rabbitmq_cpu_us: the same.
    """

    row: str
    figure: str
    text: str
    unit: str
    shardmq: Turns
    rabbitmq: Turns | None
    ratio: Turns | None
    goals: tuple[Result, ...]
    shardmq_cpu_us: float
    rabbitmq_cpu_us: float | None


class Limits(msgspec.Struct, frozen=True):
    """How much is measured.

    Attributes:
        turns: turns that count; one more comes first, to warm up and to find the numbers of messages.
        seconds: target time of one measurement.
        messages: messages of each measurement; None for as many as take `seconds`.
        timeout: seconds after which a measurement is given up.
    """

    turns: int
    seconds: float
    messages: int | None
    timeout: float


class Comparison:
    """All measurements of one comparison.

    Args:
        programs: the command that makes a row's loads, by row and program.
        contestants: shardmq first.
        limits: how much is measured.

    Attributes:
        failures: why rows have no figures, by row.
    """

    def __init__(
        self, programs: Mapping[str, Mapping[str, Sequence[str]]], contestants: Sequence[Contestant], limits: Limits
    ) -> None:
        self.failures: dict[str, str] = {}
        self._programs = programs
        self._limits = limits
        self._loads = {
            (name, who): load
            for name in programs
            for who, load in zip(contestants, (ROWS[name].ours, ROWS[name].theirs), strict=False)
            if load is not None
        }
        self._next = {key: load.first for key, load in self._loads.items()}
        self._measured: dict[tuple[str, Contestant], list[Figures]] = {key: [] for key in self._loads}
        self._contestants = contestants

    @property
    def steps(self) -> int:
        """How many measurements there are."""
        return len(self._loads) * (self._limits.turns + 1)

    def run(self) -> Iterator[tuple[int, str, Contestant, Callable[[], Figures | None]]]:
        """Yield each measurement as (turn, row, broker, function that measures); the first broker alternates."""
        for turn in range(self._limits.turns + 1):
            for place, name in enumerate(self._programs):
                order = self._contestants if (turn + place) % 2 else self._contestants[::-1]
                for who in order:
                    if (name, who) in self._loads:
                        yield turn, name, who, partial(self._measure, name, who, turn > 0)

    def _measure(self, name: str, who: Contestant, counts: bool) -> Figures | None:
        if name in self.failures:
            return None
        load, limits = self._loads[name, who], self._limits
        messages = max(limits.messages or self._next[name, who], load.least)
        before = cpu_seconds(who.pids)
        try:
            figures = run_load(self._programs[name][load.program], load, who, messages, limits.timeout)
        except ShardmqError as fault:
            self.failures[name] = f"{name}, {who.name}: {fault.text}"
            return None
        figures.setdefault("cpu_us", (cpu_seconds(who.pids) - before) * 1e6 / messages)
        if not load.is_fixed:
            self._next[name, who] = enough(messages, figures["seconds"], limits.seconds)
        if counts:
            self._measured[name, who].append(figures)
        return figures

    def outcomes(self) -> list[Outcome]:
        """The figures of all rows, once everything is measured."""
        measured = {
            name: [self._measured[name, who] for who in self._contestants if (name, who) in self._loads]
            for name in self._programs
            if name not in self.failures
        }
        return [outcome(name, figure, measured) for name in measured for figure in ROWS[name].figures]


def cpu_seconds(pids: Sequence[int]) -> float:
    """Processor time of processes in user and kernel mode, in seconds (proc_pid_stat(5))."""
    seconds = 0.0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


def enough(messages: int, took: float, seconds: float) -> int:
    """The number of messages that take `seconds` where so many took this time, rounded to two digits."""
    wanted = messages * seconds / max(took, 1e-9)
    digits = 1 - math.floor(math.log10(wanted)) if wanted >= 1 else 0
    return max(1, min(MESSAGES_MAX, round(round(wanted, digits))))


def outcome(name: str, figure: Figure, measured: Mapping[str, Sequence[Sequence[Figures]]]) -> Outcome:
    """A figure of a row.

    Args:
        name: of the row.
        figure: of the row.
        measured: what was measured of all rows: shardmq's turns, and RabbitMQ's where it was measured.
    """
    ours, *others = [over_turns(figure, [turn[figure.name] for turn in turns]) for turns in measured[name]]
    theirs = others[0] if others else None
    ratio = (
        over_turns(figure, [a / max(b, 1e-9) for a, b in zip(ours.turns, theirs.turns, strict=True)])
        if theirs
        else None
    )
    our_us, *their_us = [statistics.median(turn["cpu_us"] for turn in turns) for turns in measured[name]]
    return Outcome(
        name,
        figure.name,
        ROWS[name].text,
        figure.unit,
        ours,
        theirs,
        ratio,
        tuple(result(goal, figure, ours, ratio, measured) for goal in figure.goals),
        rounded(our_us),
        rounded(their_us[0]) if their_us else None,
    )


def over_turns(figure: Figure, numbers: Sequence[float]) -> Turns:
    """The median and the worst of the turns."""
    worst = max(numbers) if figure.is_less_better else min(numbers)
    return Turns(rounded(statistics.median(numbers)), rounded(worst), tuple(map(rounded, numbers)))


def result(
    goal: Goal,
    figure: Figure,
    ours: Turns,
    ratio: Turns | None,
    measured: Mapping[str, Sequence[Sequence[Figures]]],
) -> Result:
    """What became of a goal."""
    found: Turns | None = ours
    if goal.of == RABBITMQ:
        found = ratio
    elif goal.of:
        turns = measured.get(goal.of)
        base = statistics.median(turn[figure.name] for turn in turns[0]) if turns else None
        found = over_turns(figure, [number / base for number in ours.turns]) if base else None
    if found is None:
        return Result(goal_text(goal, figure), None, None)
    number = found.worst if goal.every else found.median
    is_met = number <= goal.bound if figure.is_less_better else number >= goal.bound
    return Result(goal_text(goal, figure), rounded(number), is_met)


def goal_text(goal: Goal, figure: Figure) -> str:
    """A goal for people: "≥ 6 x", "worst ≥ 4 x", "≥ 0.7 x both", "≤ 20 ms"."""
    sign = "≤" if figure.is_less_better else "≥"
    ending = "" if not goal.of else " x" if goal.of == RABBITMQ else f" x {goal.of}"
    worst = "worst " if goal.every else ""
    return f"{worst}{sign} {goal.bound:,g}{ending}" if goal.bound < 1e6 else f"{worst}{sign} {goal.bound:,.0f}{ending}"


def rounded(number: float) -> float:
    """Four digits: more is noise."""
    return float(f"{number:.4g}")
