"""The brokers that are measured, each on hosts of its own, and the loads that are put on them."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from shardmq.cmd.bench.compare.comparison import cpu_seconds, enough
from shardmq.cmd.bench.compare.load import Contestant, Figures, compiled_program, new_name, run_load, run_words
from shardmq.cmd.bench.compare.rabbitmq import Absent
from shardmq.cmd.bench.hosts.machines.etcd import Etcd
from shardmq.cmd.bench.hosts.machines.machine import Machine
from shardmq.cmd.bench.hosts.machines.network import Network
from shardmq.cmd.bench.hosts.quorum import Quorum
from shardmq.cmd.bench.hosts.replicated import NAMES, PORT, Replicated
from shardmq.cmd.bench.hosts.rows import BROKERS, LOADS, ONE, RABBITMQ, THREE, TWO
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command
from shardmq.cmd.terminal.output import Say

CLIENT: Final = "client"
MEMBERS: Final = ("e1", "e2", "e3")
HOSTS: Final = {broker: tuple(f"{broker}-{name}"[-8:] for name in NAMES) for broker in (TWO, THREE, RABBITMQ)}
"""Hosts by the broker that is on them; a network interface's name has at most 15 characters."""

MIN_IN_SYNC: Final = {TWO: 1, THREE: 2}
REPLICAS: Final = {TWO: 2, THREE: 3}

QUEUE_TYPE: Final = "quorum"
"""What is declared on all brokers; shardmq's queues have replicas whatever their type."""


class Place:
    """The network, etcd and the folder of a run, inside a `with` block. This thread is on the clients' host meanwhile.

    Args:
        folder: on the disk that is written to.
        shards: of each shardmq.

    Raises:
        Absent: namespaces are not allowed here, or etcd is not installed.
    """

    def __init__(self, folder: Path, shards: int) -> None:
        self.folder = folder
        self.shards = shards
        self._holds = contextlib.ExitStack()

    def __enter__(self) -> "Place":
        hosts = [name for names in HOSTS.values() for name in names]
        with self._holds:
            self.network = self._holds.enter_context(Network((CLIENT, *MEMBERS, *hosts)))
            self._holds.enter_context(self.network.namespaces[CLIENT].inside())
            self.machines = {name: Machine(namespace) for name, namespace in self.network.namespaces.items()}
            self.etcd = self._holds.enter_context(Etcd([self.machines[name] for name in MEMBERS], self.folder))
            self._holds = self._holds.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._holds.close()

    def replicated(self, broker: str) -> Replicated:
        """A shardmq with replicas, yet to be started."""
        machines = [self.machines[name] for name in HOSTS[broker]]
        url = f"{self.etcd.url}/{broker}?insecure=true"  # in namespaces, which nobody else reaches
        return Replicated(machines, self.folder / broker, url, self.shards, REPLICAS[broker], MIN_IN_SYNC[broker])

    def quorum(self) -> Quorum:
        """A RabbitMQ, yet to be started.

        Raises:
            Absent: it is not installed.
        """
        return Quorum([self.machines[name] for name in HOSTS[RABBITMQ]], self.folder / RABBITMQ)


class Contestants:
    """The brokers that run, by name.

    Attributes:
        running: those on several hosts.
        one: the one on one host, where it was asked for.
        absent: why others are missing.
    """

    def __init__(self) -> None:
        self.running: dict[str, Replicated | Quorum] = {}
        self.one: Broker | None = None
        self.absent: list[str] = []

    @property
    def replicated(self) -> Replicated:
        """The one with two replicas."""
        broker = self.running[TWO]
        assert isinstance(broker, Replicated)
        return broker

    @property
    def versions(self) -> dict[str, str]:
        """Versions of the others' brokers."""
        quorum = self.running.get(RABBITMQ)
        return {RABBITMQ: quorum.version} if isinstance(quorum, Quorum) else {}

    def has(self, broker: str) -> bool:
        """Whether a broker runs."""
        return broker in self.running or (broker == ONE and self.one is not None)


@contextlib.contextmanager
def started(place: Place, wanted: Sequence[str], say: Say) -> Iterator[Contestants]:
    """Start brokers, and stop them."""
    found = Contestants()
    with contextlib.ExitStack() as stack:
        for broker in wanted:
            say(f"starting: {BROKERS[broker]}")
            if broker == ONE:
                found.one = stack.enter_context(Broker(place.folder / ONE, shards=place.shards, gateways=1))
            elif broker in REPLICAS:
                found.running[broker] = stack.enter_context(place.replicated(broker))
            else:
                try:
                    found.running[broker] = stack.enter_context(place.quorum())
                except Absent as reason:
                    found.absent.append(f"{reason}; RabbitMQ is not measured")
        yield found


class Loads:
    """Puts loads on brokers, of as many messages as take some time.

    Args:
        contestants: the brokers.
        folder: for the program that is compiled.
        seconds: target time of one measurement.
        timeout: seconds after which one is given up.
    """

    def __init__(self, contestants: Contestants, folder: Path, seconds: float, timeout: float) -> None:
        self._contestants = contestants
        self._folder = folder
        self._seconds = seconds
        self._timeout = timeout
        self._program: list[str] = []
        self._messages: dict[tuple[str, str], int] = {}

    def measure(self, run: str, broker: str) -> Figures:
        """Put a load on a broker once.

        Raises:
            Absent: its program cannot be compiled here.
            ShardmqError: a message was lost, doubled or refused, or it took too long.
        """
        load = LOADS[run]
        messages = self._messages.get((run, broker), load.first)
        figures = self._amqp(run, broker, messages) if load.program == "amqp" else self._sdk(run, broker, messages)
        self._messages[run, broker] = enough(messages, figures["seconds"], self._seconds)
        return figures

    def _amqp(self, run: str, broker: str, messages: int) -> Figures:
        """The C program, on the first host of the broker, as guest may come from there alone."""
        self._program = self._program or compiled_program(self._folder)
        who, load = self._contestants.running[broker], LOADS[run]
        machine = who.first
        options = {**load.options, "messages": messages, "type": QUEUE_TYPE}
        words = [*machine.prefix, *self._program, "127.0.0.1", str(PORT), new_name(), load.mode]
        pids = who.pids()
        before = cpu_seconds(pids)
        found = run_words([*words, *(f"{name}={value}" for name, value in options.items())], messages, self._timeout)
        cpu_us = (cpu_seconds(pids) - before) * 1e6 / messages
        return {**{name: float(value) for name, value in found.items()}, "cpu_us": cpu_us}

    def _sdk(self, run: str, broker: str, messages: int) -> Figures:
        if broker == ONE:
            assert self._contestants.one is not None
            who = Contestant(broker, self._contestants.one.port, url=self._contestants.one.url)
        else:
            who = Contestant(broker, PORT, url=self._contestants.replicated.url())
        return run_load(command(), LOADS[run], who, messages, self._timeout)
