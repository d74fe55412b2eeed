"""The rows of `bench compare`: what is measured, in which order, and the medians."""

import math
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from shardmq.cmd.bench.compare.load import Load, Rates, run_load
from shardmq.errors import ShardmqError

MESSAGES_MAX: Final = 5_000_000
"""Most messages in one measurement: a queue that holds them all must fit on the disk."""


class Figure(msgspec.Struct, frozen=True):
    """A rate that is measured for a row.

    Attributes:
        rate: publish, consume or end_to_end, as in `Rates`.
        asked: the least ratio to RabbitMQ's rate that is asked for; None where none is.
    """

    rate: str
    asked: float | None


class Row(msgspec.Struct, frozen=True):
    """One load, measured on each broker in each round.

    Attributes:
        text: description for people.
        load: the load.
        first: messages of the first measurement; the numbers of the others follow from its rate.
        figures: the rates that are shown.
    """

    text: str
    load: Load
    first: int
    figures: tuple[Figure, ...]


ROWS: Final = {
    "both": Row("both at once", Load("both"), 20_000, (Figure("end_to_end", 3.0),)),
    "seq": Row("by itself", Load("seq"), 20_000, (Figure("publish", 3.0), Figure("consume", 2.0))),
    "window-1": Row("publish, window 1", Load("seq", window=1), 500, (Figure("publish", 0.8),)),
    "1-kb": Row("both at once, 1 KB", Load("both", size=1024), 20_000, (Figure("end_to_end", 3.0),)),
    "distinct": Row(
        "20 queues, distinct",
        Load("each", window=100, connections=20),
        20_000,
        (Figure("end_to_end", 1.2),),
    ),
    "pika": Row("pika, confirmed", Load("confirmed"), 500, (Figure("publish", None),)),
    "pika-unconfirmed": Row("pika, unconfirmed", Load("unconfirmed"), 5_000, (Figure("publish", None),)),
}
"""All rows, by name; with 100-byte persistent messages and confirms, unless the text says otherwise."""


class Contestant(msgspec.Struct, frozen=True):
    """A broker that is measured.

    Attributes:
        name: for people.
        port: of AMQP.
        pids: its processes.
    """

    name: str
    port: int
    pids: tuple[int, ...] = ()

    def cpu_seconds(self) -> float:
        """Processor time of its processes, in seconds."""
        return sum(map(cpu_seconds, self.pids))


def cpu_seconds(pid: int) -> float:
    """Processor time of a process in user and kernel mode, in seconds (proc_pid_stat(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Measured(msgspec.Struct, frozen=True):
    """One measurement: the rates, and the broker's processor time for each message in µs."""

    rates: Rates
    cpu_us: float


class Outcome(msgspec.Struct, frozen=True):
    """A figure of a row. Without RabbitMQ there are no ratios.

    Attributes:
        row: name of the row.
        text: description of the row.
        figure: publish, consume or end_to_end.
        shardmq_msgs_per_s: median of the rounds.
        rabbitmq_msgs_per_s: the same.
        ratio: median of the rounds' ratios.
        ratio_min: the least of them.
        ratio_max: the greatest.
        asked: what the ratio is to be.
        shardmq_cpu_us: median processor time of the broker for each message of this row, in µs.
        rabbitmq_cpu_us: the same.
    """

    row: str
    text: str
    figure: str
    shardmq_msgs_per_s: float
    rabbitmq_msgs_per_s: float | None
    ratio: float | None
    ratio_min: float | None
    ratio_max: float | None
    asked: float | None
    shardmq_cpu_us: float
    rabbitmq_cpu_us: float | None


