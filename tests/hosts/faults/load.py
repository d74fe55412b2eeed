"""Clients of all kinds, on the client's host, and what must be true of what they saw."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from typing import Any, Final, Protocol

import pika
from pika.exceptions import NackError, UnroutableError

import shardmq
from shardmq.client.api.recovery import DEFAULT_RECOVERY
from tests.faults.group_traffic import Book, members, read_everything
from tests.faults.histories import History
from tests.faults.ledgers import Consumer, Ledger, Publisher, ReconnectingAmqpClient
from tests.faults.programs import Program
from tests.faults.saboteur import until
from tests.hosts.hosts import CLIENT, Hosts

PAUSE_SECONDS: Final = 0.03
SETTLE_SECONDS: Final = 60.0
PARTITIONS: Final = 4
BATCH: Final = 20


class Work(Protocol):
    """Some clients, and what they noted.

    Attributes:
        name: for people.
    """

    name: str

    def steps(self) -> int:
        """How far they have come: goes up while all is well."""

    def due(self) -> Callable[[], bool]:
        """Whether what was confirmed by now has arrived."""

    def wrongs(self) -> list[str]:
        """What must not be, as far as is known while they work."""

    def finish(self) -> tuple[str, list[str]]:
        """End them; returns what they did, and what is wrong."""


class OrderedConsumer(Consumer):
    """Notes what comes unmarked behind what its publisher sent later.

    What was not confirmed when its publisher lost the connection may come later still, and never is: a network that is
    cut holds back what a gateway has sent, also when that is dead and the publisher has gone on at another one.
    """

    def __init__(self, url: str, ledger: Ledger, name: str, queue: str) -> None:
        super().__init__(url, ledger, name, queue)
        self._late: dict[str, str] = {}
        self._last: dict[str, tuple[int, int]] = {}

    def note(self, message: Any) -> None:
        super().note(message)
        publisher, number, place = message.body.decode().split(":")
        here = int(number), int(place)
        if not message.redelivered:
            if here <= (last := self._last.get(publisher, (-1, -1))):
                self._late[message.body.decode()] = f"{publisher}:{here} came unmarked behind {last}"
            self._last[publisher] = max(here, last)

    @property
    def reordered(self) -> list[str]:
        """What came so of what was confirmed by now."""
        return [text for each, text in list(self._late.items()) if each in self.ledger.confirmed]


class AmqpMeans(ReconnectingAmqpClient):
    """Knows all gateways, and notices one that hangs."""

    def parameters(self) -> list[pika.URLParameters]:
        login, _, hosts = self.url.rstrip("/").removeprefix("shardmq://").rpartition("@")
        options = "heartbeat=6&blocked_connection_timeout=20&socket_timeout=5"
        return [pika.URLParameters(f"amqp://{login}@{host}/%2F?{options}") for host in hosts.split(",")]


class AmqpPublisher(AmqpMeans, Publisher):
    """With confirms, one at a time."""

    def talk(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        channel.confirm_delivery()
        persistent = pika.BasicProperties(delivery_mode=2)
        while not self.stopping.is_set():
            body = f"{self.name}:{next(self.numbers)}:0"
            self.ledger.published.add(body)
            try:
                channel.basic_publish(self.exchange, "k", body.encode(), persistent, mandatory=True)
            except (NackError, UnroutableError):
                connection.sleep(PAUSE_SECONDS)
                continue
            self.ledger.confirmed.add(body)
            connection.sleep(self.pause_seconds)


class AmqpMessage:
    """What a consumer's notes need."""

    def __init__(self, body: bytes, redelivered: bool) -> None:
        self.body, self.redelivered = body, redelivered


class AmqpConsumer(AmqpMeans, OrderedConsumer):
    """With acks."""

    def talk(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=50)
        for method, _, body in channel.consume(self.queue, inactivity_timeout=0.5):
            if method is not None:
                self.note(AmqpMessage(body, method.redelivered))
                channel.basic_ack(method.delivery_tag)
            if self.stopping.is_set():
                return


class SteadyPublisher(Publisher):
    """Leaves it to the SDK to come back."""

    recovery = DEFAULT_RECOVERY


