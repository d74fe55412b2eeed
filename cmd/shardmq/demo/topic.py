"""The second act of the demo: the flights in a topic, counted by carrier by three groups and by Spark.

ordered  three processes share the partitions; one is killed. Counts and offsets are committed in transactions
shared   eight workers on the same partitions, each batch to whoever is free; a shard is killed
read     one reader, in order, from the beginning; then the group is reset, and it reads again
Spark    half of the flights, then from its checkpoint the rest
"""

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from shardmq.client.sync.connection import connect
from shardmq.cmd.demo.flights import Flights
from shardmq.cmd.demo.member import COUNTS, GROUP, TOPIC
from shardmq.cmd.demo.ordered import IDLE_SECONDS, MEMBERS, Members
from shardmq.ranges import RangeSet

if TYPE_CHECKING:
    from shardmq.client.api.message import Batch
    from shardmq.client.api.topics import GroupOptions
    from shardmq.client.sync.channel import Channel
    from shardmq.client.sync.connection import Connection
    from shardmq.cmd.demo.spark import Spark
    from shardmq.cmd.run.broker import Broker

PARTITIONS: Final = 5
CARRIER: Final = 2
"""Characters of a routing key that are the carrier."""

WORKING: Final = "shared"
READING: Final = "reading"
WORKERS: Final = 8
READERS: Final = {"ordered": "ordered", "shared": "shared", "read": "read", "again": "read again", "spark": "Spark"}
"""Who counts, and how the bars call it."""

Progress = Callable[[str, int], None]
"""Called with what goes on ("topic", or one of READERS) and the number of further flights."""

Say = Callable[[str], None]


@dataclass
class Outcome:
    """What the readers have counted.

    Attributes:
        expected: flights by carrier, as pandas counts them.
        counts: by reader, the same; without "spark" where there is no Spark.
        member: the member of the ordered group that was killed.
        shard: the shard that was killed.
        repeated: flights that workers of the shared group got twice, and counted once.
        in_order: whether the flights of each carrier were read in order, both times.
        lag: flights that the groups have not read.
        without_spark: why there is no Spark.
    """

    expected: dict[str, int]
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    member: str = ""
    shard: str = ""
    repeated: int = 0
    in_order: bool = True
    lag: int = 0
    without_spark: str = ""

    @property
    def carriers(self) -> list[str]:
        """All carriers that anybody has counted, those with most flights first."""
        known = set(self.expected).union(*self.counts.values())
        return sorted(known, key=lambda carrier: (-self.expected.get(carrier, 0), carrier))

    @property
    def faults(self) -> list[str]:
        """What is not as pandas says, as sentences without a full stop."""
        said = [f"'{who}' does not count what pandas has" for who, had in self.counts.items() if had != self.expected]
        if not self.in_order:
            said.append("flights of a carrier were read out of order")
        if self.lag:
            said.append(f"the groups have {self.lag:,} flights still to read")
        return said

    @property
    def is_right(self) -> bool:
        """Whether all have counted what pandas has, in order."""
        return not self.faults


