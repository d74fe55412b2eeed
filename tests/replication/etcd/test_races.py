"""Clients race for the same keys, and every swap takes effect exactly once, answers lost or not.

`make test` runs a short form; `make faults` ten times as many (SHARDMQ_FAULT_SWAPS).
"""

import os
import random
import time
from contextlib import ExitStack

import msgspec
import pytest

from shardmq.replication.etcd.client import EtcdClient
from shardmq.replication.etcd.errors import EtcdError
from shardmq.replication.etcd.messages import prefix_end, range_request
from shardmq.replication.etcd.register import Entry, NotSwapped, Register, SwapOutcome, Swapped, SwapUnknown, Verdict
from shardmq.replication.etcd.url import parse
from shardmq.replication.etcd.values import Kind
from shardmq.runtime.clock import boottime
from tests.hosts.members import Etcd

from .cutting import CuttingProxy
from .loop import SECONDS, Asker, run

SWAPS = int(os.environ.get("SHARDMQ_FAULT_SWAPS", "1000"))
RACERS = 8
CUT = 2  # of the racers, whose answers or requests are lost now and then
KEYS = [f"k{number}" for number in range(12)]


class Tally(msgspec.Struct, frozen=True):
    """How many swaps each racer has made of a key."""

    counts: dict[str, int]


TALLIES = Kind("tallies", Tally)


class Racer:
    """Counts itself up in one key after the other, by swaps.

    Attributes:
        made: swaps that took effect, by its own account.
        lost: answers that it has never seen.
    """

    def __init__(self, name: str, client: EtcdClient, swaps: int) -> None:
        self.client = client
        self.made = self.lost = 0
        self._name = name
        self._swaps = swaps
        self._register = Register(client, "race", name)
        self._random = random.Random(name)
        self._counts = dict.fromkeys(KEYS, 0)
        self._seen: dict[str, Entry[Tally]] = {key: Entry(key, None, 0) for key in KEYS}
        self._key = ""
        self._unknown: SwapUnknown | None = None
        self._next()

    @property
    def is_over(self) -> bool:
        return self.made == self._swaps

    def _next(self) -> None:
        if not self.is_over:
            self._key = self._random.choice(KEYS)
            self._swap(self._seen[self._key])

    def _read(self) -> None:
        self._register.read(TALLIES, self._key, boottime() + SECONDS, self._has_read)

    def _has_read(self, entry: Entry[Tally] | EtcdError) -> None:
        assert isinstance(entry, Entry)
        counts = entry.value.counts if entry.value else {}
        mine = counts.get(self._name, 0)
        if self._unknown is not None:
            has_happened = mine > self._counts[self._key]
            verdict, self._unknown = self._unknown.verdict(entry), None
            assert verdict is not Verdict.TOOK_EFFECT or has_happened
            assert verdict is not Verdict.OPEN or not has_happened
            if has_happened:
                self._count()
                return
        assert mine == self._counts[self._key]
        self._swap(entry)

    def _swap(self, entry: Entry[Tally]) -> None:
        self._seen[entry.name] = entry
        counts = entry.value.counts if entry.value else {}
        mine = counts.get(self._name, 0)
        value = Tally({**counts, self._name: mine + 1})
        self._register.swap(TALLIES, entry, value, boottime() + SECONDS, self._has_swapped)

    def _has_swapped(self, outcome: SwapOutcome[Tally]) -> None:
        if isinstance(outcome, Swapped):
            self._seen[self._key] = outcome.entry
            self._count()
        elif isinstance(outcome, NotSwapped):
            self._has_read(outcome.entry)
        else:
            assert isinstance(outcome, SwapUnknown)
            self._unknown = outcome
            self.lost += 1
            self._read()

    def _count(self) -> None:
        self._counts[self._key] += 1
        self.made += 1
        self._next()


@pytest.mark.faults
def test_every_swap_takes_effect_exactly_once(etcd: Etcd, asker: Asker) -> None:
    with ExitStack() as stack:
        proxies = [stack.enter_context(CuttingProxy(etcd.members[number % 3].port)) for number in range(CUT)]
        racers = []
        for number in range(RACERS):
            url = f"etcd://127.0.0.1:{proxies[number].port}" if number < CUT else etcd.url
            client = EtcdClient(parse(url))
            stack.callback(client.close)
            racers.append(Racer(f"r{number}", client, SWAPS // RACERS))
        cutter = random.Random(1)
        began = time.monotonic()

        def are_over() -> bool:
            for proxy in proxies:
                proxy.loses = cutter.choice(("answers", "requests")) if cutter.random() < 0.02 else ""
            return all(racer.is_over for racer in racers)

        run([racer.client for racer in racers], are_over, seconds=120.0)
        print(f"{SWAPS / (time.monotonic() - began):,.0f} swaps a second")
        assert sum(racer.lost for racer in racers[:CUT]) > 0
    kvs = asker.ask(range_request(b"/race/", prefix_end(b"/race/"))).kvs
    assert sum(kv.version for kv in kvs) == SWAPS
    for kv in kvs:
        assert kv.version == sum(msgspec.json.decode(kv.value, type=Tally).counts.values())
