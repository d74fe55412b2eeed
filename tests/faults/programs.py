"""Programs that publish in transactions, and note which are committed, while all around them dies."""

import random
import threading
import time
from collections.abc import Sequence
from typing import Final

import shardmq
from shardmq.errors import ShardmqError

SETTLE_SECONDS: Final = 60.0


class Program(threading.Thread):
    """One transaction after the other, over all queues; some are given up, some forgotten, one is asked for twice.

    Args:
        url: of the broker.
        seed: of what it does.
        queues: to publish to.
        batch: messages to each of them in one transaction.
        pause_seconds: between two transactions.

    Attributes:
        committed: names the broker says are committed.
        void: names that nothing may be left of.
        doubtful: names that were not settled when the program ended.
    """

    def __init__(self, url: str, seed: int, queues: Sequence[str], batch: int, pause_seconds: float = 0.0) -> None:
        super().__init__(daemon=True, name=f"program-{seed % 1000}")
        self.url = url
        self.queues = queues
        self.batch = batch
        self.pause_seconds = pause_seconds
        self.dice = random.Random(seed)
        self.committed: set[str] = set()
        self.void: set[str] = set()
        self.doubtful: list[str] = []
        self.stopping = threading.Event()
        self.crash: BaseException | None = None

    def run(self) -> None:
        try:
            with shardmq.connect(self.url, timeout=60) as connection:
                turn = 0
                while not self.stopping.is_set():
                    self.try_one(connection, f"{self.name}/{turn}")
                    turn += 1
                    if self.pause_seconds:
                        self.stopping.wait(self.pause_seconds)
                self.settle(connection)
        except BaseException as crash:
            self.crash = crash
            raise

    def try_one(self, connection: shardmq.Connection, name: str) -> None:
        fate = self.dice.random()
        try:
            with connection.channel() as channel:
                if fate < 0.1:
                    self.give_up(channel, name)
                elif fate < 0.2:
                    self.publish(channel.transaction(name), name)  # and never thought of again
                    self.doubtful.append(name)
                else:
                    with channel.transaction(name, timeout_ms=3_600_000) as transaction:
                        self.publish(transaction, name)
                    self.committed.add(name)
        except ShardmqError:
            self.doubtful.append(name)

    def give_up(self, channel: shardmq.Channel, name: str) -> None:
        transaction = channel.transaction(name)
        self.publish(transaction, name)
        transaction.abort()
        self.void.add(name)

    def publish(self, transaction: shardmq.Transaction, name: str) -> None:
        for queue in self.queues:
            transaction.publish_many("", queue, [f"{name}/{number}".encode() for number in range(self.batch)])

    def settle(self, connection: shardmq.Connection) -> None:
        """Nobody knows what became of these: whoever asks by name is told, and can still decide."""
        for name in self.doubtful:
            deadline = time.monotonic() + SETTLE_SECONDS
            while True:
                try:
                    with connection.channel() as channel:
                        transaction = channel.transaction(name)
                        if transaction.is_committed:
                            self.committed.add(name)
                        else:
                            transaction.abort()
                            self.void.add(name)
                    break
                except ShardmqError:
                    assert time.monotonic() < deadline, f"{name} is not settled"
