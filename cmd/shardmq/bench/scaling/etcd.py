"""An etcd of one member on this machine, and what it takes of a core."""

import contextlib
import shutil
import statistics
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Final, Self

import msgspec

from shardmq.cmd.bench.compare.comparison import cpu_seconds
from shardmq.cmd.bench.compare.rabbitmq import Absent, free_ports
from shardmq.cmd.bench.scaling.rows import empty
from shardmq.cmd.terminal.output import Say
from shardmq.errors import ShardmqError
from shardmq.replication.core.group import Group
from shardmq.replication.etcd.background import BackgroundRegister
from shardmq.replication.etcd.news import News, Seen, Stored
from shardmq.replication.etcd.url import parse
from shardmq.replication.etcd.values import GROUPS

START_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.05

SWAPS: Final = 500
WATCHERS: Final = (0, 10, 30)
"""Processes that hear of all groups: about as many as three, or ten, hosts have with few shards."""

REST_SECONDS: Final = 5.0


class LocalEtcd:
    """An etcd that runs inside a `with` block.

    Args:
        folder: for its data.

    Raises:
        Absent: it is not installed.
    """

    def __init__(self, folder: Path) -> None:
        found = shutil.which("etcd")
        if found is None:
            raise Absent("etcd is not installed: apt-get install etcd-server")
        self._program, self._folder = found, folder
        self._port, self._peer_port = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Without a prefix."""
        return f"etcd://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._process is not None, "it runs in a block"
        return self._process.pid

    def __enter__(self) -> Self:
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._port, self._peer_port))
        words = ["--name", "only", "--data-dir", str(self._folder), "--logger", "zap"]
        words += ["--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer]
        words += ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"only={peer}"]
        with self._folder.with_suffix(".log").open("wb") as log:
            self._process = subprocess.Popen([self._program, *words], stdout=log, stderr=log, process_group=0)
        register, began = BackgroundRegister(parse(f"{self.url}/start"), "start"), time.monotonic()
        try:
            register.watch(GROUPS)
            while not any(isinstance(news, Seen) for news in _next(register)):
                if time.monotonic() - began > START_SECONDS or self._process.poll() is not None:
                    raise ShardmqError(f"etcd does not start: {self._last_words()}")
        except BaseException:
            self.__exit__()
            raise
        finally:
            register.close()
        return self

    def __exit__(self, *_: object) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _last_words(self) -> str:
        return self._folder.with_suffix(".log").read_text(errors="replace")[-400:].strip()


class Swapping(msgspec.Struct, frozen=True):
    """Swaps of a group's key, one after the other.

    Attributes:
        id: of the row.
        watchers: processes that hear of each.
        swap_ms: from asking to the answer, in ms.
        cpu_us: processor time of etcd for each, in µs.
        rest_cores: cores that etcd takes while nothing changes.
    """

    id: str
    watchers: int
    swap_ms: float
    cpu_us: float
    rest_cores: float


EMPTY: Final = [empty(Swapping, id=f"watchers-{count}", watchers=count) for count in WATCHERS]


def measure(disk: Path, say: Say) -> list[Swapping]:
    """Measure swaps with each number of watchers.

    Args:
        disk: folder on the disk that etcd writes to.
        say: is told how it goes.

    Raises:
        Absent: etcd is not installed.
        ShardmqError: it does not start.
    """
    found = []
    with contextlib.ExitStack() as holds:
        folder = Path(holds.enter_context(tempfile.TemporaryDirectory(prefix="shardmq-scaling-", dir=disk)))
        etcd = holds.enter_context(LocalEtcd(folder / "etcd"))
        for watchers in WATCHERS:
            with contextlib.ExitStack() as stack:
                for number in range(watchers):
                    watcher = BackgroundRegister(parse(f"{etcd.url}/swaps"), f"watcher-{number}")
                    stack.callback(watcher.close)
                    watcher.watch(GROUPS)
                found.append(_point(etcd, watchers))
            say(f"{watchers} watchers: {found[-1].swap_ms} ms, {found[-1].cpu_us} µs of etcd")
    return found


def _point(etcd: LocalEtcd, watchers: int) -> Swapping:
    before = cpu_seconds([etcd.pid])
    time.sleep(REST_SECONDS)
    rest = (cpu_seconds([etcd.pid]) - before) / REST_SECONDS
    register = BackgroundRegister(parse(f"{etcd.url}/swaps"), "swaps")
    try:
        before, took = cpu_seconds([etcd.pid]), []
        for term in range(SWAPS):
            began = time.perf_counter()
            group = Group("f00d", term, "a", ("a", "b"), ("a", "b"), 1)
            register.change(GROUPS, "shard-0", partial(_instead, group))
            while not any(isinstance(news, Stored) for news in _next(register)):
                pass
            took.append(time.perf_counter() - began)
        used = cpu_seconds([etcd.pid]) - before
    finally:
        register.close()
    swap_ms = round(statistics.median(took) * 1000, 2)
    return Swapping(f"watchers-{watchers}", watchers, swap_ms, round(used * 1e6 / SWAPS, 1), round(rest, 4))


def _instead(group: Group, _there: Group | None) -> Group:
    return group


def _next(register: BackgroundRegister) -> list[News]:
    register.wait(LOOK_SECONDS)
    return register.take()
