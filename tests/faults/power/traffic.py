"""Clients that write a history: publishers, consumers, transactions. They connect again when they must."""

import contextlib
import itertools
import time
from collections.abc import Iterator

import pika
from pika.exceptions import NackError, UnroutableError

import shardmq
from shardmq.errors import ConnectionLost, ShardmqError
from tests.faults.ledgers import RETRY_SECONDS, ReconnectingAmqpClient, ReconnectingClient
from tests.faults.saboteur import until

from . import groups
from .history import History, Transacted

KEPT, COPIED, WORKED, DYING, DEAD, LEFT, RIGHT = "kept", "copied", "worked", "dying", "dead", "left", "right"
"""Queues: two only published to; one consumed and acked; one consumed and rejected, and where that leads; two for
transactions."""

ALL_OF_BOTH = (KEPT, COPIED, WORKED)
"""What the exchange leads to: of three queues, two at least are on one of two shards, and share bodies."""

BODY_BYTES = 200
"""Of a message to several queues, blanks included: a run of them is large enough to be stored once."""

QUEUES = (KEPT, COPIED, WORKED, DYING, DEAD, LEFT, RIGHT)
HOMES = {DYING: DEAD}

RUN = 25


def declare(url: str) -> None:
    """The queues, and an exchange that leads to three of them."""
    with shardmq.connect(url) as connection, connection.channel() as channel:
        for queue in QUEUES:
            arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD} if queue == DYING else None
            channel.queue_declare(queue, durable=True, arguments=arguments)
        channel.topic_declare(groups.TOPIC, groups.PARTITIONS)
        channel.exchange_declare("both", "fanout", durable=True)
        for queue in ALL_OF_BOTH:
            channel.queue_bind(queue, "both", "")


class _Client(ReconnectingClient):
    """One that writes the history."""

    def __init__(self, url: str, history: History, name: str) -> None:
        super().__init__(url, name)
        self.history = history


class _Publisher(_Client):
    """Publishes each message once, alone or in batches, to three queues, to one, or to the one whose messages die."""

    def work(self, connection: shardmq.Connection) -> None:
        channel = connection.channel()
        for turn in itertools.count():
            if self.stopping.is_set():
                return
            exchange, key, queues = [("both", "", ALL_OF_BOTH), ("", KEPT, (KEPT,)), ("", DYING, (DYING,))][turn % 3]
            ids = self.history.send(self.name, queues, RUN if turn % 2 else 1)
            bodies = [name.encode().ljust(BODY_BYTES if exchange else 0) for name in ids]
            try:
                if len(ids) == 1:
                    channel.basic_publish(exchange, key, bodies[0])
                else:
                    with channel.publisher() as publisher:
                        publisher.publish_many(exchange, key, bodies)
            except ConnectionLost:
                raise
            except ShardmqError:
                time.sleep(RETRY_SECONDS)
                continue
            self.history.confirm(ids)


