"""A broker on three hosts, as processes on one machine: each group has a replica on each, and etcd is a real one.

A process that ends stays away until a test starts it again.
"""

import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Self

import msgspec

from shardmq.coordinator.process import CoordinatorOptions
from shardmq.coordinator.process import run as run_coordinator
from shardmq.replication.core.group import Group
from shardmq.replication.etcd.background import BackgroundRegister
from shardmq.replication.etcd.news import Seen, Stored
from shardmq.replication.etcd.url import parse
from shardmq.replication.etcd.values import BROKER, GROUPS, HOSTS, WISHES, Broker, Host, Kind, Wish
from shardmq.runtime.notify import SUPERVISOR, die_with_parent
from shardmq.shards.process import ShardOptions
from shardmq.shards.process import run as run_shard
from tests.ports import free_ports
from tests.warm import Warm, warm_process

from .moving import BROKER_ID, INSECURE, is_listening, until
from .moving import gateway as run_gateway

HOST_NAMES = ("a", "b", "c")


def end_with_tests() -> None:
    """Have this process end with the one that it was forked from."""
    parent = os.getppid()
    if parent == 1:
        raise SystemExit("the tests have ended meanwhile")
    os.environ[SUPERVISOR] = str(parent)
    die_with_parent()


def gateway(arguments: tuple[str, ...]) -> int:
    """Be a gateway: name, port, etcd."""
    end_with_tests()
    return run_gateway(arguments)