class SteadyConsumer(OrderedConsumer):
    """Leaves it to the SDK to come back."""

    recovery = DEFAULT_RECOVERY


class Queue:
    """A publisher and a consumer of a queue.

    Args:
        url: of the broker.
        name: of the queue.
        publisher: what kind.
        consumer: what kind.
    """

    def __init__(self, url: str, name: str, publisher: type[Publisher], consumer: type[OrderedConsumer]) -> None:
        self.name = name
        with shardmq.connect(url, timeout=30) as connection, connection.channel() as channel:
            channel.exchange_declare(f"to-{name}", "fanout", durable=True)
            channel.queue_declare(name, durable=True)
            channel.queue_bind(name, f"to-{name}", "")
        self.ledger = Ledger()
        self._publisher = publisher(url, self.ledger, f"p-{name}", f"to-{name}")
        self._publisher.pause_seconds = PAUSE_SECONDS
        self._consumer = consumer(url, self.ledger, f"c-{name}", name)
        self._publisher.start()
        self._consumer.start()

    def steps(self) -> int:
        return len(self.ledger.confirmed)

    def due(self) -> Callable[[], bool]:
        owed = self.ledger.confirmed.copy()

        def is_there() -> bool:
            owed.difference_update(list(self.ledger.received))
            return not owed

        return is_there

    def wrongs(self) -> list[str]:
        ledger = self.ledger
        found = [f"{each} came twice, the second time unmarked" for each in ledger.unmarked_copies[:5]]
        found += [f"{each} came from nowhere" for each in ledger.unknown[:5]]
        found += self._consumer.reordered[:5]
        return [f"{self.name}: {wrong}" for wrong in found] + _crashes(self._publisher, self._consumer)

    def finish(self) -> tuple[str, list[str]]:
        end(self._publisher)
        lost: set[str] = set()
        try:
            until(self.due(), "all arrives", SETTLE_SECONDS)
        except AssertionError:
            lost = self.ledger.confirmed - self.ledger.received.keys()
        end(self._consumer)
        missing = [f"{self.name}: {len(lost)} confirmed messages are lost: {sorted(lost)[:5]}"] if lost else []
        return self.ledger.verdict(), [*self.wrongs(), *missing]


class Transactions:
    """Programs that publish in transactions to some queues: each is there whole, once, or not at all.

    Args:
        url: of the broker.
        seed: of what they do.
        queues: names of theirs.
        programs: how many.
    """

    def __init__(self, url: str, seed: int, queues: Sequence[str], programs: int = 2) -> None:
        self.name = f"transactions over {', '.join(queues)}"
        self._url = url
        self._queues = queues
        with shardmq.connect(url, timeout=30) as connection, connection.channel() as channel:
            for queue in self._queues:
                channel.queue_declare(queue, durable=True)
        self._programs = [Program(url, seed + n, self._queues, BATCH, 3 * PAUSE_SECONDS) for n in range(programs)]
        for program in self._programs:
            program.start()

    def steps(self) -> int:
        return sum(len(program.committed) for program in self._programs)

    def due(self) -> Callable[[], bool]:
        return lambda: True

    def wrongs(self) -> list[str]:
        return _crashes(*self._programs)

    def finish(self) -> tuple[str, list[str]]:
        for program in self._programs:
            program.stopping.set()
        for program in self._programs:
            program.join(4 * SETTLE_SECONDS)
        found = [f"{program.name} does not end" for program in self._programs if program.is_alive()]
        committed = set[str]().union(*[program.committed for program in self._programs])
        void = set[str]().union(*[program.void for program in self._programs])
        told = f"{len(committed)} committed, {len(void)} void"
        if found or (found := self.wrongs()):
            return told, found
        found = [f"{name} is committed and void" for name in sorted(committed & void)]
        expected = Counter(f"{name}/{number}" for name in committed for number in range(BATCH))
        with shardmq.connect(self._url, timeout=60) as connection, connection.channel() as channel:
            for queue in self._queues:
                is_there = lambda queue=queue: messages(channel, queue) >= len(expected)  # noqa: E731
                with suppress(AssertionError):  # what is missing is told
                    until(is_there, "all has appeared", SETTLE_SECONDS)
                bodies = drained(channel, queue)
                found += [f"{queue} lacks {each} of a committed transaction" for each in [*(expected - bodies)][:5]]
                found += [f"{queue} has {each} twice, or of no transaction" for each in [*(bodies - expected)][:5]]
        return told, found


