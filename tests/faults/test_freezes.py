"""Processes stand still, alone or together, while others die or come back; nothing confirmed is lost.

A process that stands still holds everything it has: its sockets are open, and its peers hear nothing. Short ones are
nobody's business; longer than the links' silence, its peers take it for dead, and it comes back as one that is late.
`make test` runs a short form; `make faults` more, with long ones among them (SHARDMQ_FAULT_FREEZES).
"""

import os
import random
import signal
import time
from collections.abc import Callable
from functools import partial

import psutil
import pytest

from shardmq.cmd.run.broker import Broker
from shardmq.limits import LINK_SILENCE_SECONDS

from .ledgers import Consumer, Ledger, Publisher
from .saboteur import until
from .test_kills import declare, wait_until_drained

FREEZES = int(os.environ.get("SHARDMQ_FAULT_FREEZES", "4"))
SEED = int(os.environ.get("SHARDMQ_FAULT_SEED", random.randrange(2**32)))
LONG_EVERY = 8
"""Every so many, one lasts longer than a link's silence; the short form has none."""


class Nemesis:
    """What happens to a broker, by turns.

    Args:
        broker: to whom.
        dice: decide who, and for how long.
    """

    def __init__(self, broker: Broker, dice: random.Random) -> None:
        self._broker = broker
        self._dice = dice
        self._turn = 0

    def strike(self) -> str:
        """Do the next thing, and wait until all processes run again; returns what was done."""
        self._turn += 1
        kinds = (self._one, self._several, self._one_in_recovery, self._with_supervisor)
        seconds = self._dice.uniform(0.1, 0.6)
        if self._turn % LONG_EVERY == 0:
            seconds += LINK_SILENCE_SECONDS
        return kinds[(self._turn - 1) % len(kinds)](seconds)

    def _one(self, seconds: float) -> str:
        victim = self._dice.choice(sorted(self._broker.pids))
        return self._freeze([victim], seconds)

    def _several(self, seconds: float) -> str:
        """Several stand still, and another is killed meanwhile."""
        names = sorted(self._broker.pids)
        self._dice.shuffle(names)
        killed, *frozen = names[:4]
        known = len(self._broker.notices)
        done = self._freeze(frozen, seconds, lambda: self._broker.kill(killed))
        self._broker.wait_for("ready", killed, after=known)
        return f"{done}, {killed} killed meanwhile"

    def _one_in_recovery(self, seconds: float) -> str:
        """A process is killed, and its successor stands still before it serves."""
        victim = self._dice.choice(sorted(self._broker.pids))
        known = len(self._broker.notices)
        old = self._broker.kill(victim)
        successor = until(lambda: self._successor(victim, old), f"{victim} is started again")
        os.kill(successor, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(successor, signal.SIGCONT)
        self._broker.wait_for("ready", victim, after=known)
        return f"{victim} killed, its successor frozen for {seconds:.1f} s"

    def _with_supervisor(self, seconds: float) -> str:
        """Nobody is there to start again who dies."""
        victim = self._dice.choice(sorted(self._broker.pids))
        known = len(self._broker.notices)
        os.kill(self._broker.pid, signal.SIGSTOP)
        self._broker.kill(victim)
        time.sleep(seconds)
        os.kill(self._broker.pid, signal.SIGCONT)
        self._broker.wait_for("ready", victim, after=known)
        return f"the supervisor frozen for {seconds:.1f} s, {victim} killed meanwhile"

    def _freeze(self, names: list[str], seconds: float, meanwhile: Callable[[], object] = lambda: None) -> str:
        pids = [self._broker.kill(name, signal.SIGSTOP) for name in names]
        meanwhile()
        time.sleep(seconds)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        return f"{', '.join(names)} frozen for {seconds:.1f} s"

    def _successor(self, name: str, old: int) -> int | None:
        role, _, index = name.partition("-")
        for process in psutil.Process(self._broker.pid).children():
            try:
                words = process.cmdline()
            except psutil.NoSuchProcess:
                continue  # it has ended, and its supervisor has yet to hear of it
            if process.pid != old and role in words and (not index or {name, index} & set(words)):
                return process.pid
        return None


def confirms_more_than(ledger: Ledger, count: int) -> bool:
    return len(ledger.confirmed) > count


@pytest.mark.faults
def test_nothing_confirmed_is_lost_whoever_stands_still(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=3, gateways=2)
    nemesis = Nemesis(broker, random.Random(SEED))
    queues = declare(broker.url)
    pairs = [(queue, Ledger()) for queue in queues]
    publishers = [Publisher(broker.url, ledger, f"p-{queue}", f"to-{queue}") for queue, ledger in pairs]
    consumers = [Consumer(broker.url, ledger, f"c-{queue}", queue) for queue, ledger in pairs]
    for client in (*publishers, *consumers):
        client.start()
    for _ in range(FREEZES):
        print(nemesis.strike())
        for _, ledger in pairs:
            until(partial(confirms_more_than, ledger, len(ledger.confirmed)), "publishing goes on", 60.0)
    for publisher in publishers:
        publisher.stopping.set()
    for publisher in publishers:
        publisher.join(60)
    wait_until_drained(broker.url, queues)
    for client in (*publishers, *consumers):
        client.stopping.set()
        client.join(60)
        assert not client.is_alive(), client.name
        assert client.crash is None
    for _, ledger in pairs:
        print(f"seed {SEED}, {FREEZES} freezes: {ledger.verdict()}")
        assert not ledger.confirmed - ledger.received.keys()
        assert not ledger.unknown
        assert not ledger.unmarked_copies