def preloaded_replica(arguments: tuple[str, ...]) -> int:
    """Be a replica whose clocks are not the machine's: library, file of the clocks, and what `replica` is told."""
    library, clocks, *others = arguments
    program = "import sys; from tests.replication.replicated import replica; sys.exit(replica(tuple(sys.argv[1:])))"
    variables = {"LD_PRELOAD": library, "CLOCK_RATE": clocks, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    os.execve(sys.executable, [sys.executable, "-P", "-c", program, *others], {**os.environ, **variables})


def replica(arguments: tuple[str, ...]) -> int:
    """Be a replica: group, data directory, addresses for callers and for replicas, etcd, name of the host."""
    group, folder, listen, listen_replica, join, host = arguments
    end_with_tests()
    form = "%(asctime)s %(message)s"
    logging.basicConfig(filename=f"{folder}/{group}.log", level=logging.INFO, format=form, force=True)
    try:
        if group == "coordinator":
            run_coordinator(
                CoordinatorOptions(
                    Path(folder),
                    listen,
                    (),
                    BROKER_ID,
                    INSECURE,
                    join=join,
                    host_name=host,
                    broker=BROKER_ID,
                    listen_replica=listen_replica,
                )
            )
        else:
            number = int(group.removeprefix("shard-"))
            run_shard(
                ShardOptions(
                    number,
                    Path(folder),
                    listen,
                    security=INSECURE,
                    join=join,
                    host_name=host,
                    broker=BROKER_ID,
                    listen_replica=listen_replica,
                )
            )
    except SystemExit as ended:
        return int(str(ended.code))
    except Exception:
        logging.getLogger().exception("the process ends")
        raise
    return 0


class Replica:
    """One replica's process.

    Args:
        arguments: see `replica`.
        preloaded: a library and the file of its clocks; none where they are the machine's.
    """

    def __init__(self, arguments: tuple[str, ...], preloaded: tuple[str, ...] = ()) -> None:
        self._function = f"tests.replication.replicated:{'preloaded_' if preloaded else ''}replica"
        self._arguments = *preloaded, *arguments
        self.exits: list[int] = []
        self._start()

    def _start(self) -> None:
        self.process: Warm = warm_process.run(self._function, *self._arguments)
        self._watcher = threading.Thread(target=self._look_after, args=(self.process,), daemon=True)
        self._watcher.start()

    def _look_after(self, process: Warm) -> None:
        self.exits.append(process.wait())

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self._watcher.join()

    def stop(self) -> None:
        """SIGTERM."""
        self.process.terminate()
        self._watcher.join()

    def restart(self) -> None:
        self.kill()
        self._start()

    @property
    def has_ended(self) -> bool:
        return not self._watcher.is_alive()


class ReplicatedBroker:
    """Groups with replicas on hosts a, b and c, and a gateway on each.

    Args:
        folder: for the stores.
        etcd: its URL, without a prefix.
        prefix: of this broker's keys.
        shards: how many.
        min_in_sync: of all groups.
        hosts: their names.

    Attributes:
        preloaded: what the shards' processes of a host get, see `Replica`; to be set before they start.
    """

    def __init__(
        self,
        folder: Path,
        etcd: str,
        prefix: str,
        shards: int = 1,
        min_in_sync: int = 1,
        hosts: tuple[str, ...] = HOST_NAMES,
    ) -> None:
        self.folder = folder
        self.join = f"{etcd}/{prefix}"
        self.hosts = hosts
        self.min_in_sync = min_in_sync
        self.groups = ["coordinator", *(f"shard-{number}" for number in range(shards))]
        ports = iter(free_ports(len(hosts) * (2 * len(self.groups) + 1)))
        self.addresses = {
            host: {
                f"{group}{kind}": f"tcp://127.0.0.1:{next(ports)}" for group in self.groups for kind in ("", "/replica")
            }
            for host in hosts
        }
        self.ports = {host: next(ports) for host in hosts}
        self.preloaded: dict[str, tuple[str, str]] = {}
        self.replicas: dict[tuple[str, str], Replica] = {}
        self.gateways: dict[str, Warm] = {}
        self._known: dict[str, Group] = {}
        self._stored = 0
        self.register = BackgroundRegister(parse(self.join), f"test-{prefix}")
        self.register.watch(GROUPS)

    def __enter__(self) -> Self:
        self.put(BROKER, "", Broker(BROKER_ID, len(self.groups) - 1, len(self.hosts)))
        for host in self.hosts:
            self.put(HOSTS, host, Host("s", self.addresses[host]))
        for place, group in enumerate(self.groups):
            first = self.hosts[place % len(self.hosts)]
            self.put(GROUPS, group, Group("f00d", 0, "", (first,), self.hosts, self.min_in_sync))
        for host in self.hosts:
            for group in self.groups:
                self.start(host, group)
            self.start_gateway(host)
        self._until_whole()
        return self

    def __exit__(self, *_: object) -> None:
        for replica in self.replicas.values():
            replica.kill()
        for host in self.gateways:
            self.kill_gateway(host)
        self.register.close()

    @property
    def url(self) -> str:
        """Of all gateways."""
        return f"shardmq://guest:guest@{','.join(f'127.0.0.1:{port}' for port in self.ports.values())}/"

    def url_of(self, host: str) -> str:
        return f"shardmq://guest:guest@127.0.0.1:{self.ports[host]}/"

    def start(self, host: str, group: str) -> None:
        where = self.folder / host
        where.mkdir(mode=0o700, exist_ok=True)
        addresses = self.addresses[host]
        arguments = group, str(where), addresses[group], addresses[f"{group}/replica"], self.join, host
        preloaded = self.preloaded.get(host, ()) if group.startswith("shard-") else ()
        self.replicas[host, group] = Replica(arguments, preloaded)

    def start_gateway(self, host: str, join: str = "") -> None:
        """Start a gateway, which asks etcd at a URL of its own where one is given."""
        program = "tests.replication.replicated:gateway", f"{host}.gateway-0", str(self.ports[host]), join or self.join
        self.gateways[host] = warm_process.run(*program)

    def kill_gateway(self, host: str) -> None:
        """kill -9."""
        self.gateways[host].kill()
        self.gateways[host].wait()

    def make_whole(self) -> None:
        """Start again what has ended, let go on what is frozen, and wait until all replicas are in sync."""
        for replica in self.replicas.values():
            if replica.has_ended:
                replica.restart()
        for host, gateway in self.gateways.items():
            gateway.send_signal(signal.SIGCONT)
            if gateway.poll() is not None:
                self.start_gateway(host)
        self._until_whole()

    def _until_whole(self) -> None:
        until(lambda: all(is_listening(port) for port in self.ports.values()))
        until(lambda: all(set(self.group(name).in_sync) == set(self.hosts) for name in self.groups))

    def primary(self, group: str) -> Replica:
        """The process of a group's primary, as etcd has it."""
        return self.replicas[self.group(group).primary, group]

    def group(self, name: str) -> Group:
        """A group, as etcd has it."""
        self._hear()
        return self._known.get(name, Group("", 0, "", (), ()))

    def until_led_by_another(self, group: str, term: int) -> None:
        """Wait until a later term has begun."""
        until(lambda: self.group(group).term > term)

    def wish(self, group: str, primary: str) -> None:
        """Have another host lead a group."""
        self.put(WISHES, group, Wish(self.group(group).term, primary))

    def put(self, kind: Kind[Any], name: str, value: msgspec.Struct) -> None:
        before = self._stored
        self.register.change(kind, name, lambda _: value)
        until(lambda: self._hear() > before)

    def _hear(self) -> int:
        for news in self.register.take():
            if isinstance(news, Stored):
                self._stored += 1
            elif isinstance(news, Seen) and news.kind is GROUPS:
                self._known.update({entry.name: entry.value for entry in news.entries if entry.value is not None})
        return self._stored
