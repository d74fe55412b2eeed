"""The broker dies as a whole, and its processes die and freeze one by one, while two groups of 20 members read a topic.

Nothing is skipped, nothing that was committed comes again, offsets never go back; all that anybody saw is checked as
jepsen's Kafka test does it. `make test` runs a short form; `make faults` many turns (SHARDMQ_FAULT_KILLS).
"""

import os
import random
import time
from typing import Final

import pytest

from shardmq.cmd.run.broker import Broker
from shardmq.limits import LINK_SILENCE_SECONDS
from tests.conftest import StartBroker

from .group_traffic import Book, members, read_everything
from .histories import History
from .saboteur import until
from .test_sabotage import frozen

TURNS: Final = int(os.environ.get("SHARDMQ_FAULT_KILLS", "1"))
IS_LONG: Final = "SHARDMQ_FAULT_KILLS" in os.environ
MEMBERS: Final = 20
PARTITIONS: Final = 20
LONG_EVERY: Final = 12
"""Every so many turns, one process stands still for longer than a link's silence."""


def strike(broker: Broker, dice: random.Random, turn: int) -> str:
    """Do the next thing to a broker; returns what."""
    names = sorted(broker.pids)
    kind = "everything" if turn < 2 else dice.choice(("everything", "kill", "freeze", "both"))
    if turn % LONG_EVERY == LONG_EVERY - 1:
        kind = "long"
    if kind == "everything":
        broker.kill_everything()
        broker.start()
        return kind
    victim = dice.choice(names)
    if kind == "kill":
        broker.kill_and_wait(victim)
    elif kind == "both":
        other = dice.choice([name for name in names if name != victim])
        known = len(broker.notices)
        with frozen(broker, other):
            broker.kill(victim)
            time.sleep(dice.uniform(0.1, 1.0))
        broker.wait_for("ready", victim, after=known)
        return f"{victim} killed, {other} frozen"
    else:
        with frozen(broker, victim):
            time.sleep(dice.uniform(0.1, 1.0) + (LINK_SILENCE_SECONDS if kind == "long" else 0))
    return f"{victim}: {kind}"


@pytest.mark.faults
def test_groups_skip_nothing_and_nothing_committed_comes_again_whatever_dies(start_broker: StartBroker) -> None:
    seed = int(os.environ.get("SHARDMQ_FAULT_SEED", random.randrange(2**32)))
    dice = random.Random(seed)
    broker = start_broker(shards=2, gateways=2 if IS_LONG else 1)
    book = Book(PARTITIONS)
    with members(broker.url, book, MEMBERS):
        for turn in range(TURNS):
            had = len(book.done)
            until(lambda: len(book.done) > had + 200, "the groups get on", 60.0)  # noqa: B023
            print(f"seed {seed}, turn {turn}, {len(book.done)} done: {strike(broker, dice, turn)}")
    found, ends = read_everything(broker.url, PARTITIONS)
    print(f"{sum(ends.values())} messages")
    assert book.verdict(History([*book.steps, found]), ends) == {}
