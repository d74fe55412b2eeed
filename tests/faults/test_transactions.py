"""Processes die at random while transactions are staged, sealed and committed: each appears whole, once, or not at all.

`make test` runs a short form; `make faults` a hundred kills (SHARDMQ_FAULT_KILLS).
"""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.errors import ShardmqError

from .programs import Program
from .saboteur import until

KILLS = int(os.environ.get("SHARDMQ_FAULT_KILLS", "6"))
QUEUES = [f"whole-{number}" for number in range(6)]
WORKERS = 3
BATCH = 300
SETTLE_SECONDS = 60.0


def staged(connection: shardmq.Connection) -> int:
    tables = [table for table in connection.status()["processes"] if table["role"] == "shard"]
    assert len(tables) == 4
    return sum(row["messages"] for table in tables for row in table["staged"])


def drain(channel: shardmq.Channel, queue: str, wanted: int) -> Counter[str]:
    """How often each body is in a queue; it is empty then."""
    seen: Counter[str] = Counter()
    for message in channel.consume(queue, auto_ack=True, inactivity_timeout=3.0 if wanted else 0.5):
        if message is None:
            break
        seen[message.body.decode()] += 1
    return seen


@pytest.mark.faults
def test_a_transaction_is_whole_or_not_there_whoever_dies(start_broker: Callable[..., Broker]) -> None:
    seed = int(os.environ.get("SHARDMQ_FAULT_SEED", random.randrange(2**32)))
    dice = random.Random(seed)
    broker = start_broker(shards=4, gateways=2)
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        for queue in QUEUES:
            channel.queue_declare(queue, durable=True)
    programs = [Program(broker.url, seed + number, QUEUES, BATCH) for number in range(WORKERS)]
    for program in programs:
        program.start()
    victims = sorted(broker.pids)
    for kill in range(KILLS):
        time.sleep(dice.uniform(0, 0.5))
        victim = victims[kill % len(victims)] if kill < len(victims) else dice.choice(victims)
        broker.kill_and_wait(victim)
    for program in programs:
        program.stopping.set()
    for program in programs:
        program.join(240)
        assert not program.is_alive(), program.name
        assert program.crash is None
    check(broker, programs, seed)


def check(broker: Broker, programs: list[Program], seed: int) -> None:
    committed = set[str]().union(*[program.committed for program in programs])
    void = set[str]().union(*[program.void for program in programs])
    print(f"seed {seed}, {KILLS} kills: {len(committed)} committed, {len(void)} void")
    assert committed, "the test proves nothing when nothing was committed"
    assert not committed & void
    expected = Counter({f"{name}/{number}": 1 for name in committed for number in range(BATCH)})
    with shardmq.connect(broker.url, timeout=60) as connection, connection.channel() as channel:
        until(lambda: staged(connection) == 0, "nothing is staged any more", SETTLE_SECONDS)
        for queue in QUEUES:
            found = drain(channel, queue, len(expected))
            assert not expected - found, f"{queue} lacks messages of committed transactions"
            assert not found - expected, f"{queue} has messages twice, or of none"


@pytest.mark.faults
def test_a_commit_goes_on_when_everything_is_killed_in_the_middle(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=4)
    names = [f"large-{number}" for number in range(3)]
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        for queue in QUEUES:
            channel.queue_declare(queue, durable=True)
        sealed = []
        for name in names:
            transaction = channel.transaction(name)
            for queue in QUEUES:
                bodies = [f"{name}/{number}/".encode() + bytes(2000) for number in range(3000)]
                transaction.publish_many("", queue, bodies)
            sealed.append(transaction.seal())

    def commit(name: str, own: shardmq.Sealed) -> None:
        try:
            with shardmq.connect(broker.url, recovery=None, timeout=5) as connection, connection.channel() as channel:
                channel.transaction(name).commit(sealed=[own])
        except ShardmqError:
            pass  # the broker is killed under it

    threads = [threading.Thread(target=commit, args=pair) for pair in zip(names, sealed, strict=True)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    broker.kill_everything()
    for thread in threads:
        thread.join(60)
    broker.start()
    with shardmq.connect(broker.url, timeout=60) as connection, connection.channel() as channel:
        for name, own in zip(names, sealed, strict=True):
            transaction = channel.transaction(name)
            assert transaction.is_committed or transaction.commit(sealed=[own], timeout=60)
        until(lambda: staged(connection) == 0, "all of it has appeared", SETTLE_SECONDS)
        for queue in QUEUES:
            found: Counter[str] = Counter()
            for message in channel.consume(queue, auto_ack=True, inactivity_timeout=3.0):
                if message is None:
                    break
                found[message.body.rstrip(b"\0").decode()] += 1
            assert found == Counter({f"{name}/{number}/": 1 for name in names for number in range(3000)})


@pytest.mark.faults
@pytest.mark.parametrize("victim", ["shard-0", "gateway-0", "coordinator"])
def test_a_process_that_hangs_holds_a_transaction_up_and_breaks_nothing(
    start_broker: Callable[..., Broker], victim: str
) -> None:
    broker = start_broker(shards=2)
    with shardmq.connect(broker.url, timeout=60) as connection, connection.channel() as channel:
        for queue in QUEUES:
            channel.queue_declare(queue, durable=True)
        with channel.transaction("stalled") as transaction:
            for number, queue in enumerate(QUEUES):
                transaction.publish_many("", queue, [b"x"] * 1000)
                if number == 3:
                    broker.kill(victim, signal.SIGSTOP)
                    waker = threading.Timer(1.0, broker.kill, (victim, signal.SIGCONT))
                    waker.start()
        waker.join()
        for queue in QUEUES:
            assert channel.queue_declare(queue, durable=True, passive=True).messages == 1000
