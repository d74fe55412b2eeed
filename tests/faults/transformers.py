"""Processes that produce to a topic, and that transform one topic into another; they note what they do for `histories`.

    python -m tests.faults.transformers produce|transform URL NAME FOLDER

They go on until their stdin ends. What a step sends is on its line before it is sent, so a killed process leaves a step
of which nobody knows whether it took effect.
"""

import itertools
import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

import shardmq
from shardmq.errors import ShardmqError

from .histories import Outcome, Polled, Sent, Step

SOURCE: Final = "in"
TARGET: Final = "out"
SOURCES: Final = 3
TARGETS: Final = 2
GROUP: Final = "transformers"

QUICK: Final = shardmq.Recovery(first_seconds=0.05, max_seconds=0.5)
HEARTBEAT_SECONDS: Final = 1
"""A member that stands still loses its partitions after two of them."""

TIMEOUT_SECONDS: Final = 20.0
RETRY_SECONDS: Final = 0.1
EXPIRY_MS: Final = 15_000
"""What a member that died had begun keeps nobody up for longer."""

PACE_SECONDS: Final = 0.1
SETTLE_SECONDS: Final = 60.0
LEAVES: Final = 0.1
"""How often a member leaves its group in the middle of a transaction, and commits all the same, later."""

ABORTS: Final = 0.05
ROOT: Final = Path(__file__).resolve().parents[2]


def origin(value: str) -> str:
    """The value that a value of the target was made of; before it stands the name of the transaction."""
    return value.rpartition("|")[2]


class Notebook:
    """A file of steps: the last line about a step counts.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, step: Step) -> None:
        """Note a step, in one write: a kill leaves a line or none."""
        os.write(self._file, msgspec.json.encode(msgspec.structs.replace(step, at=time.time())) + b"\n")


def read_notes(paths: Iterable[Path]) -> list[Step]:
    """The steps of all files, each as it was last noted."""
    found: dict[tuple[str, str], Step] = {}
    for path in paths:
        for line in path.read_bytes().splitlines():
            step = msgspec.json.decode(line, type=Step)
            found[(step.process, step.name)] = step
    return list(found.values())


def connect(url: str) -> shardmq.Connection:
    """A connection that wins itself back."""
    return shardmq.connect(url, timeout=TIMEOUT_SECONDS, heartbeat=HEARTBEAT_SECONDS, recovery=QUICK)


def settled(url: str, name: str) -> Outcome:
    """What became of a transaction; where nothing did, it is aborted now."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        try:
            with connect(url) as connection:
                transaction = connection.channel().transaction(name)
                if transaction.is_committed:
                    return "ok"
                transaction.abort()
                return "fail"
        except ShardmqError:
            time.sleep(RETRY_SECONDS)
    return "info"


class Worker:
    """What both kinds have in common: lives, one after the other, each a process of the history.

    Args:
        url: of the broker.
        name: of the worker.
        folder: where notes are.
    """

    def __init__(self, url: str, name: str, folder: Path) -> None:
        self.url = url
        self.name = name
        self.notes = Notebook(folder / f"{name}.jsonl")
        self.life = ""
        self.numbers = itertools.count()

    def run(self) -> None:
        """Live on, whatever fails, until told to stop."""
        for life in itertools.count():
            if is_told_to_stop():
                return
            self.life = f"{self.name}.{life}"
            try:
                with connect(self.url) as connection:
                    self.live(connection.channel())
            except ShardmqError as error:
                print(f"{self.life}: {error!r}", file=sys.stderr, flush=True)
                time.sleep(RETRY_SECONDS)

    def live(self, channel: shardmq.Channel) -> None:
        """Work until something fails, or it is told to stop."""
        raise NotImplementedError


class Producer(Worker):
    """Sends to the source, some messages at a time, to one partition or another."""

    def live(self, channel: shardmq.Channel) -> None:
        """Send; what was not confirmed may have arrived or not."""
        with channel.publisher() as publisher:
            while not is_told_to_stop():
                key = f"{SOURCE}-{random.randrange(SOURCES)}"
                values = [f"{self.name}:{next(self.numbers)}" for _ in range(random.randint(1, 8))]
                step = Step(self.life, "info", tuple(Sent(key, value) for value in values), name=values[0])
                self.notes.write(step)
                publisher.publish_many("", key, [value.encode() for value in values])
                publisher.flush()
                self.notes.write(msgspec.structs.replace(step, outcome="ok"))
                time.sleep(PACE_SECONDS)


