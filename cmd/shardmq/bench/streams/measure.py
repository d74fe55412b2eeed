"""The measurements of `bench streams`, turn by turn, and the figures that they make."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from shardmq.cmd.bench.compare.comparison import cpu_seconds, rounded
from shardmq.cmd.bench.compare.load import Contestant, Figures, compiled_program, new_name, run_words
from shardmq.cmd.bench.compare.rabbitmq import Absent
from shardmq.cmd.bench.streams.redis import redis_program
from shardmq.cmd.bench.streams.rows import REDIS, ROWS, SHARDMQ, WORK_PARTITIONS
from shardmq.errors import ShardmqError

KEPT_OF_AMQP: Final = ("type", "group", "order", "consumers", "queues", "connections", "prefetch", "work_ms")
KEPT_OF_REDIS: Final = ("group", "order", "consumers")
"""Options of a row that each program knows."""

NAME_PLACE: Final = 3
"""Of the name, in the words of a program: behind its own, the host and the port."""


class Found(msgspec.Struct, frozen=True):
    """A row's figure of one broker.

    Attributes:
        row: name of the row.
        broker: who.
        median: of the turns.
        worst: of the turns.
        turns: all of them.
        cpu_us: median processor time of the broker for each message, in µs; None for times.
        is_met: whether the row's goal was reached; None where it has none for this broker.
    """

    row: str
    broker: str
    median: float
    worst: float
    turns: tuple[float, ...]
    cpu_us: float | None
    is_met: bool | None = None


class Programs:
    """The programs that make the loads, compiled where they can be.

    Args:
        folder: folder for what is compiled.

    Attributes:
        absent: what is missing, for people.
    """

    def __init__(self, folder: Path) -> None:
        self.absent: list[str] = []
        self._commands: dict[str, list[str]] = {}
        for name, make in (("amqp", compiled_program), (REDIS, redis_program)):
            try:
                self._commands[name] = make(folder)
            except Absent as reason:
                self.absent.append(str(reason))

    def words(self, row: str, broker: str, who: Contestant, messages: int) -> list[str] | None:
        """The command that makes a row's load; None where its program could not be compiled."""
        options = ROWS[row].options
        assert options is not None
        program = self._commands.get(REDIS if broker == REDIS else "amqp")
        if program is None:
            return None
        mode = [] if broker == REDIS else [ROWS[row].mode]
        known = KEPT_OF_REDIS if broker == REDIS else KEPT_OF_AMQP
        told = {name: value for name, value in options.items() if name in known}
        told |= {"messages": messages, "pids": ",".join(map(str, who.pids))}
        return [*program, "127.0.0.1", str(who.port), new_name(), *mode, *(f"{key}={told[key]}" for key in told)]


class Turns:
    """What was measured, by row and broker.

    Attributes:
        failures: why rows have no figures, by row and broker.
    """

    def __init__(self) -> None:
        self.failures: dict[tuple[str, str], str] = {}
        self._measured: dict[tuple[str, str], list[Figures]] = {}

    def add(self, row: str, broker: str, figures: Figures) -> None:
        """Note a measurement that counts."""
        self._measured.setdefault((row, broker), []).append(figures)

    def found(self) -> Iterator[Found]:
        """The figures of all rows that were measured."""
        medians: dict[str, float] = {}
        for (name, broker), turns in sorted(self._measured.items(), key=lambda each: list(ROWS).index(each[0][0])):
            row = ROWS[name]
            numbers = tuple(rounded(turn[row.figure]) for turn in turns)
            if broker == SHARDMQ:
                medians[name] = statistics.median(numbers)
        for (name, broker), turns in self._measured.items():
            row = ROWS[name]
            numbers = tuple(rounded(turn[row.figure]) for turn in turns)
            costs = [turn["cpu_us"] for turn in turns if "cpu_us" in turn]
            yield Found(
                name,
                broker,
                rounded(statistics.median(numbers)),
                max(numbers) if row.is_less_better else min(numbers),
                numbers,
                rounded(statistics.median(costs)) if costs else None,
                met(name, medians) if broker == SHARDMQ else None,
            )


def met(name: str, medians: Mapping[str, float]) -> bool | None:
    """Whether a row's goal was reached; None where it has none, or what it is divided by was not measured."""
    row = ROWS[name]
    if row.goal is None or (row.of and row.of not in medians):
        return None
    figure = medians[name] / medians[row.of] if row.of else medians[name]
    return figure <= row.goal if row.is_less_better else figure >= row.goal


def by_program(words: Sequence[str], who: Contestant, messages: int, timeout: float) -> Figures:
    """Measure a row of a C program once.

    Raises:
        ShardmqError: a message was lost, doubled, changed or out of order, or it took too long.
    """
    before = cpu_seconds(who.pids)
    figures = {name: float(value) for name, value in run_words(words, messages, timeout).items()}
    figures.setdefault("cpu_us", (cpu_seconds(who.pids) - before) * 1e6 / messages)
    return figures


def by_program_on_topic(words: Sequence[str], who: Contestant, messages: int, timeout: float) -> Figures:
    """The same, where the program consumes from a topic of the name that it is given.

    Raises:
        ShardmqError: as `by_program`.
    """
    from shardmq.client.sync.connection import connect

    assert who.url is not None
    topic = words[NAME_PLACE]
    with connect(who.url) as connection:
        channel = connection.channel()
        channel.topic_declare(topic, WORK_PARTITIONS)
        try:
            return by_program(words, who, messages, timeout)
        finally:
            channel.topic_delete(topic)


def attempt(turns: Turns, row: str, broker: str, measure: Callable[[], Figures], counts: bool) -> str:
    """Measure a row once, unless it failed before; returns what to say of it."""
    if (row, broker) in turns.failures:
        return turns.failures[row, broker]
    try:
        figures = measure()
    except ShardmqError as fault:
        turns.failures[row, broker] = f"{row}, {broker}: {fault.text}"
        return turns.failures[row, broker]
    if counts:
        turns.add(row, broker, figures)
    return f"{figures[ROWS[row].figure]:,.4g} {ROWS[row].unit}"
