"""Publishers that note what was confirmed and consumers that note what they were given, while all around them dies."""

import itertools
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import pika
from pika.exceptions import AMQPError

import shardmq
from shardmq.client.api.recovery import Recovery
from shardmq.errors import ConnectionLost, ShardmqError

RETRY_SECONDS = 0.05
RUN = 40


@dataclass
class Ledger:
    """What happened, as seen from the clients."""

    published: set[str] = field(default_factory=set)
    confirmed: set[str] = field(default_factory=set)
    received: Counter[str] = field(default_factory=Counter)
    acked: set[str] = field(default_factory=set)
    unmarked_copies: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def verdict(self) -> str:
        """One line for people, in the words of rabbitmq/jepsen's checker."""
        return (
            f"attempted {len(self.published)}, confirmed {len(self.confirmed)}, received {len(self.received)}, "
            f"lost {len(self.confirmed - self.received.keys())}, unknown {len(self.unknown)}, "
            f"recovered {len(self.received.keys() - self.confirmed)}, "
            f"copies {sum(self.received.values()) - len(self.received)}, unmarked copies {len(self.unmarked_copies)}"
        )


class ReconnectingClient(threading.Thread):
    """A client that connects again whenever it must, until it is told to stop.

    Attributes:
        recovery: of its connections: none, so that it sees them lost.
        pause_seconds: to leave the processor to others, between two things that it does.
    """

    recovery: Recovery | None = None
    pause_seconds = 0.0

    def __init__(self, url: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.url = url
        self.stopping = threading.Event()
        self.crash: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                try:
                    with shardmq.connect(self.url, timeout=20, recovery=self.recovery) as connection:
                        self.work(connection)
                except (ShardmqError, OSError):
                    time.sleep(RETRY_SECONDS)
        except BaseException as crash:
            self.crash = crash
            raise

    def work(self, connection: shardmq.Connection) -> None:
        raise NotImplementedError


class ReconnectingAmqpClient(ReconnectingClient):
    """One that does so over AMQP, with pika."""

    def parameters(self) -> list[pika.URLParameters]:
        """Where to connect to, one after the other."""
        return [pika.URLParameters(self.url.replace("shardmq://", "amqp://").rstrip("/") + "/%2F")]

    def run(self) -> None:
        parameters = self.parameters()
        try:
            while not self.stopping.is_set():
                try:
                    with pika.BlockingConnection(parameters) as connection:
                        self.talk(connection)
                except (AMQPError, OSError):
                    time.sleep(RETRY_SECONDS)
        except BaseException as crash:
            self.crash = crash
            raise

    def talk(self, connection: pika.BlockingConnection) -> None:
        raise NotImplementedError


class Client(ReconnectingClient):
    """One that keeps a ledger."""

    def __init__(self, url: str, ledger: Ledger, name: str) -> None:
        super().__init__(url, name)
        self.ledger = ledger


class Publisher(Client):
    """Publishes each id once, alone or in batches; what is neither confirmed nor refused is uncertain."""

    def __init__(self, url: str, ledger: Ledger, name: str, exchange: str) -> None:
        super().__init__(url, ledger, name)
        self.exchange = exchange
        self.numbers = itertools.count()

    def work(self, connection: shardmq.Connection) -> None:
        channel = connection.channel()
        while not self.stopping.is_set():
            number = next(self.numbers)
            ids = [f"{self.name}:{number}:{i}" for i in range(RUN if number % 3 else 1)]
            self.ledger.published.update(ids)
            try:
                if len(ids) == 1:
                    channel.basic_publish(self.exchange, "k", ids[0].encode())
                else:
                    with channel.publisher() as publisher:
                        publisher.publish_many(self.exchange, "k", [i.encode() for i in ids])
            except ConnectionLost:
                raise
            except ShardmqError:
                time.sleep(RETRY_SECONDS)
                continue
            self.ledger.confirmed.update(ids)
            if self.pause_seconds:
                self.stopping.wait(self.pause_seconds)


class Consumer(Client):
    """Notes and acks all it is given from one queue."""

    def __init__(self, url: str, ledger: Ledger, name: str, queue: str) -> None:
        super().__init__(url, ledger, name)
        self.queue = queue

    def work(self, connection: shardmq.Connection) -> None:
        channel = connection.channel()
        while not self.stopping.is_set():
            for message in channel.consume(self.queue, prefetch=100, inactivity_timeout=0.5):
                self.note(message)
                message.ack()
                if self.stopping.is_set():
                    break

    def note(self, message: shardmq.Message) -> None:
        body = message.body.decode()
        if body not in self.ledger.published:
            self.ledger.unknown.append(body)
        if self.ledger.received[body] and not message.redelivered:
            self.ledger.unmarked_copies.append(body)
        self.ledger.received[body] += 1
        self.ledger.acked.add(body)