class Groups:
    """Producers of a topic, and members of an ordered and of a shared group of it.

    Args:
        url: of the broker.
    """

    name = "groups"

    def __init__(self, url: str) -> None:
        self._url = url
        self._book = Book(PARTITIONS)
        self._stack = ExitStack()
        self._stack.enter_context(members(url, self._book, 1))

    def steps(self) -> int:
        """Of the one that has come less far."""
        return min(len(came) for came in self._book.came.values())

    def due(self) -> Callable[[], bool]:
        return lambda: True

    def wrongs(self) -> list[str]:
        return list(self._book.wrongs)

    def finish(self) -> tuple[str, list[str]]:
        try:
            self._stack.close()
        except AssertionError as fault:
            return "", [f"groups: {fault}"]
        reader, ends = read_everything(self._url, PARTITIONS)
        history = History([*self._book.steps, reader])
        found = self._book.verdict(history, ends)
        told = f"{sum(ends.values())} messages in {len(self._book.steps)} steps"
        return told, [f"groups, {kind}: {each}" for kind, wrongs in found.items() for each in wrongs[:5]]


def end(*clients: Any) -> None:
    for client in clients:
        client.stopping.set()
    for client in clients:
        client.join(SETTLE_SECONDS)
        assert not client.is_alive(), f"{client.name} does not end"


def _crashes(*clients: Any) -> list[str]:
    return [f"{client.name} crashed: {client.crash!r}" for client in clients if client.crash is not None]


def messages(channel: shardmq.Channel, queue: str) -> int:
    return channel.queue_declare(queue, passive=True).messages


def drained(channel: shardmq.Channel, queue: str) -> Counter[str]:
    """What is in a queue that nobody publishes to; it is empty then."""
    found: Counter[str] = Counter()
    while waiting := messages(channel, queue):
        for message in channel.consume(queue, auto_ack=True, inactivity_timeout=5.0):
            found[message.body.decode()] += 1
            waiting -= 1
            if not waiting:
                break
    return found


@contextmanager
def working(hosts: Hosts, url: str, seed: int, is_short: bool) -> Iterator[list[Work]]:
    """All clients; they end when this is left, if they were not finished."""
    with hosts[CLIENT].inside():
        works: list[Work] = [
            Queue(url, "sdk", Publisher, OrderedConsumer),
            Queue(url, "steady", SteadyPublisher, SteadyConsumer),
            Queue(url, "amqp", AmqpPublisher, AmqpConsumer),
        ]
        if not is_short:
            works.append(Queue(url, "sdk-2", Publisher, OrderedConsumer))
        whole = [f"whole-{number}" for number in range(3)]
        works += [Transactions(url, seed, whole, 1 if is_short else 2), Groups(url)]
    yield works


def added_to(url: str, shard: int, seed: int) -> list[Work]:
    """More clients, of queues on a shard that was added, and of transactions over it and another one."""
    names = queues_on(url, shard, 3)
    return [
        Queue(url, names[0], SteadyPublisher, SteadyConsumer),
        Queue(url, names[1], AmqpPublisher, AmqpConsumer),
        Transactions(url, seed + 100 * shard, [names[2], f"beside-{names[2]}"], 1),
    ]


def queues_on(url: str, shard: int, wanted: int) -> list[str]:
    """Declare queues until so many are on a shard; others are deleted."""
    found: list[str] = []
    numbers = count()

    def are_found() -> bool:
        name = f"on-{shard}-{next(numbers)}"
        channel.queue_declare(name, durable=True)
        (place,) = channel.queue_places(name)
        if place.shard == shard:
            found.append(name)
        else:
            channel.queue_delete(name)
        return len(found) == wanted

    with shardmq.connect(url, timeout=30) as connection, connection.channel() as channel:
        until(are_found, f"new queues are placed on shard-{shard}", SETTLE_SECONDS)
    return found
