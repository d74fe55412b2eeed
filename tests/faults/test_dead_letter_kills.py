"""Processes die at random, or stand still, while messages die in every way; a dead letter arrives, and arrives once.

`make test` runs a short form; `make faults` hundreds of kills (SHARDMQ_FAULT_KILLS).
"""

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.errors import ShardmqError

from .ledgers import Client, Consumer, Ledger, Publisher
from .mutants import NUMBERED
from .saboteur import until
from .test_sabotage import frozen

KILLS: Final = int(os.environ.get("SHARDMQ_FAULT_KILLS", "6"))
IS_LONG: Final = "SHARDMQ_FAULT_KILLS" in os.environ
CONTROL_KILLS: Final = 12
CALM_SECONDS: Final = 0.4
DRAIN_SECONDS: Final = 120.0
PACE_SECONDS: Final = 0.02
"""Between publishes: a backlog that grows for minutes would be drained for minutes."""

SOURCES: Final[dict[str, dict[str, Any]]] = {
    "rejecting": {},
    "ranked": {"x-max-priority": 3},
    "expiring": {"x-message-ttl": 20},
    "narrow": {"x-max-length": 20},
    "refusing": {"x-max-length": 20, "x-overflow": "reject-publish-dlx"},
}
"""Queues that messages die in: rejected by a consumer, of age, pushed out by others, refused by a full queue."""

GRAVES: Final = ("grave-a", "grave-b", "grave-c")
"""Every dead letter goes to all of them; they are on several shards."""


class Paced(Publisher):
    """A publisher that leaves some time to others."""

    def work(self, connection: shardmq.Connection) -> None:
        channel = connection.channel()
        while not self.stopping.wait(PACE_SECONDS):
            ids = [f"{self.name}:{next(self.numbers)}" for _ in range(random.choice((1, 3, 40)))]
            self.ledger.published.update(ids)
            try:
                with channel.publisher() as publisher:
                    publisher.publish_many(
                        self.exchange,
                        "k",
                        [each.encode() for each in ids],
                        shardmq.Properties(priority=random.randrange(4)),
                    )
            except shardmq.errors.ConnectionLost:
                raise
            except ShardmqError:
                continue
            self.ledger.confirmed.update(ids)


class Rejecter(Client):
    """Rejects what it is given from one queue: now all of a batch, now every other message at first."""

    def __init__(self, url: str, ledger: Ledger, queue: str) -> None:
        super().__init__(url, ledger, f"rejecter of {queue}")
        self.queue = queue

    def work(self, connection: shardmq.Connection) -> None:
        channel = connection.channel()
        while not self.stopping.is_set():
            batch = list(channel.consume(self.queue, prefetch=50, inactivity_timeout=0.1))
            order = batch if random.random() < 0.5 else batch[::2] + batch[1::2]
            for message in order:
                message.nack(requeue=False)
            channel.flush()


def declare(url: str) -> None:
    with shardmq.connect(url) as connection:
        channel = connection.channel()
        channel.exchange_declare("graves", "fanout", durable=True)
        for grave in GRAVES:
            channel.queue_declare(grave, durable=True)
            channel.queue_bind(grave, "graves")
        for source, terms in SOURCES.items():
            channel.queue_declare(source, durable=True, arguments={"x-dead-letter-exchange": "graves", **terms})
            channel.exchange_declare(f"to-{source}", "fanout", durable=True)
            channel.queue_bind(source, f"to-{source}")


def is_empty(url: str) -> bool:
    """Whether all queues are there, and nothing is in them."""
    names = {*SOURCES, *GRAVES}
    with shardmq.connect(url, timeout=20) as connection:
        tables = [table for table in connection.status()["queues"] if table["name"] in names]
    return len(tables) == len(names) and not any(table["valid"] for table in tables)


def run_with_kills(broker: Broker, seed: int, kills: int) -> dict[str, Ledger]:
    """Returns what was published, in the ledger of each grave beside what arrived there."""
    dice = random.Random(seed)
    declare(broker.url)
    source = Ledger()
    ledgers = {grave: Ledger(source.published, source.confirmed) for grave in GRAVES}
    publishers = [Paced(broker.url, source, name, f"to-{name}") for name in SOURCES]
    consumers: list[Client] = [Consumer(broker.url, ledgers[grave], f"c-{grave}", grave) for grave in GRAVES]
    rejecters: list[Client] = [Rejecter(broker.url, source, name) for name in ("rejecting", "ranked")]
    for client in (*publishers, *consumers, *rejecters):
        client.start()
    victims = sorted(broker.pids)
    for kill in range(kills):
        time.sleep(dice.uniform(0, CALM_SECONDS))
        victim = victims[kill % len(victims)] if kill < len(victims) else dice.choice(victims)
        if victim.startswith("shard") and dice.random() < 0.5:
            with frozen(broker, dice.choice([name for name in victims if name.startswith("gateway")])):
                broker.kill_and_wait(victim)  # what the gateway has in hand is of a time before that
        else:
            broker.kill_and_wait(victim)
    for publisher in publishers:
        publisher.stopping.set()
    for publisher in publishers:
        publisher.join(60)
    rejecters += [Rejecter(broker.url, source, name) for name in ("narrow", "refusing")]  # what is left there
    for client in rejecters[2:]:
        client.start()
    until(lambda: is_empty(broker.url), "all is dead and consumed", DRAIN_SECONDS)
    for client in (*consumers, *rejecters):
        client.stopping.set()
    for client in (*publishers, *consumers, *rejecters):
        client.join(60)
        assert not client.is_alive(), client.name
        assert client.crash is None
    return ledgers


@pytest.mark.faults
def test_a_dead_letter_arrives_once_whoever_dies(start_broker: Callable[..., Broker], tmp_path: Path) -> None:
    seed = int(os.environ.get("SHARDMQ_FAULT_SEED", random.randrange(2**32)))
    broker = start_broker(shards=3, gateways=2, data_dir=tmp_path / "data")
    for grave, ledger in run_with_kills(broker, seed, KILLS).items():
        print(f"seed {seed}, {KILLS} kills, {grave}: {ledger.verdict()}")
        assert ledger.confirmed, "the test proves nothing when nothing was confirmed"
        assert not ledger.confirmed - ledger.received.keys()
        assert not ledger.unknown
        assert not ledger.unmarked_copies


@pytest.mark.faults
@pytest.mark.skipif(not IS_LONG, reason="make faults")
def test_a_broker_whose_dead_letters_have_no_numbers_is_found_out(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data", shards=3, gateways=2, variables=NUMBERED.variables(tmp_path / "code"))
    with broker:
        ledgers = run_with_kills(broker, random.randrange(2**32), CONTROL_KILLS)
    assert any(ledger.unmarked_copies for ledger in ledgers.values())
