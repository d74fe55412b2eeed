"""A RabbitMQ of three nodes, each on a host of its own, with quorum queues of three replicas."""

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from shardmq.cmd.bench.compare.load import need_pika, new_name
from shardmq.cmd.bench.compare.rabbitmq import PLACES, Absent, NotStarted, greeted_by
from shardmq.cmd.bench.hosts.machines.machine import Machine, wait_for
from shardmq.errors import Timeout
from shardmq.protocol.amqp.errors import AmqpError

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel

PORT: Final = 5672
START_SECONDS: Final = 90.0


class Quorum:
    """A cluster inside a `with` block.

    Args:
        machines: the hosts.
        folder: for their data.

    Attributes:
        machines: the hosts.
        version: of RabbitMQ.

    Raises:
        Absent: it is not installed.
        NotStarted: it is, and does not start.
    """

    def __init__(self, machines: Sequence[Machine], folder: Path) -> None:
        found = shutil.which("rabbitmq-server", path=os.pathsep.join(PLACES)) or shutil.which("rabbitmq-server")
        if found is None:
            raise Absent("rabbitmq-server is not installed")
        if shutil.which("epmd") is None:
            raise Absent("epmd, which belongs to Erlang, is not on the PATH")
        need_pika()
        self._program = found
        self.machines = list(machines)
        self.version = ""
        self._folder = folder
        self._turn = itertools.count()
        self._holds = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._folder.mkdir()
        with self._holds:
            for machine in self.machines:
                self._holds.callback(machine.kill)
            try:
                # The first makes the cluster, the others join it.
                self.start(self.machines[0])
                self.start(*self.machines[1:])
            except Timeout as fault:
                raise NotStarted(f"RabbitMQ's cluster does not start: {fault.text}") from fault
            self.version = self._greeting(self.machines[0])
            self._holds = self._holds.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._holds.close()

    @property
    def first(self) -> Machine:
        """The first host."""
        return self.machines[0]

    def start(self, *machines: Machine) -> None:
        """Start nodes, and wait until they take connections.

        Raises:
            Timeout: they do not in time.
        """
        for machine in machines:
            folder = self._folder / machine.name
            folder.mkdir(exist_ok=True)
            # A process namespace of its own ends with its first process, whatever Erlang's scripts make of signals.
            alone = ["unshare", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
            script = 'epmd -address "$0" & exec "$1"'
            words = [*alone, "sh", "-c", script, machine.address, self._program]
            machine.spawn(words, folder / "output", self._environment(machine, folder))
        for machine in machines:
            wait_for(partial(self._greeting, machine), f"RabbitMQ starts on {machine.name}", START_SECONDS)

    def led_queue(self) -> tuple[str, Machine, str]:
        """Declare a queue; returns its name, the node that leads it, and a URL of the others."""
        leader = self.machines[next(self._turn) % len(self.machines)]
        queue = new_name()
        with self._channel(leader) as channel:
            channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
        others = ",".join(f"{machine.address}:{PORT}" for machine in self.machines if machine is not leader)
        return queue, leader, f"amqp://guest:guest@{others}/"

    def come_back(self, machine: Machine) -> None:
        """Start a node again that was killed."""
        self.start(machine)

    def delete_queue(self, name: str) -> None:
        """Delete a queue, and what is in it."""
        with self._channel(self.machines[0]) as channel:
            channel.queue_delete(name)

    @contextlib.contextmanager
    def _channel(self, machine: Machine) -> "Iterator[BlockingChannel]":
        import pika

        connection = pika.BlockingConnection(pika.ConnectionParameters(machine.address, PORT))
        try:
            yield connection.channel()
        finally:
            connection.close()

    def pids(self) -> tuple[int, ...]:
        """All processes of all nodes."""
        return tuple(pid for machine in self.machines for pid in machine.pids())

    def _environment(self, machine: Machine, folder: Path) -> dict[str, str]:
        (folder / "plugins").write_text("[].\n")
        nodes = [
            f"cluster_formation.classic_config.nodes.{n} = rabbit@{each.address}"
            for n, each in enumerate(self.machines, 1)
        ]
        settings = ["cluster_formation.peer_discovery_backend = classic_config", *nodes]
        (folder / "rabbitmq.conf").write_text(
            "\n".join([f"listeners.tcp.default = {PORT}", "loopback_users = none", *settings, ""])
        )
        cookie = folder / ".erlang.cookie"
        if not cookie.exists():
            cookie.write_text("SHARDMQBENCH")
            cookie.chmod(0o400)
        return {
            "HOME": str(folder),
            "ERL_EPMD_ADDRESS": machine.address,
            "RABBITMQ_USE_LONGNAME": "true",
            "RABBITMQ_NODENAME": f"rabbit@{machine.address}",
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        }

    @staticmethod
    def _greeting(machine: Machine) -> str:
        with contextlib.suppress(OSError, AmqpError):
            return greeted_by(PORT, machine.address)
        return ""
