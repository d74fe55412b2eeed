"""Processes die at random while traffic runs; nothing confirmed is lost, nothing unknown appears, copies are marked.

`make test` runs a short form; `make faults` a hundred kills (SHARDMQ_FAULT_KILLS).
"""

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker

from .ledgers import Consumer, Ledger, Publisher

KILLS = int(os.environ.get("SHARDMQ_FAULT_KILLS", "6"))
QUEUES = 4
CALM_SECONDS = 0.4
DRAIN_SECONDS = 60.0


def declare(url: str) -> list[str]:
    """A fanout exchange with queues that spread over the shards; the publish is confirmed when all of them have it."""
    queues = [f"ledger-{number}" for number in range(QUEUES)]
    with shardmq.connect(url) as connection:
        channel = connection.channel()
        for queue in queues:
            channel.exchange_declare(f"to-{queue}", "fanout", durable=True)
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, f"to-{queue}", "")
    return queues


def wait_until_drained(url: str, queues: list[str]) -> None:
    deadline = time.monotonic() + DRAIN_SECONDS
    while True:
        with shardmq.connect(url, timeout=20) as connection:
            tables = [table for table in connection.status()["queues"] if table["name"] in queues]
        if len(tables) == len(queues) and all(table["valid"] == 0 for table in tables):
            return
        assert time.monotonic() < deadline, f"not drained within {DRAIN_SECONDS:.0f} s: {tables}"
        time.sleep(0.2)


def run_with_kills(broker: Broker, seed: int, kills: int) -> list[Ledger]:
    dice = random.Random(seed)
    queues = declare(broker.url)
    ledgers = [Ledger() for _ in queues]
    pairs = list(zip(queues, ledgers, strict=True))
    publishers = [Publisher(broker.url, ledger, f"p-{queue}", f"to-{queue}") for queue, ledger in pairs]
    consumers = [Consumer(broker.url, ledger, f"c-{queue}", queue) for queue, ledger in pairs]
    for client in (*publishers, *consumers):
        client.start()
    victims = sorted(broker.pids)
    for kill in range(kills):
        time.sleep(dice.uniform(0, CALM_SECONDS))
        victim = victims[kill % len(victims)] if kill < len(victims) else dice.choice(victims)
        broker.kill_and_wait(victim)
    for publisher in publishers:
        publisher.stopping.set()
    for publisher in publishers:
        publisher.join(60)
    wait_until_drained(broker.url, queues)
    for consumer in consumers:
        consumer.stopping.set()
    for client in (*publishers, *consumers):
        client.join(60)
        assert not client.is_alive(), client.name
        assert client.crash is None
    return ledgers


@pytest.mark.faults
def test_nothing_confirmed_is_lost_whoever_dies(start_broker: Callable[..., Broker], tmp_path: Path) -> None:
    seed = int(os.environ.get("SHARDMQ_FAULT_SEED", random.randrange(2**32)))
    broker = start_broker(shards=4, gateways=2, data_dir=tmp_path / "data")
    ledgers = run_with_kills(broker, seed, KILLS)
    for ledger in ledgers:
        print(f"seed {seed}, {KILLS} kills: {ledger.verdict()}")
        assert ledger.confirmed, "the test proves nothing when nothing was confirmed"
        assert not ledger.confirmed - ledger.received.keys()
        assert not ledger.unknown
        assert not ledger.unmarked_copies


@pytest.mark.faults
def test_nothing_confirmed_is_lost_when_the_whole_broker_is_killed(
    start_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    broker = start_broker(shards=4, data_dir=tmp_path / "data")
    queues = declare(broker.url)
    ledger = Ledger()
    publishers = [Publisher(broker.url, ledger, f"p-{queue}", f"to-{queue}") for queue in queues]
    for publisher in publishers:
        publisher.start()
    while len(ledger.confirmed) < 2000:
        time.sleep(0.01)
    broker.kill_everything()
    for publisher in publishers:
        publisher.stopping.set()
    broker.start()
    consumers = [Consumer(broker.url, ledger, f"c-{queue}", queue) for queue in queues]
    for consumer in consumers:
        consumer.start()
    wait_until_drained(broker.url, queues)
    for client in (*publishers, *consumers):
        client.stopping.set()
        client.join(60)
        assert client.crash is None
    print(ledger.verdict())
    assert not ledger.confirmed - ledger.received.keys()
    assert not ledger.unknown
    assert not ledger.unmarked_copies
