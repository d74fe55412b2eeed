"""The same ledgers, kept by AMQP clients: who publishes by one protocol is consumed by either, while processes die."""

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pika
import pytest
from pika.exceptions import NackError, UnroutableError

from shardmq.cmd.run.broker import Broker

from . import ledgers
from .ledgers import RETRY_SECONDS, Client, Ledger, ReconnectingAmqpClient
from .test_kills import CALM_SECONDS, declare, wait_until_drained

KILLS = int(os.environ.get("SHARDMQ_FAULT_KILLS", "6"))


class AmqpClient(ReconnectingAmqpClient, Client):
    """A client over pika that keeps a ledger."""


class AmqpPublisher(AmqpClient):
    """Publishes each id once; what is neither confirmed nor refused is uncertain."""

    def __init__(self, url: str, ledger: Ledger, name: str, exchange: str) -> None:
        super().__init__(url, ledger, name)
        self.exchange = exchange
        self.number = 0

    def talk(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        channel.confirm_delivery()
        while not self.stopping.is_set():
            self.number += 1
            name = f"{self.name}:{self.number}"
            self.ledger.published.add(name)
            properties = pika.BasicProperties(delivery_mode=2, message_id=name, headers={"n": self.number})
            try:
                channel.basic_publish(self.exchange, "k", name.encode(), properties, mandatory=True)
            except (NackError, UnroutableError):
                time.sleep(RETRY_SECONDS)
                continue
            self.ledger.confirmed.add(name)


class AmqpConsumer(AmqpClient):
    """Notes and acks all it is given from one queue."""

    def __init__(self, url: str, ledger: Ledger, name: str, queue: str) -> None:
        super().__init__(url, ledger, name)
        self.queue = queue

    def talk(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=100)
        for method, _, body in channel.consume(self.queue, inactivity_timeout=0.2):
            if method is not None:
                name = body.decode()
                if name not in self.ledger.published:
                    self.ledger.unknown.append(name)
                if self.ledger.received[name] and not method.redelivered:
                    self.ledger.unmarked_copies.append(name)
                self.ledger.received[name] += 1
                channel.basic_ack(method.delivery_tag)
            if self.stopping.is_set():
                return


@pytest.mark.faults
@pytest.mark.parametrize("gateways", [1, 2])  # one forwards messages to consumers before their shard has them
def test_nothing_confirmed_is_lost_between_the_protocols_whoever_dies(
    start_broker: Callable[..., Broker], tmp_path: Path, gateways: int
) -> None:
    seed = int(os.environ.get("SHARDMQ_FAULT_SEED", random.randrange(2**32)))
    dice = random.Random(seed)
    broker = start_broker(shards=4, gateways=gateways, data_dir=tmp_path / "data")
    queues = declare(broker.url)
    pairs = [(queue, Ledger()) for queue in queues]
    kinds = [
        (AmqpPublisher, AmqpConsumer),
        (AmqpPublisher, ledgers.Consumer),
        (ledgers.Publisher, AmqpConsumer),
        (AmqpPublisher, AmqpConsumer),
    ]
    clients: list[Client] = []
    for (queue, ledger), (publisher, consumer) in zip(pairs, kinds, strict=True):
        clients += [
            publisher(broker.url, ledger, f"p-{queue}", f"to-{queue}"),
            consumer(broker.url, ledger, f"c-{queue}", queue),
        ]
    for client in clients:
        client.start()
    victims = sorted(broker.pids)
    for kill in range(KILLS):
        time.sleep(dice.uniform(0, CALM_SECONDS))
        broker.kill_and_wait(victims[kill % len(victims)] if kill < len(victims) else dice.choice(victims))
    for client in clients[::2]:
        client.stopping.set()
        client.join(60)
    wait_until_drained(broker.url, queues)
    for client in clients:
        client.stopping.set()
        client.join(60)
        assert not client.is_alive(), client.name
        assert client.crash is None
    for _, ledger in pairs:
        print(f"seed {seed}, {KILLS} kills: {ledger.verdict()}")
        assert ledger.confirmed, "the test proves nothing when nothing was confirmed"
        assert not ledger.confirmed - ledger.received.keys()
        assert not ledger.unknown
        assert not ledger.unmarked_copies
