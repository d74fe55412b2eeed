"""Members of an ordered and of a shared group of one topic, and producers; they note what they do and saw.

What a member was told is committed may come to nobody who joins after that; what came may come again, but marked.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import shardmq
from shardmq.errors import ConnectionLost, ShardmqError

from .histories import History, Polled, Sent, Step, anomalies
from .ledgers import ReconnectingClient
from .saboteur import until

TOPIC: Final = "work"
ORDERED: Final = "ordered"
SHARED: Final = "shared"
PULL: Final = 10
PAUSE_SECONDS: Final = 0.02
POLL_SECONDS: Final = 0.2
SETTLE_SECONDS: Final = 90.0

Place = tuple[int, int]
"""Partition and offset."""


class Book:
    """What all of them note.

    Args:
        partitions: of the topic.

    Attributes:
        steps: of producers, and of the ordered group's members.
        wrongs: what must not be.
        committed: by partition, the highest offset that somebody was told is the ordered group's.
        done: messages that somebody was told are acknowledged in the shared group, and when that was.
        came: by group, how often each message came without a mark, and at all.
    """

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.steps: list[Step] = []
        self.wrongs: list[str] = []
        self.committed = dict.fromkeys(range(partitions), 0)
        self.done: dict[Place, float] = {}
        self.unmarked: dict[str, Counter[Place]] = {ORDERED: Counter(), SHARED: Counter()}
        self.came: dict[str, set[Place]] = {ORDERED: set(), SHARED: set()}
        self.values: dict[Place, set[str]] = {}
        self._lock = threading.Lock()

    def note(self, step: Step) -> None:
        """A producer's step."""
        with self._lock:
            self.steps.append(step)

    def receive(self, group: str, messages: list[shardmq.Message]) -> list[Place]:
        """Messages came to a member of a group."""
        places = []
        with self._lock:
            for message in messages:
                place = message.partition or 0, message.offset or 0
                places.append(place)
                self.came[group].add(place)
                self.values.setdefault(place, set()).add(message.body.decode())
                self.unmarked[group][place] += not message.redelivered
        return places

    def commit(self, offsets: dict[int, int]) -> None:
        """A member of the ordered group was told where the group is."""
        with self._lock:
            for number, offset in offsets.items():
                self.committed[number] = max(self.committed[number], offset)

    def finish(self, places: list[Place]) -> None:
        """A member of the shared group was told that messages are acknowledged."""
        now = time.monotonic()
        with self._lock:
            for place in places:
                self.done.setdefault(place, now)

    def look(self, before: dict[int, int], rows: list[dict[str, object]]) -> None:
        """Somebody asked where the ordered group is; `before` is what was known when it was asked."""
        for row in rows:
            number, offset = row["partition"], row["offset"]
            assert isinstance(number, int)
            if before[number] > (offset if isinstance(offset, int) else 0):
                self.wrongs.append(f"partition {number} went back from {before[number]} to {offset}")

    def verdict(self, history: History, ends: dict[int, int]) -> dict[str, list[str]]:
        """What is wrong, by kind; the readers of the history have read all, and both groups have.

        Args:
            history: of producers, of the ordered group's members, and of readers.
            ends: by partition, the offset behind its last message.
        """
        found = anomalies(history)
        wrongs = list(self.wrongs)
        for group, came in self.came.items():
            everything = {(number, offset) for number, end in ends.items() for offset in range(end)}
            wrongs += [f"nobody of group '{group}' got {place}" for place in sorted(everything - came)]
            wrongs += [
                f"{place} came {count} times without a mark to group '{group}'"
                for place, count in self.unmarked[group].items()
                if count > 1
            ]
        wrongs += [f"{place} is {sorted(each)}" for place, each in self.values.items() if len(each) > 1]
        return found | ({"groups": wrongs} if wrongs else {})


class Producer(ReconnectingClient):
    """Sends some messages at a time to one partition after the other."""

    def __init__(self, url: str, book: Book, name: str) -> None:
        super().__init__(url, name)
        self._book = book
        self._number = 0

    def work(self, connection: shardmq.Connection) -> None:
        channel = connection.channel()
        while not self.stopping.is_set():
            key = f"{TOPIC}-{random.randrange(self._book.partitions)}"
            count = random.randint(1, 8)
            values = [f"{self.name}:{number}" for number in range(self._number, self._number + count)]
            self._number += count
            is_sent = False
            try:
                with suppress_refusals(), channel.publisher() as publisher:
                    publisher.publish_many("", key, [value.encode() for value in values])
                    publisher.flush()
                    is_sent = True
            finally:
                sent = tuple(Sent(key, value) for value in values)
                self._book.note(Step(self.name, "ok" if is_sent else "info", sent, name=values[0]))
            self.stopping.wait(PAUSE_SECONDS)


@contextmanager
def suppress_refusals() -> Iterator[None]:
    """What is refused may be sent, or not; what loses the connection is told on."""
    try:
        yield
    except ConnectionLost:
        raise
    except ShardmqError:
        time.sleep(PAUSE_SECONDS)