class Transformer(Worker):
    """A member of the group that reads the source; what it makes goes to the target, with the offsets that it read."""

    def live(self, channel: shardmq.Channel) -> None:
        """Transform; whatever fails, it joins the group again."""
        held: set[int] = set()
        fresh: dict[str, int] = {}

        def assigned(partitions: list[tuple[int, int]]) -> None:
            fresh.update({f"{SOURCE}-{number}": offset for number, offset in partitions if number not in held})
            held.update(number for number, _ in partitions)

        def revoked(partitions: list[int], _: bool) -> None:
            held.difference_update(partitions)

        consumer = channel.group_consumer(
            SOURCE,
            GROUP,
            start="earliest",
            auto_commit=False,
            pull=random.choice((1, 10, 40)),
            on_assigned=assigned,
            on_revoked=revoked,
        )
        try:
            while not is_told_to_stop():
                if messages := consumer.poll(0.2):
                    polls = [messages]
                    if random.random() < 0.3 and (more := consumer.poll(0.0)):
                        polls.append(more)
                    name = f"{self.life}/{next(self.numbers)}"
                    step = self.step(name, polls, dict(fresh))
                    fresh.clear()
                    if not self.transform(channel, consumer, step):
                        return
        finally:
            consumer.close()

    def step(self, name: str, polls: list[list[shardmq.Message]], assigned: dict[str, int]) -> Step:
        """What it is about to do."""
        found = tuple(
            tuple(
                Polled(f"{SOURCE}-{message.partition}", message.offset or 0, message.body.decode(), message.redelivered)
                for message in poll
            )
            for poll in polls
        )
        sent = tuple(
            Sent(f"{TARGET}-{random.randrange(TARGETS)}", f"{name}|{each.value}") for poll in found for each in poll
        )
        return Step(self.life, "info", sent, found, assigned, name)

    def transform(self, channel: shardmq.Channel, consumer: shardmq.GroupConsumer, step: Step) -> bool:
        """Do it, and note what became of it; returns whether the consumer is good for more."""
        self.notes.write(step)
        goes_on = True
        outcome: Outcome
        try:
            with channel.transaction(step.name, timeout_ms=EXPIRY_MS) as transaction:
                for each in step.sent:
                    transaction.publish("", each.key, each.value.encode())
                transaction.commit_offsets(consumer)
                fate = random.random()
                if fate < ABORTS:
                    raise _ChangedItsMind
                if fate < ABORTS + LEAVES:
                    goes_on = False
                    consumer.close()
                    time.sleep(random.uniform(0.0, 1.0))
            outcome = "ok"
        except _ChangedItsMind:
            outcome, goes_on = settled(self.url, step.name), False
        except ShardmqError as error:
            print(f"{step.name}: {error!r}", file=sys.stderr, flush=True)
            outcome, goes_on = settled(self.url, step.name), False
        self.notes.write(msgspec.structs.replace(step, outcome=outcome))
        return goes_on


class _ChangedItsMind(Exception):
    """The program fails in the middle."""


def is_told_to_stop() -> bool:
    """Whether nobody holds the other end of stdin any more."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


KINDS: Final[dict[str, Callable[[str, str, Path], Worker]]] = {"produce": Producer, "transform": Transformer}


class Process:
    """A worker in a process of its own, begun again whenever it is killed.

    Args:
        kind: "produce" or "transform".
        url: of the broker.
        folder: where notes and what it says go.
        number: tells it from others of its kind.
    """

    def __init__(self, kind: str, url: str, folder: Path, number: int) -> None:
        self.kind = kind
        self._url = url
        self._folder = folder
        self._number = number
        self._lives = itertools.count()
        self._process = self._start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def _start(self) -> subprocess.Popen[bytes]:
        name = f"{self.kind}{self._number}.{next(self._lives)}"
        command = [sys.executable, "-m", "tests.faults.transformers", self.kind, self._url, name, str(self._folder)]
        with (self._folder / f"{self.kind}.log").open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stderr=log)

    def kill(self) -> None:
        """Kill it, and begin it again."""
        self.end()
        self._process = self._start()

    def end(self) -> None:
        """Kill it for good."""
        self._process.kill()
        self._process.wait()
        self._close()

    def stop(self, seconds: float = SETTLE_SECONDS) -> int:
        """Let it finish what it does; returns its exit code."""
        self._close()
        return self._process.wait(seconds)

    def _close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()


if __name__ == "__main__":
    KINDS[sys.argv[1]](sys.argv[2], sys.argv[3], Path(sys.argv[4])).run()