def play(broker: "Broker", flights: Flights, spark: "Spark", progress: Progress, say: Say) -> Outcome:
    """Publish the flights to a topic, and have all readers count them.

    Args:
        broker: its shards are killed.
        flights: what to publish.
        spark: counts nothing where it is absent.
        progress: told of what is done.
        say: told of what happens.
    """
    outcome = Outcome(flights.carriers)
    total, half = len(flights.lines), len(flights.lines) // 2
    with connect(broker.url) as connection:
        channel = connection.channel()
        channel.topic_declare(TOPIC, PARTITIONS)
        channel.queue_declare(COUNTS, durable=True)
        with Members(broker.url, channel) as members:
            _publish(channel, flights, 0, half, progress)
            spark.count()
            members.follow(half, lambda count: progress("ordered", count))
            counted = spark.counted()
            if counted is not None:
                progress("spark", sum(counted.values()))
            _publish(channel, flights, half, total, progress)
            spark.count()
            members.follow(total, lambda count: progress("ordered", count), kill_at=half + total // 8)
        outcome.counts["ordered"], outcome.member = dict(members.counts), members.killed
        say(f"Killed {outcome.member}, one of {MEMBERS} in the ordered group, with SIGKILL")
        _Shared(broker, outcome, total, progress).work(connection)
        say(f"Killed {outcome.shard}, of whose flights {WORKERS} workers of the shared group had some")
        _read(channel, flights, outcome, "read", progress)
        channel.group_reset(TOPIC, READING, "earliest")
        say("Reset the group that reads to the beginning of the topic")
        _read(channel, flights, outcome, "again", progress)
        counted = spark.counted()
        if counted is not None:
            outcome.counts["spark"] = counted
            progress("spark", sum(counted.values()) - half)
        outcome.without_spark = spark.absent
        outcome.lag = sum(_lag(channel, group) for group in (GROUP, WORKING, READING))
    return outcome


def _lag(channel: "Channel", group: str) -> int:
    """Flights that a group has not acknowledged."""
    return sum(row["lag"] for row in channel.group_offsets(TOPIC, group))


def _publish(channel: "Channel", flights: Flights, start: int, stop: int, progress: Progress) -> None:
    """Publish the rows from `start` to before `stop` by their carriers; returns when all are confirmed."""
    with channel.publisher() as publisher:
        for row in range(start, stop):
            publisher.publish(TOPIC, flights.keys[row][:CARRIER], flights.lines[row])
            if row % 1000 == 999:
                progress("topic", 1000)
    progress("topic", (stop - start) - (stop // 1000 - start // 1000) * 1000)


class _Shared:
    """The shared group: workers that each take what comes, and remember by its offset what was counted."""

    def __init__(self, broker: "Broker", outcome: Outcome, total: int, progress: Progress) -> None:
        self._broker = broker
        self._outcome = outcome
        self._total = total
        self._progress = progress
        self._guard = threading.Lock()
        self._seen: defaultdict[int, RangeSet] = defaultdict(RangeSet)
        self._counts: Counter[str] = Counter()
        self._done = 0

    def work(self, connection: "Connection") -> None:
        """Have the workers count all flights, or as many as come."""
        self._shards = {row["partition"]: row["shard"] for row in connection.channel().topic_info(TOPIC)["partitions"]}
        with ThreadPoolExecutor(WORKERS) as pool:
            for done in [pool.submit(self._consume, connection) for _ in range(WORKERS)]:
                done.result()
        self._outcome.counts["shared"] = dict(self._counts)

    def _consume(self, connection: "Connection") -> None:
        options: GroupOptions = {"shared": True, "start": "earliest", "prefetch": 2_000, "inactivity_timeout": 0.5}
        deadline = time.monotonic() + IDLE_SECONDS
        with connection.channel() as channel:
            while time.monotonic() < deadline:
                with channel.group_consumer(TOPIC, WORKING, **options) as consumer:
                    for batch in consumer.batches():
                        self._count(batch)
                        deadline = time.monotonic() + IDLE_SECONDS
                if self._done >= self._total and not _lag(channel, WORKING):
                    return

    def _count(self, batch: "Batch") -> None:
        assert batch.partition is not None
        assert batch.offset is not None
        keys, first = batch.routing_keys, batch.offset
        with self._guard:
            seen = self._seen[batch.partition]
            for start, end in seen.gaps(first, first + len(batch)):
                self._counts.update(keys[start - first : end - first])
            new = seen.add(first, first + len(batch))
            self._done += new
            self._outcome.repeated += len(batch) - new
            if not self._outcome.shard and self._done > self._total // 3:
                self._outcome.shard = f"shard-{self._shards[batch.partition]}"
                self._broker.kill(self._outcome.shard)
        self._progress("shared", new)


def _read(channel: "Channel", flights: Flights, outcome: Outcome, reader: str, progress: Progress) -> None:
    """Read the topic as the only member of a group, and compare the flights of each carrier, line by line."""
    lines: defaultdict[str, deque[bytes]] = defaultdict(deque)
    for key, line in zip(flights.keys, flights.lines, strict=True):
        lines[key[:CARRIER]].append(line)
    counts: Counter[str] = Counter()
    options: GroupOptions = {"start": "earliest", "prefetch": 10_000, "inactivity_timeout": IDLE_SECONDS}
    with channel.group_consumer(TOPIC, READING, **options) as consumer:
        for batch in consumer.batches():
            carriers = batch.routing_keys
            for carrier, line in zip(carriers, batch.bodies, strict=True):
                outcome.in_order &= bool(lines[carrier]) and lines[carrier].popleft() == line
            counts.update(carriers)
            progress(reader, len(batch))
            if counts.total() >= len(flights.lines):
                break
    outcome.counts[reader] = dict(counts)
