"""AMQP transactions while processes die: what is taken from one queue and put into others, committed together.

Where all is on one shard, each message is moved exactly once, whoever dies. Where it is not, it may be moved again, but
each commit is there whole or not at all, and nothing is lost. `make faults` runs it longer (SHARDMQ_FAULT_KILLS).
"""

import itertools
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError
from xxhash import xxh3_64_intdigest

import shardmq
from shardmq.cmd.run.broker import Broker

from .ledgers import RETRY_SECONDS

KILLS = int(os.environ.get("SHARDMQ_FAULT_KILLS", "6"))
SHARDS = 3
MESSAGES = 300 * KILLS
BATCH = 3
CALM_SECONDS = 0.5
SETTLE_SECONDS = 120.0
POLL_SECONDS = 0.5
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def named(prefix: str, shard: int) -> str:
    """A name for a queue of the virtual host "/" that lies on that shard."""
    return next(
        name
        for name in map(f"{prefix}-{{}}".format, itertools.count())
        if xxh3_64_intdigest(f"/\0{name}".encode()) % SHARDS == shard
    )


class Mover(threading.Thread):
    """Moves messages from a queue to others, some in each transaction, now and then rolling one back.

    Attributes:
        commits: how many were answered.
    """

    def __init__(self, url: str, source: str, targets: Sequence[str], seed: int) -> None:
        super().__init__(daemon=True, name=f"mover-{source}")
        self.parameters = pika.URLParameters(url.replace("shardmq://", "amqp://").rstrip("/") + "/%2F")
        self.source, self.targets = source, targets
        self.dice = random.Random(seed)
        self.stopping = threading.Event()
        self.crash: BaseException | None = None
        self.commits = self.attempts = 0

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                try:
                    with pika.BlockingConnection(self.parameters) as connection:
                        self.move(connection.channel())
                except (AMQPError, OSError):
                    time.sleep(RETRY_SECONDS)
        except BaseException as crash:
            self.crash = crash
            raise

    def move(self, channel: BlockingChannel) -> None:
        channel.tx_select()
        channel.basic_qos(prefetch_count=3 * BATCH)
        taken: list[tuple[int, bytes]] = []
        for method, _, body in channel.consume(self.source, inactivity_timeout=0.2):
            if method is not None:
                taken.append((method.delivery_tag, body))
            if self.stopping.is_set():
                return
            if len(taken) >= BATCH or (taken and method is None):
                self.commit(channel, taken)
                taken.clear()

    def commit(self, channel: BlockingChannel, taken: list[tuple[int, bytes]]) -> None:
        self.attempts += 1
        for tag, body in taken:
            message = b"%b/%d" % (body, self.attempts)
            for target in self.targets:
                channel.basic_publish("", target, message, PERSISTENT)
            channel.basic_ack(tag)
        if self.dice.random() < 0.1:
            channel.tx_rollback()
            channel.basic_nack(taken[-1][0], multiple=True, requeue=True)
        channel.tx_commit()
        self.commits += 1


def until_moved(is_moved: Callable[[], bool], movers: Sequence[Mover], seed: int) -> None:
    """Wait as long as it takes, and no longer than some time without a commit."""
    commits, since = -1, 0.0
    while not is_moved():
        if (now := sum(mover.commits for mover in movers)) > commits:
            commits, since = now, time.monotonic()
        waited = time.monotonic() - since
        assert waited < SETTLE_SECONDS, f"seed {seed}: not everything is moved {waited:.0f} s after the last commit"
        time.sleep(POLL_SECONDS)


def drained(channel: BlockingChannel, queue: str) -> list[bytes]:
    """What is in a queue, which is empty afterwards."""
    bodies = []
    for method, _, body in channel.consume(queue, auto_ack=True, inactivity_timeout=2.0):
        if method is None:
            break
        bodies.append(body)
    channel.cancel()
    return bodies


@pytest.mark.faults
def test_what_is_moved_in_transactions_is_moved_whole_whoever_dies(start_broker: Callable[..., Broker]) -> None:
    seed = int(os.environ.get("SHARDMQ_FAULT_SEED", random.randrange(2**32)))
    dice = random.Random(seed)
    broker = start_broker(shards=SHARDS, gateways=2)
    alone = named("from-alone", 0), [named("to-alone", 0), named("to-alone-too", 0)]
    beside = named("from-beside", 1), [named("to-beside", 2)]
    spread = named("from-spread", 2), [named(f"to-spread-on-{shard}", shard) for shard in range(SHARDS)]
    ways = [alone, beside, spread]
    with shardmq.connect(broker.url) as connection, connection.channel().publisher() as publisher:
        channel = connection.channel()
        for source, targets in ways:
            for name in (source, *targets):
                channel.queue_declare(name, durable=True)
            publisher.publish_many("", source, [b"%d" % number for number in range(MESSAGES)])
    movers = [Mover(broker.url, source, targets, dice.randrange(2**32)) for source, targets in ways]
    for mover in movers:
        mover.start()
    victims = sorted(broker.pids)
    for kill in range(KILLS):
        time.sleep(dice.uniform(0, CALM_SECONDS))
        broker.kill_and_wait(victims[kill % len(victims)] if kill < len(victims) else dice.choice(victims))

    def is_moved() -> bool:
        with shardmq.connect(broker.url, timeout=60) as connection:
            tables = {table["name"]: table for table in connection.status()["queues"]}
            return all(source in tables and tables[source]["valid"] == 0 for source, _ in ways) and (
                connection.topology("transactions") == []
            )

    try:
        until_moved(is_moved, movers, seed)
    finally:
        for mover in movers:
            mover.stopping.set()
    for mover in movers:
        mover.join(60)
        assert not mover.is_alive(), mover.name
        assert mover.crash is None
    with pika.BlockingConnection(movers[0].parameters) as connection:
        for mover, (_, targets) in zip(movers, ways, strict=True):
            found = [Counter(drained(connection.channel(), target)) for target in targets]
            copies = Counter(body.partition(b"/")[0] for body in found[0])
            print(f"seed {seed}: {mover.commits} of {mover.attempts} commits, {copies.total() - MESSAGES} copies")
            assert all(other == found[0] for other in found), f"seed {seed}: a commit is there in part"
            assert set(found[0].values()) == {1}, f"seed {seed}: a commit is there twice"
            assert len(copies) == MESSAGES, f"seed {seed}: {MESSAGES - len(copies)} messages are lost"
            if mover is movers[0]:
                assert copies.total() == MESSAGES, f"seed {seed}: moved again on one shard"
