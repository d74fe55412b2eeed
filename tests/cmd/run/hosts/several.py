"""Brokers on several hosts that are all this machine: each has its own loopback address, and keys."""

import json
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shardmq.cmd.main import run
from shardmq.cmd.run.hosts import load, planner
from shardmq.cmd.run.hosts.keys import create_missing
from shardmq.replication.planning import cluster
from tests.hosts.members import Supervisor

SECONDS = 180.0


def quick(arguments: tuple[str, ...]) -> int:
    """`shardmq`, but loads are averages over two seconds, so that a test need not wait for a minute; and which loads
    are noise is its first word, so that one that waits for a balance need not have the machine for itself."""
    noise, *words = arguments
    cluster.IDLE_CORES = load.IDLE_CORES = float(noise)  # type: ignore[misc]
    load.WINDOW_SECONDS = 2.0  # type: ignore[misc]
    planner.CALM_SECONDS = 2.0  # type: ignore[misc]
    return run(words)


class SeveralHosts:
    """One broker, with `shardmq up --join` for each host.

    Args:
        folder: for stores, keys and logs.
        join: URL of etcd, with a prefix of this broker alone.
        names: of the hosts.
        shards: of the broker when it is made.
        idle_cores: loads that differ by less are alike, see `cluster.IDLE_CORES`.
    """

    def __init__(self, folder: Path, join: str, names: str, shards: int, idle_cores: float) -> None:
        self.folder = folder
        self._idle_cores = idle_cores
        self.join = join
        net = f"127.{secrets.randbelow(254) + 1}.{os.getpid() % 254 + 1}"
        self.addresses = {name: f"{net}.{ord(name) - 96}" for name in names}
        self.url = f"shardmq://guest:guest@{','.join(f'{address}:5672' for address in self.addresses.values())}/"
        self._ups: dict[str, Supervisor] = {}
        self.make_keys(shards)
        for name in names:
            self._spawn(name, shards)
        for name in names:
            self._wait_until_up(name)

    def make_keys(self, shards: int) -> None:
        """Make the keys that are missing for so many shards."""
        processes = ["coordinator", *(f"shard-{number}" for number in range(shards)), "gateway-0"]
        create_missing(self.folder / "keys", list(self.addresses), processes)

    def _spawn(self, name: str, shards: int) -> None:
        words = (
            *("up", "--json", "--join", self.join, "--host-name", name, "--host-address", self.addresses[name]),
            *("--hosts", ",".join(self.addresses), "--shards", str(shards), "--gateways", "1"),
            *("--host", self.addresses[name], "--keys", str(self.folder / "keys" / name)),
            *("--data-dir", str(self.folder / name), "--management-port", "off", "--memory-watermark", "1GiB"),
        )
        log = self.folder / f"{name}.log"
        self._ups[name] = Supervisor([str(self._idle_cores), *words], log, "tests.cmd.run.hosts.several:quick")

    def _wait_until_up(self, name: str) -> None:
        up = self._ups[name]
        wait_for(lambda: up.has_ended or self.said(name, "up"), f"{name} is up")
        assert not up.has_ended, self.last_words()

    def said(self, name: str, event: str) -> list[dict[str, Any]]:
        """What the supervisor of a host has said of an event."""
        lines = self._ups[name].output.read_text().splitlines(keepends=True)
        told = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]
        return [each for each in told if each.get("event") == event]

    def close(self) -> None:
        """kill -9 of all hosts; their processes end with them."""
        for up in self._ups.values():
            up.kill()

    def last_words(self) -> str:
        return "\n".join(f"--- {log.name}\n{log.read_text()[-6000:]}" for log in sorted(self.folder.glob("*.log")))


def wait_for(holds: Callable[[], Any], what: str, seconds: float = SECONDS) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.05)  # what is waited for is often asked of etcd
