"""What `bench compare` measures, row by row, and how its rounds are gone through and summed up."""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from shardmq.cmd.bench.compare_load import Load, Rates, run_load
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
    "both": Row("publish and consume, window 1000", Load("both"), 20_000, (Figure("end_to_end", 3.0),)),
    "seq": Row("one after the other", Load("seq"), 20_000, (Figure("publish", 3.0), Figure("consume", 2.0))),
    "window-1": Row("window 1", Load("seq", window=1), 500, (Figure("publish", 0.8),)),
    "1-kb": Row("bodies of 1 KB", Load("both", size=1024), 20_000, (Figure("end_to_end", 3.0),)),
    "distinct": Row(
        "20 connections and queues, all headers differ",
        Load("each", window=100, connections=20),
        20_000,
        (Figure("end_to_end", 1.2),),
    ),
    "pika": Row("pika, a confirm each", Load("confirmed"), 500, (Figure("publish", None),)),
    "pika-unconfirmed": Row("pika, no confirms", Load("unconfirmed"), 5_000, (Figure("publish", None),)),
}
"""What can be measured, by name. 100-byte persistent messages with confirms, unless they say otherwise."""


class Contestant(msgspec.Struct, frozen=True):
    """A broker that is measured: its name for people, and its port."""

    name: str
    port: int


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


class Course:
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
        self._rates: dict[tuple[str, Contestant], list[Rates]] = {key: [] for key in self._next}

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
        try:
            rates = run_load(self._programs[name], load, who.port, messages, self._timeout)
        except ShardmqError as fault:
            raise ShardmqError(f"{name}, {who.name}: {fault.text}") from fault
        self._next[name, who] = enough(load, rates, self._seconds)
        if counts:
            self._rates[name, who].append(rates)
        return rates

    def outcomes(self) -> list[Outcome]:
        """The figures of all rows, when all is measured."""
        return [
            outcome(name, figure, [self._of(figure, name, who) for who in self._contestants])
            for name in self._names
            for figure in ROWS[name].figures
        ]

    def _of(self, figure: Figure, name: str, who: Contestant) -> list[float]:
        return [rate_of(rates, figure) for rates in self._rates[name, who]]


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


def outcome(name: str, figure: Figure, rates: Sequence[Sequence[float]]) -> Outcome:
    """The medians of a figure; `rates` are shardmq's, and RabbitMQ's where it was measured."""
    ours = round(statistics.median(rates[0]), 1)
    if len(rates) == 1:
        return Outcome(name, ROWS[name].text, figure.rate, ours, None, None, None, None, figure.asked)
    ratios = [mine / theirs for mine, theirs in zip(*rates, strict=True)]
    return Outcome(
        name,
        ROWS[name].text,
        figure.rate,
        ours,
        round(statistics.median(rates[1]), 1),
        round(statistics.median(ratios), 3),
        round(min(ratios), 3),
        round(max(ratios), 3),
        figure.asked,
    )
