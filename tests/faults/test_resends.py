"""Gateways die again and again under clients that recover: what they send again is in each queue once."""

import itertools
import os
import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker

from .saboteur import until

KILLS = int(os.environ.get("SHARDMQ_FAULT_KILLS", "3"))
QUEUES = 6
PUBLISHERS = 3
BATCH = 200


class RecoveringPublisher(threading.Thread):
    """Publishes to one queue, to two by CC, or by headers, on all kinds of terms; notes what each queue must have."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.dice = random.Random(seed)
        self.name = f"publisher-{seed}"
        self.wanted: list[set[str]] = [set() for _ in range(QUEUES)]
        self.stopping = threading.Event()
        self.crash: BaseException | None = None

    def run(self) -> None:
        try:
            with shardmq.connect(self.url, timeout=60) as connection:
                channel = connection.channel()
                batches = 0
                while not self.stopping.is_set():
                    with channel.publisher() as publisher:
                        sent = [self.publish(publisher, f"{self.name}:{batches}:{place}") for place in range(BATCH)]
                    for body, queues in sent:
                        for queue in queues:
                            self.wanted[queue].add(body)
                    batches += 1
        except BaseException as crash:
            self.crash = crash
            raise

    def publish(self, publisher: shardmq.Publisher, body: str) -> tuple[str, list[int]]:
        dice = self.dice
        first, second = dice.sample(range(QUEUES), 2)
        priority = dice.randrange(6)
        match dice.randrange(4):
            case 0:
                publisher.publish("", f"resent-{first}", body.encode())
                return body, [first]
            case 1:
                publisher.publish("", f"resent-{first}", body.encode(), shardmq.Properties(priority=priority))
                return body, [first]
            case 2:
                properties = shardmq.Properties(headers={"CC": [f"resent-{second}"]}, expiration="100000000")
                publisher.publish("", f"resent-{first}", body.encode(), properties)
            case _:
                properties = shardmq.Properties(headers={f"to-{first}": 1, f"to-{second}": 1}, priority=priority)
                publisher.publish("amq.headers", "", body.encode(), properties)
        return body, [first, second]


@pytest.mark.faults
def test_what_is_sent_again_is_stored_once_whatever_the_queues_are(start_broker: Callable[..., Broker]) -> None:
    seed = int(os.environ.get("SHARDMQ_FAULT_SEED", random.randrange(2**32)))
    broker = start_broker(shards=2, gateways=2)
    terms: list[dict[str, Any]] = [{"x-max-priority": 4}, {"x-max-length": 10**9, "x-overflow": "reject-publish"}, {}]
    with shardmq.connect(broker.url, timeout=60) as connection:
        channel = connection.channel()
        for number in range(QUEUES):
            channel.queue_declare(f"resent-{number}", durable=True, arguments=terms[number % 3])
            arguments = {"x-match": "any", f"to-{number}": 1}
            channel.queue_bind(f"resent-{number}", "amq.headers", "", arguments=arguments)
        publishers = [RecoveringPublisher(broker.url, seed + number) for number in range(PUBLISHERS)]
        for publisher in publishers:
            publisher.start()
        until(lambda: all(publisher.wanted[0] for publisher in publishers), "traffic flows")
        for kill in range(KILLS):
            broker.kill_and_wait(f"gateway-{kill % 2}")
        for publisher in publishers:
            publisher.stopping.set()
        for publisher in publishers:
            publisher.join(60)
            assert not publisher.is_alive()
            assert publisher.crash is None, seed
        for number in range(QUEUES):
            wanted = set().union(*[publisher.wanted[number] for publisher in publishers])
            assert wanted
            stored = channel.queue_declare(f"resent-{number}", passive=True).messages
            messages = itertools.islice(channel.consume(f"resent-{number}", auto_ack=True), stored)
            got = Counter(message.body.decode() for message in messages if message is not None)
            assert not wanted - got.keys(), f"seed {seed}: {len(wanted - got.keys())} of {len(wanted)} are lost"
            assert got.keys() == wanted, f"seed {seed}: {len(got.keys() - wanted)} were never confirmed"
            assert max(got.values()) == 1, seed
