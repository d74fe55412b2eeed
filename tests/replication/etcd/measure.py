"""What etcd bounds, measured: `python -m tests.replication.etcd.measure`. Prints one JSON object.

Three members on loopback, data on disk, everything on this machine. Groups are swapped as hosts would: by clients of
their own, one swap after the other each. A watch is timed from sending a swap to a watcher's having the value.
"""

import json
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from shardmq.replication.core.group import Group
from shardmq.replication.etcd.client import EtcdClient
from shardmq.replication.etcd.errors import EtcdError, UnreadableValue
from shardmq.replication.etcd.register import Entry, Register, SwapOutcome, Swapped
from shardmq.replication.etcd.url import parse
from shardmq.replication.etcd.values import GROUPS
from shardmq.runtime.clock import boottime
from tests.hosts.members import Etcd

from .loop import Asker, run

GROUP = Group("f00d", 1, "a", ("a", "b"), ("a", "b", "c"))
SECONDS = 60.0


class Swapper:
    """Swaps one group over and over.

    Attributes:
        seconds: how long each swap took.
    """

    def __init__(self, client: EtcdClient, name: str, count: int) -> None:
        self.client = client
        self.seconds: list[float] = []
        self._count = count
        self._register = Register(client, "measured", name)
        self._swap(Entry(name, None, 0))

    @property
    def is_over(self) -> bool:
        return len(self.seconds) == self._count

    def _swap(self, entry: Entry[Group]) -> None:
        self._began = time.monotonic()
        self._register.swap(GROUPS, entry, GROUP, boottime() + SECONDS, self._swapped)

    def _swapped(self, outcome: SwapOutcome[Group]) -> None:
        assert isinstance(outcome, Swapped), outcome
        self.seconds.append(time.monotonic() - self._began)
        if not self.is_over:
            self._swap(outcome.entry)


def swaps(url: str, clients: int, count: int, what: str = "measured") -> dict[str, float]:
    """Swaps by so many clients at once, each of its own group."""
    with ExitStack() as stack:
        swappers = []
        for number in range(clients):
            client = EtcdClient(parse(url))
            stack.callback(client.close)
            swappers.append(Swapper(client, f"{what}-{clients}-{number}", count // clients))
        began = time.monotonic()
        run([swapper.client for swapper in swappers], lambda: all(one.is_over for one in swappers), SECONDS)
        taken = time.monotonic() - began
    seconds = [second for swapper in swappers for second in swapper.seconds]
    return {"rate": round(count / taken), **milliseconds(seconds)}


def watched(url: str, count: int) -> dict[str, float]:
    """How long after a swap was sent a watcher has the value."""
    with Asker(url) as asker:
        register, seen = Register(asker.client, "watched", "w"), {0: 0.0}

        def changed(entries: list[Entry[Group] | UnreadableValue]) -> None:
            seen.update({entry.revision: time.monotonic() for entry in entries if isinstance(entry, Entry)})

        watcher = register.watch(GROUPS, changed)
        asker.until(lambda: watcher.confirmed)
        entry, seconds = Entry[Group]("g", None, 0), []
        for _ in range(count):
            outcomes: list[SwapOutcome[Group] | EtcdError] = []
            began = time.monotonic()
            register.swap(GROUPS, entry, GROUP, boottime() + SECONDS, outcomes.append)
            asker.until(lambda outcomes=outcomes: outcomes)
            assert isinstance(outcomes[0], Swapped)
            entry = outcomes[0].entry
            asker.until(lambda revision=entry.revision: revision in seen)
            seconds.append(seen[entry.revision] - began)
        watcher.close()
    return milliseconds(seconds)


def milliseconds(seconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=100)
    return {"p50_ms": round(cuts[49] * 1000, 2), "p99_ms": round(cuts[98] * 1000, 2)}


def main() -> None:
    parent = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.gettempdir())
    with Etcd(parent=parent) as etcd:
        swaps(etcd.url, 1, 100, "warm")
        measured = {
            "one": swaps(etcd.url, 1, 1000),
            "eight": swaps(etcd.url, 8, 4000),
            "watch": watched(etcd.url, 500),
        }
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
