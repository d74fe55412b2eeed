"""What a replica takes: a broker with etcd, once with one copy of its shard, once with two; and what etcd takes."""

import contextlib
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from shardmq.client.sync.connection import connect
from shardmq.cmd.bench.compare.comparison import cpu_seconds
from shardmq.cmd.bench.compare.load import Contestant, Load, compiled_program, run_load
from shardmq.cmd.bench.scaling.etcd import LocalEtcd
from shardmq.cmd.bench.scaling.rows import empty
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command
from shardmq.cmd.terminal.output import Say
from shardmq.errors import Timeout

HOSTS: Final = ("a", "b")
SHARD: Final = "shard-0"
PORTS: Final = 4
"""Of the bus, for each host: the coordinator's two, and two of the shard."""

START_SECONDS: Final = 60.0
SYNC_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.05
TIMEOUT_SECONDS: Final = 120.0


class Replicated(msgspec.Struct, frozen=True):
    """A load on a shard with some copies.

    Attributes:
        id: of the row.
        replicas: how many copies there are.
        rate: messages a second.
        least: the least rate of a turn.
        most: the greatest.
        cpu_us: processor time for each message in µs, of gateway, primary and follower.
        written: bytes that the primary has written for each byte of a body.
    """

    id: str
    replicas: int
    rate: float
    least: float
    most: float
    cpu_us: dict[str, float]
    written: float


EMPTY: Final = [empty(Replicated, id=f"copies-{count}", replicas=count) for count in (1, 2)]


def measure(disk: Path, count: int, turns: int, say: Say) -> list[Replicated]:
    """Measure one and two replicas.

    Args:
        disk: folder on the disk that is written to.
        count: messages of each measurement.
        turns: of each, after one that does not count.
        say: is told how it goes.

    Raises:
        Absent: etcd, or what compiles the program that makes the load, is not installed.
        ShardmqError: a message was lost, or the hosts do not start.
    """
    found = []
    with tempfile.TemporaryDirectory(prefix="shardmq-scaling-", dir=disk) as place:
        folder = Path(place)
        program = compiled_program(folder)
        keys = folder / "keys"
        words = ("keys", "hosts", *HOSTS, "--shards", "1", "--gateways", "1", "--dir", str(keys))
        subprocess.run(command(*words), check=True, capture_output=True)
        with LocalEtcd(folder / "etcd") as etcd:
            for replicas in (1, 2):
                with _joined(folder, f"{etcd.url}/copies-{replicas}", keys, replicas) as brokers:
                    points = [_turn(program, brokers, count) for _ in range(turns + 1)][1:]
                found.append(_row(replicas, points))
                say(f"{replicas} copies: {found[-1].rate:,.0f} msgs/s, µs {found[-1].cpu_us}")
    return found


@contextlib.contextmanager
def _joined(folder: Path, join: str, keys: Path, replicas: int) -> Iterator[list[Broker]]:
    """A broker with so many hosts as copies, on this machine; the host that leads the shard comes first."""
    names = HOSTS[:replicas]
    with contextlib.ExitStack() as stack:
        brokers = {}
        for name in names:
            words = ["--join", join, "--host-name", name, "--host-address", "127.0.0.1", "--hosts", ",".join(names)]
            words += ["--bus-port", str(_free_run(PORTS)), "--replicas", str(replicas), "--keys", str(keys / name)]
            broker = Broker(folder / f"{replicas}-{name}", shards=1, options=words)
            stack.callback(broker.close)
            broker.launch()
            brokers[name] = broker
        for broker in brokers.values():
            broker.wait_for("up", timeout=START_SECONDS)
        first = brokers.pop(_leader(brokers))
        yield [first, *brokers.values()]


def _leader(brokers: dict[str, Broker]) -> str:
    """The host that leads the shard, once all copies are in sync.

    Raises:
        Timeout: they are not in time.
    """
    deadline = time.monotonic() + SYNC_SECONDS
    with connect(next(iter(brokers.values())).url, timeout=SYNC_SECONDS) as connection:
        while time.monotonic() < deadline:
            group = next(row for row in connection.status()["groups"] if row["group"] == SHARD)
            if len(group["in_sync"]) == len(brokers) and group["primary"]:
                return str(group["primary"])
            time.sleep(LOOK_SECONDS)
    raise Timeout(f"not all of {len(brokers)} copies are in sync within {SYNC_SECONDS:.0f} s")


def _turn(program: list[str], brokers: list[Broker], count: int) -> dict[str, float]:
    first = brokers[0]
    roles = {"gateway": first.pids["gateway-0"], "primary": first.pids[SHARD]}
    if len(brokers) > 1:
        roles["follower"] = brokers[1].pids[SHARD]
    before, written = {role: cpu_seconds([pid]) for role, pid in roles.items()}, _written(roles["primary"])
    load = Load("amqp", "flow", 1, {"queues": 8, "global": 1})
    figures = run_load(program, load, Contestant("shardmq", first.port), count, TIMEOUT_SECONDS)
    used = {role: (cpu_seconds([pid]) - before[role]) * 1e6 / count for role, pid in roles.items()}
    more = (_written(roles["primary"]) - written) / (100 * count)
    return {"rate": figures["end_to_end_msgs_per_s"], "written": more, **used}


def _row(replicas: int, points: list[dict[str, float]]) -> Replicated:
    def median(name: str) -> float:
        return round(statistics.median(point.get(name, 0.0) for point in points), 3)

    rates = [point["rate"] for point in points]
    cpu_us = {role: median(role) for role in ("gateway", "primary", "follower")}
    return Replicated(
        f"copies-{replicas}", replicas, statistics.median(rates), min(rates), max(rates), cpu_us, median("written")
    )


def _written(pid: int) -> int:
    """Bytes that a process has had written to disk (proc_pid_io(5))."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("write_bytes")).split()[1])


def _free_run(count: int) -> int:
    """The first of so many free ports in a row."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first: int = probe.getsockname()[1]
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError, OverflowError):
            for port in range(first, first + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
