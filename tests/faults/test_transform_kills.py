"""Members of a group transform a topic into another while all around them dies: the output is there exactly once.

What they read is committed with what they made of it. All that anybody saw is checked as jepsen's Kafka test does it.
`make test` runs a short form; `make faults` hundreds of kills (SHARDMQ_FAULT_KILLS).
"""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.errors import ShardmqError
from tests.conftest import StartBroker

from . import transformers
from .histories import History, Polled, Step, anomalies, not_once
from .mutants import FENCED
from .saboteur import until
from .test_sabotage import frozen
from .transformers import GROUP, QUICK, SOURCE, SOURCES, TARGET, TARGETS, Process, read_notes

KILLS: Final = int(os.environ.get("SHARDMQ_FAULT_KILLS", "6"))
IS_LONG: Final = "SHARDMQ_FAULT_KILLS" in os.environ
SHARDS: Final = 2
PRODUCERS: Final = 2
MEMBERS: Final = 3
CALM_SECONDS: Final = 0.8
FREEZE_SECONDS: Final = 3.0
DRAIN_SECONDS: Final = 120.0
CONTROL_SECONDS: Final = 15.0
BROKER_SHARE: Final = 0.25
"""How many of the kills are of the broker's processes: the supervisor starts again later what dies often."""


class Reader(threading.Thread):
    """Reads all of both topics by pulls, as they grow, and notes what it saw."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(daemon=True, name=name)
        self.url = url
        self.steps: list[Step] = []
        self.places = {f"{SOURCE}-{n}": 0 for n in range(SOURCES)} | {f"{TARGET}-{n}": 0 for n in range(TARGETS)}
        self.stopping = threading.Event()

    def run(self) -> None:
        """Read until it is told to stop."""
        while not self.stopping.is_set():
            self.read_all()
            self.stopping.wait(0.2)

    def read_all(self) -> bool:
        """Read to the ends as they are now; returns whether nothing failed."""
        try:
            with shardmq.connect(self.url, timeout=20, recovery=QUICK) as connection:
                channel = connection.channel()
                for key in self.places:
                    topic, _, number = key.partition("-")
                    while self._read(channel, topic, int(number)):
                        pass
        except ShardmqError:
            return False
        return True

    def _read(self, channel: shardmq.Channel, topic: str, number: int) -> bool:
        """Pull once; returns whether there is more."""
        key = f"{topic}-{number}"
        pulled = channel.pull(topic, number, self.places[key], 1000)
        found = tuple(Polled(key, message.offset or 0, message.body.decode()) for message in pulled)
        if found:
            self.steps.append(Step(self.name, "ok", polls=(found,), name=str(len(self.steps))))
        self.places[key] = pulled.next
        return pulled.next < pulled.end


@contextmanager
def workers(url: str, folder: Path) -> Iterator[tuple[list[Process], list[Process]]]:
    """Producers and members, which are gone afterwards."""
    folder.mkdir()
    with shardmq.connect(url) as connection:
        channel = connection.channel()
        channel.topic_declare(SOURCE, SOURCES)
        channel.topic_declare(TARGET, TARGETS)
    producers = [Process("produce", url, folder, number) for number in range(PRODUCERS)]
    members = [Process("transform", url, folder, number) for number in range(MEMBERS)]
    try:
        yield producers, members
    finally:
        for process in (*producers, *members):
            process.end()


def strike(broker: Broker, dice: random.Random, number: int, processes: tuple[list[Process], list[Process]]) -> str:
    """Kill one process, perhaps while another stands still; returns what was done."""
    producers, members = processes
    victims = sorted(broker.pids)
    kinds = ["member", "shard-0", "gateway-0", "producer", "coordinator", "shard-1"]
    kind = kinds[number] if number < len(kinds) else "producer" if dice.random() < 0.1 else "member"
    if number >= len(kinds) and dice.random() < BROKER_SHARE:
        kind = dice.choice(victims)
    if kind == "member":
        still = dice.choice(members)
        if dice.random() < 0.3:  # others get its partitions, and it comes back
            os.kill(still.pid, signal.SIGSTOP)
            time.sleep(dice.uniform(0.1, FREEZE_SECONDS))
            os.kill(still.pid, signal.SIGCONT)
        dice.choice(members).kill()
    elif kind == "producer":
        dice.choice(producers).kill()
    elif dice.random() < 0.3:
        with frozen(broker, dice.choice([name for name in victims if name != kind])):
            broker.kill(kind)
            time.sleep(dice.uniform(0.1, 1.0))
        until(lambda: sorted(broker.pids) == victims, "all of them are there")
    else:
        broker.kill_and_wait(kind)
    return kind


def is_all_read(url: str) -> bool:
    """Whether the group has read all of the source, and nothing is undecided."""
    try:
        with shardmq.connect(url, timeout=20, recovery=QUICK) as connection:
            channel = connection.channel()
            ends = {number: channel.pull(SOURCE, number, "latest", 1).end for number in range(SOURCES)}
            read = {row["partition"]: row["offset"] for row in channel.group_offsets(SOURCE, GROUP)}
            return ends == read
    except ShardmqError:
        return False


def settled(url: str, steps: list[Step]) -> list[Step]:
    """The steps, with what became of the transactions of those who died."""
    found = []
    for step in steps:
        outcome = step.outcome
        if outcome == "info" and step.polls:
            outcome = transformers.settled(url, step.name)
            assert outcome != "info", f"{step.name} is not settled"
        found.append(msgspec.structs.replace(step, outcome=outcome))
    return found


def is_nothing_staged(url: str) -> bool:
    """Whether all that was committed is where it belongs."""
    with shardmq.connect(url, timeout=20, recovery=QUICK) as connection:
        tables = [table for table in connection.status()["processes"] if table["role"] == "shard"]
    return len(tables) == SHARDS and not any(row["messages"] for table in tables for row in table["staged"])


def finish(broker: Broker, folder: Path, processes: tuple[list[Process], list[Process]], live: Reader) -> History:
    """Let the members read all that was produced; returns what everybody saw."""
    producers, members = processes
    assert [process.stop() for process in producers] == [0] * len(producers)
    until(lambda: is_all_read(broker.url), "all is transformed", DRAIN_SECONDS)
    assert [process.stop() for process in members] == [0] * len(members)
    steps = settled(broker.url, read_notes(folder.glob("*.jsonl")))
    until(lambda: is_nothing_staged(broker.url), "nothing is staged any more", DRAIN_SECONDS)
    live.stopping.set()
    live.join(60)
    independent = Reader(broker.url, "independent reader")
    for reader in (live, independent):
        until(reader.read_all, "all is read")
    return History([*steps, *live.steps, *independent.steps])


def wrongs(history: History) -> dict[str, list[str]]:
    """What is wrong with a run."""
    found = anomalies(history)
    if made := not_once(history, transformers.origin, f"{SOURCE}-", f"{TARGET}-"):
        found["not exactly once"] = made
    return found


def census(history: History) -> str:
    """One line for people."""
    transactions = Counter(step.outcome for step in history.steps if step.polls and step.sent)
    read = sum(key.startswith(SOURCE) for places in history.places.values() for key, _ in places)
    return f"{read} messages, transactions: {dict(transactions)}"


@pytest.mark.faults
def test_what_a_group_transforms_is_there_exactly_once_whoever_dies(start_broker: StartBroker, tmp_path: Path) -> None:
    seed = int(os.environ.get("SHARDMQ_FAULT_SEED", random.randrange(2**32)))
    dice = random.Random(seed)
    broker = start_broker(shards=SHARDS, gateways=2)
    folder = tmp_path / "notes"
    killed: Counter[str] = Counter()
    with workers(broker.url, folder) as processes:
        live = Reader(broker.url, "live reader")
        live.start()
        time.sleep(CALM_SECONDS)
        for number in range(KILLS):
            time.sleep(dice.uniform(0, CALM_SECONDS))
            killed[strike(broker, dice, number, processes)] += 1
        history = finish(broker, folder, processes, live)
    print(f"seed {seed}, kills: {dict(killed)}; {census(history)}")
    assert any(step.outcome == "ok" for step in history.steps if step.polls and step.sent), "nothing was transformed"
    assert wrongs(history) == {}


@pytest.mark.faults
@pytest.mark.skipif(not IS_LONG, reason="make faults")
def test_a_broker_that_commits_offsets_of_members_that_lost_them_is_found_out(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    with (
        Broker(tmp_path / "data", shards=SHARDS, variables=FENCED.variables(tmp_path / "code")) as broker,
        workers(broker.url, folder) as processes,
    ):
        live = Reader(broker.url, "live reader")
        live.start()
        time.sleep(CONTROL_SECONDS)
        history = finish(broker, folder, processes, live)
    print(census(history))
    assert "not exactly once" in wrongs(history)
