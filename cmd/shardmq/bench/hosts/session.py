"""One run of `bench hosts`: loads in turns, then faults in turns, then what is measured of shardmq alone."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from shardmq.cmd.bench.compare.load import Figures
from shardmq.cmd.bench.hosts import copies, faults
from shardmq.cmd.bench.hosts.contestants import Contestants, Loads, Place, started
from shardmq.cmd.bench.hosts.measure import Turns, said
from shardmq.cmd.bench.hosts.replicated import Replicated
from shardmq.cmd.bench.hosts.rows import BROKERS, LOADS, RABBITMQ, ROWS, TWO
from shardmq.cmd.terminal.output import Say

LOSSES: Final = {"host-killed": faults.host_killed, "host-cut-off": faults.host_cut_off}
"""Faults that befall all brokers on several hosts."""


class Amounts(msgspec.Struct, frozen=True):
    """How much is measured.

    Attributes:
        turns: of loads.
        seconds: target time of a load.
        faults: how often each fault happens.
        etcd_away: seconds.
        join_mb: stored in a shard that a host joins.
        stored: messages that are stored when a primary is lost.
        shards: of each shardmq.
        timeout: seconds after which a load is given up.
    """

    turns: int
    seconds: float
    faults: int
    etcd_away: float
    join_mb: int
    stored: int
    shards: int
    timeout: float


class Session:
    """Measures.

    Args:
        how: how much.
        rabbitmq: whether RabbitMQ is measured, too.
        say: told what goes on.

    Attributes:
        measured: the figures.
        peers: versions of other brokers.
        absent: why others were not measured.
    """

    def __init__(self, how: Amounts, rabbitmq: bool, say: Say) -> None:
        self.measured = Turns()
        self.peers: dict[str, str] = {}
        self.absent: list[str] = []
        self._how = how
        self._rabbitmq = rabbitmq
        self._say = say

    def run(self, runs: Sequence[str], folder: Path) -> None:
        """Measure some loads and faults.

        Args:
            runs: their names.
            folder: on the disk that all hosts write to.

        Raises:
            Absent: network namespaces are not allowed here, or etcd is not installed.
        """
        loads, losses = ([run for run in runs if run in some] for some in (LOADS, LOSSES))
        with Place(folder, self._how.shards) as place, started(place, [TWO], self._say) as ours:
            others = [broker for broker in self._needed([*loads, *losses]) if broker != TWO]
            with started(place, others, self._say) as contestants:
                contestants.running.update(ours.running)
                self._put_loads(loads, contestants, place)
                self._lose_hosts(losses, contestants, place)
                self.peers, self.absent = contestants.versions, contestants.absent
            self._measure_alone(runs, ours.replicated, place)

    def _needed(self, runs: Sequence[str]) -> list[str]:
        """The brokers that some loads and faults are measured on."""
        needed = {broker for row in ROWS.values() if row.run in runs for broker in row.brokers}
        return [broker for broker in BROKERS if broker in needed and (self._rabbitmq or broker != RABBITMQ)]

    def _put_loads(self, runs: Sequence[str], contestants: Contestants, place: Place) -> None:
        loads = Loads(contestants, place.folder, self._how.seconds, self._how.timeout)
        for turn in range(self._how.turns + 1):  # the first warms up, and finds the numbers of messages
            for run in runs:
                for broker in self._in_turn(run, contestants, turn):
                    self._attempt(run, broker, turn, self._how.turns, partial(loads.measure, run, broker))

    def _lose_hosts(self, runs: Sequence[str], contestants: Contestants, place: Place) -> None:
        for turn in range(1, self._how.faults + 1):
            for run in runs:
                for broker in self._in_turn(run, contestants, turn):
                    lose = partial(LOSSES[run], contestants.running[broker], place.network)
                    self._attempt(run, broker, turn, self._how.faults, lose)

    def _measure_alone(self, runs: Sequence[str], broker: Replicated, place: Place) -> None:
        """Faults and copies of shardmq with two replicas."""
        how = self._how
        if any(run in runs for run in ("transfer", "frozen-briefly", "frozen", "etcd-away")):
            queue = broker.new_queue()
            away = partial(faults.etcd_away, broker, place.etcd, how.etcd_away)
            self._repeat(runs, "transfer", partial(faults.transferred, broker, queue))
            self._repeat(runs, "frozen-briefly", partial(faults.frozen_briefly, broker, queue))
            self._repeat(runs, "frozen", partial(faults.frozen, broker, queue))
            self._repeat(runs, "etcd-away", partial(away, queue), 1)
        self._repeat(runs, "rejoin", partial(copies.rejoin, broker), min(3, how.faults))
        self._repeat(runs, "join", partial(copies.join, broker, how.join_mb * 1_000_000), min(3, how.faults))
        if any(run in runs for run in ("full-killed", "full-cut-off")):
            self._say(f"storing {how.stored:,} messages")
            queue = broker.new_queue()
            copies.fill(broker.url(), queue, how.stored)
            self._repeat(runs, "full-killed", partial(faults.process_killed, broker, queue))
            self._repeat(runs, "full-cut-off", partial(faults.cut_off, broker, place.network, queue))

    def _repeat(self, runs: Sequence[str], run: str, measure: Callable[[], Figures], times: int | None = None) -> None:
        count = times or self._how.faults
        for turn in range(1, count + 1) if run in runs else ():
            self._attempt(run, TWO, turn, count, measure)

    def _attempt(self, run: str, broker: str, turn: int, turns: int, measure: Callable[[], Figures]) -> None:
        figures = self.measured.attempt(run, broker, measure, counts=turn > 0)
        outcome = said(run, figures) if figures is not None else self.measured.failures[run, broker]
        when = f"turn {turn} of {turns}" if turn else "warming up"
        self._say(f"{when}: {run}: {BROKERS[broker]}: {outcome}")

    def _in_turn(self, run: str, contestants: Contestants, turn: int) -> Iterator[str]:
        """The brokers that a load or fault is measured on; the first alternates."""
        running = [broker for broker in self._needed([run]) if contestants.has(broker)]
        yield from running if turn % 2 else reversed(running)