class Comparison:
    """All measurements of one comparison.

    Args:
        names: of rows.
        contestants: shardmq first.
        programs: the command that makes a row's load, by name of the row.
        rounds: rounds that count; one more comes first, to warm up and to find the numbers of messages.
        seconds: target time of one measurement; two rates of one row share it.
        messages: messages of each measurement; None for as many as take `seconds`.
        timeout: seconds after which a measurement is given up.
    """

    def __init__(
        self,
        names: Sequence[str],
        contestants: Sequence[Contestant],
        programs: Mapping[str, Sequence[str]],
        *,
        rounds: int,
        seconds: float,
        messages: int | None,
        timeout: float,
    ) -> None:
        self._names = names
        self._contestants = contestants
        self._programs = programs
        self._rounds = rounds
        self._seconds = seconds
        self._messages = messages
        self._timeout = timeout
        self._next = {(name, who): ROWS[name].first for name in names for who in contestants}
        self._measured: dict[tuple[str, Contestant], list[Measured]] = {key: [] for key in self._next}

    @property
    def steps(self) -> int:
        """How many measurements there are."""
        return len(self._next) * (self._rounds + 1)

    def run(self) -> Iterator[tuple[int, str, Contestant, Callable[[], Rates]]]:
        """Yield each measurement as (round, row, broker, function that measures); the first broker alternates."""
        for turn in range(self._rounds + 1):
            for place, name in enumerate(self._names):
                order = self._contestants if (turn + place) % 2 else self._contestants[::-1]
                for who in order:
                    yield turn, name, who, partial(self._measure, name, who, turn > 0)

    def _measure(self, name: str, who: Contestant, counts: bool) -> Rates:
        load = ROWS[name].load
        messages = max(self._messages or self._next[name, who], load.connections)
        before = who.cpu_seconds()
        try:
            rates = run_load(self._programs[name], load, who.port, messages, self._timeout)
        except ShardmqError as fault:
            raise ShardmqError(f"{name}, {who.name}: {fault.text}") from fault
        self._next[name, who] = enough(load, rates, self._seconds)
        if counts:
            self._measured[name, who].append(Measured(rates, (who.cpu_seconds() - before) * 1e6 / messages))
        return rates

    def outcomes(self) -> list[Outcome]:
        """The figures of all rows, once everything is measured."""
        return [
            outcome(name, figure, [self._measured[name, who] for who in self._contestants])
            for name in self._names
            for figure in ROWS[name].figures
        ]


def rate_of(rates: Rates, figure: Figure) -> float:
    """The rate that a figure shows."""
    rate = getattr(rates, f"{figure.rate}_msgs_per_s")
    assert isinstance(rate, float)
    return rate


def enough(load: Load, rates: Rates, seconds: float) -> int:
    """The number of messages that take `seconds` at these rates, rounded to two digits."""
    if load.mode == "seq":
        each = 1 / rates.publish_msgs_per_s + 1 / rates.consume_msgs_per_s
    else:
        each = 1 / (rates.end_to_end_msgs_per_s or rates.publish_msgs_per_s)
    messages = seconds / each
    digits = 1 - math.floor(math.log10(messages)) if messages >= 1 else 0
    return max(1, min(MESSAGES_MAX, round(round(messages, digits))))


def outcome(name: str, figure: Figure, measured: Sequence[Sequence[Measured]]) -> Outcome:
    """The medians of a figure, of shardmq and of RabbitMQ where it was measured."""
    rates = [[rate_of(one.rates, figure) for one in rounds] for rounds in measured]
    ours, theirs = medians(rates)
    ours_us, theirs_us = medians([[one.cpu_us for one in rounds] for rounds in measured])
    ratios = [mine / other for mine, other in zip(*rates, strict=True)] if theirs else []
    return Outcome(
        name,
        ROWS[name].text,
        figure.rate,
        ours,
        theirs,
        round(statistics.median(ratios), 3) if ratios else None,
        round(min(ratios), 3) if ratios else None,
        round(max(ratios), 3) if ratios else None,
        figure.asked,
        ours_us,
        theirs_us,
    )


def medians(of: Sequence[Sequence[float]]) -> tuple[float, float | None]:
    """The median of shardmq's numbers, and of RabbitMQ's where there are some."""
    ours, *theirs = [round(statistics.median(numbers), 1) for numbers in of]
    return ours, theirs[0] if theirs else None