class _AmqpPublisher(ReconnectingAmqpClient, _Client):
    """Publishes one message after the other to a queue whose consumer has most of them before they are on disk."""

    def talk(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        channel.confirm_delivery()
        persistent = pika.BasicProperties(delivery_mode=2)
        while not self.stopping.is_set():
            ids = self.history.send(self.name, [WORKED])
            try:
                channel.basic_publish("", WORKED, ids[0].encode(), persistent, mandatory=True)
            except (NackError, UnroutableError):
                time.sleep(RETRY_SECONDS)
                continue
            self.history.confirm(ids)


class _Consumer(_Client):
    """Acks, or rejects, most of what it gets; the rest it holds."""

    def __init__(self, url: str, history: History, queue: str) -> None:
        super().__init__(url, history, f"consumer-of-{queue}")
        self.queue = queue

    def work(self, connection: shardmq.Connection) -> None:
        channel = connection.channel()
        for number, message in enumerate(channel.consume(self.queue, prefetch=60, inactivity_timeout=0.5)):
            if self.stopping.is_set():
                return
            if message is None:
                continue
            seen = self.history.receive(self.queue, message.body.decode().rstrip())
            if number % 20 == 7:
                continue
            seen.settled_at = time.monotonic_ns()
            if self.queue == DYING:
                seen.settled_at = None  # it must be in one queue or the other
                message.nack(requeue=False)
            else:
                message.ack()


class _Program(_Client):
    """One transaction after the other, over two queues."""

    def work(self, connection: shardmq.Connection) -> None:
        for turn in itertools.count():
            if self.stopping.is_set():
                return
            name = f"{self.name}/{time.monotonic_ns()}/{turn}"
            transacted = self.history.transactions[name] = Transacted({LEFT: RUN, RIGHT: RUN})
            ids = {queue: self.history.send(f"{self.name}-{queue}", [queue], RUN, name) for queue in (LEFT, RIGHT)}
            with connection.channel() as channel:
                transaction = channel.transaction(name)
                for queue, names in ids.items():
                    transaction.publish_many("", queue, [each.encode() for each in names])
                if turn % 4 == 3:
                    transaction.abort()
                    continue
                transacted.asked_at = time.monotonic_ns()
                transaction.commit()
                transacted.committed_at = time.monotonic_ns()


class _TopicPublisher(_Client):
    """Publishes to the partitions of a topic, in turns."""

    def work(self, connection: shardmq.Connection) -> None:
        channel = connection.channel()
        for stream in itertools.cycle(groups.STREAMS):
            if self.stopping.is_set():
                return
            ids = self.history.send(f"{self.name}-{stream}", [stream], 5)
            with channel.publisher() as publisher:
                publisher.publish_many("", stream, [each.encode() for each in ids])
            self.history.confirm(ids)


class _Member(_Client):
    """Is a member of a group, again and again."""

    def __init__(self, url: str, history: History, group: str) -> None:
        super().__init__(url, history, f"member-of-{group}")
        self.group = group

    def work(self, connection: shardmq.Connection) -> None:
        consume = groups.consume_in_order if self.group == groups.ORDERED else groups.consume_in_turn
        while not self.stopping.is_set():
            with connection.channel() as channel:
                consume(channel, self.history.groups)


@contextlib.contextmanager
def running(url: str, history: History, only_transactions: bool = False) -> Iterator[None]:
    """Traffic, for as long as this lasts."""
    clients: list[_Client] = [_Program(url, history, "program")]
    if not only_transactions:
        clients += [_Publisher(url, history, f"publisher-{number}") for number in range(2)]
        clients.append(_AmqpPublisher(url, history, "amqp-publisher"))
        clients += [_Consumer(url, history, WORKED), _Consumer(url, history, DYING)]
        clients += [_TopicPublisher(url, history, "topic-publisher")]
        clients += [_Member(url, history, group) for group in (groups.ORDERED, groups.SHARED, groups.SHARED)]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        for client in clients:
            client.stopping.set()
        for client in clients:
            client.join(60)
            assert not client.is_alive(), client.name
            assert client.crash is None, client.name


def drain(url: str) -> tuple[dict[str, list[tuple[str, bool]]], groups.Left]:
    """All that is in the queues, in order: (message, whether it was marked redelivered). They are empty then.

    And what is left of the groups.
    """
    found: dict[str, list[tuple[str, bool]]] = {queue: [] for queue in QUEUES}
    with shardmq.connect(url, timeout=30) as connection, connection.channel() as channel:
        until(lambda: _is_settled(connection), "decided transactions have joined their queues")
        for queue in QUEUES:
            ready = channel.queue_declare(queue, durable=True, passive=True).messages
            if ready:
                for message in channel.consume(queue, auto_ack=True, inactivity_timeout=5.0):
                    assert message is not None, f"{queue}: {len(found[queue])} of {ready} came"
                    found[queue].append((message.body.decode().rstrip(), message.redelivered))
                    if len(found[queue]) == ready:
                        break
            assert channel.basic_get(queue, auto_ack=True) is None
        left, kept = groups.look(channel)
    return found | kept, left


def _is_settled(connection: shardmq.Connection) -> bool:
    tables = connection.status()
    return all(not table.get("concluding") for table in tables["processes"]) and all(
        table["valid"] == table["ready"] for table in tables["queues"]
    )
