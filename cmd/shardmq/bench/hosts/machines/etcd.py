"""An etcd of three members, each on a host of its own."""

import contextlib
import shutil
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from shardmq.cmd.bench.compare.rabbitmq import Absent, NotStarted
from shardmq.cmd.bench.hosts.machines.machine import Machine

CLIENT_PORT: Final = 2379
PEER_PORT: Final = 2380
START_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.05


class Etcd:
    """An etcd that runs inside a `with` block.

    Args:
        machines: one for each member.
        folder: for their data.

    Raises:
        Absent: it is not installed.
        NotStarted: it is, and does not start.
    """

    def __init__(self, machines: Sequence[Machine], folder: Path) -> None:
        found = shutil.which("etcd")
        if found is None:
            raise Absent("etcd is not installed (Debian: etcd-server)")
        self._program = found
        self._machines = machines
        self._folder = folder

    @property
    def url(self) -> str:
        """Without a prefix."""
        return f"etcd://{','.join(f'{machine.address}:{CLIENT_PORT}' for machine in self._machines)}"

    def __enter__(self) -> Self:
        cluster = ",".join(f"{each.name}=http://{each.address}:{PEER_PORT}" for each in self._machines)
        for machine in self._machines:
            client, peer = (f"http://{machine.address}:{port}" for port in (CLIENT_PORT, PEER_PORT))
            words = ["--name", machine.name, "--data-dir", str(self._folder / machine.name), "--logger", "zap"]
            words += ["--listen-client-urls", client, "--advertise-client-urls", client]
            words += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster]
            machine.spawn([self._program, *words], self._folder / f"{machine.name}.log")
        deadline = time.monotonic() + START_SECONDS
        for machine in self._machines:
            while not _listens(machine.address):
                if time.monotonic() > deadline:
                    raise NotStarted(f"etcd does not start on {machine.name}: {machine.last_words()}")
                time.sleep(LOOK_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        for machine in self._machines:
            machine.kill()

    def freeze(self) -> None:
        """All members stand still."""
        for machine in self._machines:
            machine.freeze()

    def thaw(self) -> None:
        """They go on."""
        for machine in self._machines:
            machine.thaw()


def _listens(address: str) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((address, CLIENT_PORT), 1.0):
        return True
    return False
