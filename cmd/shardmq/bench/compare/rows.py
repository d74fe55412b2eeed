"""What `bench compare` measures, row by row, and how its rounds are gone through and summed up."""

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
"""In one measurement, however fast it goes: a queue that holds them all must fit on the disk."""


class Figure(msgspec.Struct, frozen=True):
    """One of the rates a row is measured for.

    Attributes:
        rate: publish, consume or end_to_end, as in `Rates`.
        asked: what it is to be, in times of RabbitMQ's; None where nothing is asked.
    """

    rate: str
    asked: float | None


class Row(msgspec.Struct, frozen=True):
    """One load, measured on each broker in each round.

    Attributes:
        text: what it is.
        load: what is done.
        first: messages of its first measurement, from which is reckoned how many the others need.
        figures: what is shown.
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
"""What can be measured, by name. 100-byte persistent messages with confirms, unless they say otherwise."""


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
        """What its processes have had of the processors."""
        return sum(map(cpu_seconds, self.pids))


def cpu_seconds(pid: int) -> float:
    """What a process has had of the processors, in user and kernel mode (proc_pid_stat(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Measured(msgspec.Struct, frozen=True):
    """What one measurement found: the load's rates, and µs of processor time the broker took for each message."""

    rates: Rates
    cpu_us: float


class Outcome(msgspec.Struct, frozen=True):
    """What a row's figure is. Without RabbitMQ there are no ratios.

    Attributes:
        row: its name.
        text: what it is.
        figure: of what: publish, consume or end_to_end.
        shardmq_msgs_per_s: median of the rounds.
        rabbitmq_msgs_per_s: the same.
        ratio: median of the rounds' ratios.
        ratio_min: the least of them.
        ratio_max: the greatest.
        asked: what the ratio is to be.
        shardmq_cpu_us: processor time the broker takes for a message on all its ways of this row; median.
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
        rounds: that count; one more goes before them, to warm up and to reckon how many messages are needed.
        seconds: one measurement is to take; two rates of one row share them.
        messages: in each measurement, whatever time that takes; None: as many as take `seconds`.
        timeout: seconds one measurement may take.
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
        """Each measurement in turn: (round, row, broker, what makes it). Who is first in a row alternates."""
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
        """The figures of all rows, when all is measured."""
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
    """How many messages take so long at these rates, to two digits."""
    if load.mode == "seq":
        each = 1 / rates.publish_msgs_per_s + 1 / rates.consume_msgs_per_s
    else:
        each = 1 / (rates.end_to_end_msgs_per_s or rates.publish_msgs_per_s)
    messages = seconds / each
    digits = 1 - math.floor(math.log10(messages)) if messages >= 1 else 0
    return max(1, min(MESSAGES_MAX, round(round(messages, digits))))


def outcome(name: str, figure: Figure, measured: Sequence[Sequence[Measured]]) -> Outcome:
    """The medians of a figure: of shardmq's rounds, and of RabbitMQ's where there are some."""
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
    """Of shardmq's numbers, and of RabbitMQ's where there are some."""
    ours, *theirs = [round(statistics.median(numbers), 1) for numbers in of]
    return ours, theirs[0] if theirs else None