class OrderedMember(ReconnectingClient):
    """A member of the ordered group: polls, commits, leaves now and then. Each time it joins it is another process."""

    def __init__(self, url: str, book: Book, name: str) -> None:
        super().__init__(url, name)
        self._book = book
        self._lives = 0

    def work(self, connection: shardmq.Connection) -> None:
        self._lives += 1
        life, book = f"{self.name}.{self._lives}", self._book
        known = dict(book.committed)
        fresh: dict[str, int] = {}

        def assigned(partitions: list[tuple[int, int]]) -> None:
            fresh.update({f"{TOPIC}-{number}": offset for number, offset in partitions})

        channel = connection.channel()
        options: dict[str, object] = {"pull": PULL, "prefetch": 4 * PULL, "on_assigned": assigned}
        consumer = channel.group_consumer(TOPIC, ORDERED, start="earliest", auto_commit=False, **options)  # type: ignore[arg-type]
        turns = random.randint(20, 200)
        while turns and not self.stopping.is_set():
            turns -= 1
            messages = consumer.poll(POLL_SECONDS)
            if not messages:
                continue
            places = book.receive(ORDERED, messages)
            early = [place for place in places if place[1] < known[place[0]]]
            if early:
                book.wrongs.append(f"{life} got {early[:3]}, and {known} was committed before it joined")
            polled = tuple(
                Polled(f"{TOPIC}-{number}", offset, message.body.decode(), message.redelivered)
                for (number, offset), message in zip(places, messages, strict=True)
            )
            book.note(Step(life, "ok", polls=(polled,), assigned=dict(fresh), name=str(turns)))
            fresh.clear()
            if random.random() < 0.9:
                book.commit(consumer.commit())
        with suppress(ShardmqError):
            consumer.close()


class SharedMember(ReconnectingClient):
    """A member of the shared group: acks most of what it gets, returns some."""

    def __init__(self, url: str, book: Book, name: str) -> None:
        super().__init__(url, name)
        self._book = book

    def work(self, connection: shardmq.Connection) -> None:
        began, book = time.monotonic(), self._book
        channel = connection.channel()
        consumer = channel.group_consumer(
            TOPIC, SHARED, shared=True, start="earliest", auto_commit=False, pull=PULL, prefetch=2 * PULL
        )
        turns = random.randint(20, 200)
        while turns and not self.stopping.is_set():
            turns -= 1
            messages = consumer.poll(POLL_SECONDS)
            if not messages:
                continue
            done = []
            for place, message in zip(book.receive(SHARED, messages), messages, strict=True):
                if book.done.get(place, began) < began:
                    book.wrongs.append(f"{self.name} got {place}, which was acknowledged before it joined")
                if random.random() < 0.1:
                    message.nack(delay_ms=random.choice((0, 20)))
                else:
                    message.ack()
                    done.append(place)
            consumer.commit()
            book.finish(done)
        consumer.close()


class Onlooker(ReconnectingClient):
    """Asks where the ordered group is, again and again."""

    def __init__(self, url: str, book: Book) -> None:
        super().__init__(url, "onlooker")
        self._book = book

    def work(self, connection: shardmq.Connection) -> None:
        channel = connection.channel()
        while not self.stopping.wait(5 * PAUSE_SECONDS):
            before = dict(self._book.committed)
            try:
                rows = channel.group_offsets(TOPIC, ORDERED)
            except ConnectionLost:
                raise
            except ShardmqError:
                continue  # a shard is away
            self._book.look(before, rows)
            self._book.commit({row["partition"]: row["offset"] or 0 for row in rows})


def lag(url: str, group: str) -> int:
    """How many messages a group has not acknowledged; -1 where nobody can tell."""
    try:
        with shardmq.connect(url, timeout=20) as connection:
            rows = connection.channel().group_offsets(TOPIC, group)
    except ShardmqError:
        return -1
    return sum((row["end"] if row["offset"] is None else row["lag"]) + row["unacked"] for row in rows)


def read_everything(url: str, partitions: int) -> tuple[Step, dict[int, int]]:
    """What an independent reader finds, and where each partition ends."""
    polls, ends = [], {}
    with shardmq.connect(url, timeout=20) as connection:
        channel = connection.channel()
        for number in range(partitions):
            place = 0
            while True:
                pulled = channel.pull(TOPIC, number, place, 1000)
                key = f"{TOPIC}-{number}"
                polls.append(tuple(Polled(key, each.offset or 0, each.body.decode()) for each in pulled))
                place = ends[number] = pulled.next
                if place >= pulled.end:
                    break
    return Step("reader", "ok", polls=tuple(polls), name="all"), ends


@contextmanager
def members(url: str, book: Book, count: int) -> Iterator[list[Producer]]:
    """Two producers, and so many members of each group, who have read all that there is when this is left."""
    with shardmq.connect(url, timeout=20) as connection:
        connection.channel().topic_declare(TOPIC, book.partitions)
    producers = [Producer(url, book, f"producer{number}") for number in range(2)]
    others: list[ReconnectingClient] = [Onlooker(url, book)]
    others += [OrderedMember(url, book, f"ordered{number}") for number in range(count)]
    others += [SharedMember(url, book, f"shared{number}") for number in range(count)]
    clients = [*producers, *others]
    for client in clients:
        client.start()
    try:
        yield producers
        stop(producers)
        for group in (ORDERED, SHARED):
            until(lambda group=group: lag(url, group) == 0, f"group '{group}' has read all", SETTLE_SECONDS)
    finally:
        stop(clients)


def stop(clients: list[Producer] | list[ReconnectingClient]) -> None:
    """Have clients end, and wait for that."""
    for client in clients:
        client.stopping.set()
    for client in clients:
        client.join(60)
        assert not client.is_alive(), client.name
        assert client.crash is None, client.name
