"""The rows of `bench compare`: what each runs, what of it is compared, and the goals."""

from typing import Final

import msgspec

from shardmq.cmd.bench.compare.load import Load

RABBITMQ: Final = "RabbitMQ"
PUBLISHED: Final = "publish_msgs_per_s"

LESS_IS_BETTER: Final = ("_ms", "_us", "_bytes")
"""Ends of the names of figures of which less is better."""

UNITS: Final = {
    "_msgs_per_s": "msgs/s",
    "_rows_per_s": "rows/s",
    "_per_s": "a second",
    "_ms": "ms",
    "_us": "µs",
    "_bytes": "bytes",
}
"""Units of figures, by the end of their name; the first that fits."""


class Goal(msgspec.Struct, frozen=True):
    """What a figure is to reach: at least the bound, or at most where less is better.

    Attributes:
        bound: the number.
        of: what the figure is divided by before: "RabbitMQ", or the name of another row; "" for the figure itself.
        every: whether it holds for the worst turn, and not for the median alone.
    """

    bound: float
    of: str = RABBITMQ
    every: bool = False


class Figure(msgspec.Struct, frozen=True):
    """What is compared of what a load measures.

    Attributes:
        name: as the load's program calls it.
        goals: what it is to reach.
    """

    name: str
    goals: tuple[Goal, ...] = ()

    @property
    def is_less_better(self) -> bool:
        """Whether a smaller one is better: a time, not a rate."""
        return self.name.endswith(LESS_IS_BETTER)

    @property
    def unit(self) -> str:
        """The unit, for people."""
        return next((unit for end, unit in UNITS.items() if self.name.endswith(end)), "")


class Row(msgspec.Struct, frozen=True):
    """One load, measured on each broker in each turn.

    Attributes:
        text: description for people.
        ours: the load of shardmq.
        figures: what is compared.
        theirs: the load of RabbitMQ; None where it has no such thing.
    """

    text: str
    ours: Load
    figures: tuple[Figure, ...]
    theirs: Load | None = None


def amqp(text: str, mode: str, first: int, figures: tuple[Figure, ...], **options: int | str) -> Row:
    """A row of the C program, the same for both brokers."""
    load = Load("amqp", mode, first, options, least=int(options.get("connections", 1)))
    return Row(text, load, figures, load)


def at_once(text: str, first: int, *goals: Goal, **options: int | str) -> Row:
    """A row of the C program: publishing and consuming at the same time."""
    return amqp(text, "flow", first, (Figure("end_to_end_msgs_per_s", goals),), **options)


def alone(text: str, queues: int, first: int) -> Row:
    """A row of the C program: consuming from many queues, everything being published before."""
    figures = (Figure("consume_msgs_per_s", (Goal(2),)),)
    return amqp(text, "flow", first, figures, order="seq", queues=queues, **{"global": 1})


def latency(rate: int, *figures: Figure) -> Row:
    """A row of the C program: latency at a fixed rate, without confirms."""
    return amqp(f"latency at {rate:,}/s", "latency", rate // 2, figures, rate=rate, confirms=0)


def pika(text: str, mode: str, first: int) -> Row:
    """A row of pika, publishing."""
    load = Load("pika", mode, first)
    return Row(text, load, (Figure(PUBLISHED),), load)


def native(text: str, mode: str, first: int, goal: Goal, queues: int) -> Row:
    """A row of the SDK, for which RabbitMQ has no counterpart."""
    return Row(text, Load("sdk", mode, first, {"queues": queues}), (Figure("end_to_end_msgs_per_s", (goal,)),))


ONE_IN_FLIGHT: Final = Load("amqp", "flow", 300, {"order": "publish", "window": 1})
DISK_BYTES_MAX: Final = 4 * 10_240 * 1.5
"""For each body of 10 KB: once in each of four shards, and half as much again for what is around it."""

ROWS: Final = {
    "both": at_once("1 queue, both at once", 20_000, Goal(6), Goal(4, every=True)),
    "client": Row(
        "the client alone, without a broker",
        Load("amqp", "nothing", 20_000),
        (Figure("end_to_end_msgs_per_s"),),
    ),
    "both-10-shared": at_once("10 queues in turn, one prefetch", 10_000, Goal(3), queues=10, **{"global": 1}),
    "both-10": at_once("10 queues in turn, prefetch each", 10_000, Goal(3), queues=10),
    "both-100-shared": at_once("100 queues in turn, one prefetch", 5_000, Goal(3), queues=100, **{"global": 1}),
    "both-1000-shared": at_once("1,000 queues in turn, one prefetch", 5_000, Goal(3), queues=1000, **{"global": 1}),
    "alone": amqp(
        "1 queue, one after the other",
        "flow",
        20_000,
        (Figure(PUBLISHED, (Goal(3),)), Figure("consume_msgs_per_s", (Goal(2),))),
        order="seq",
    ),
    "consume-10": alone("10 queues, consuming alone", 10, 10_000),
    "consume-100": alone("100 queues, consuming alone", 100, 10_000),
    "consume-1000": alone("1,000 queues, consuming alone", 1000, 10_000),
    "1-kb": at_once("1 queue, both at once, 1 KB", 10_000, Goal(3), bytes=1024),
    "distinct": amqp(
        "20 connections and queues, distinct",
        "each",
        10_000,
        (Figure("end_to_end_msgs_per_s", (Goal(1.2),)),),
        connections=20,
        window=100,
        prefetch=200,
        ack_every=50,
    ),
    "priorities": at_once("priorities alternating", 5_000, Goal(0.7, of="both"), Goal(1), priorities=10),
    "fanout-10": at_once("fan-out to 10 queues", 2_000, Goal(3), exchange="fanout", queues=10),
    "fanout-100": amqp(
        "fan-out to 100 queues, 10 KB",
        "flow",
        100,
        (Figure("end_to_end_msgs_per_s", (Goal(5),)), Figure("disk_bytes", (Goal(DISK_BYTES_MAX, of=""),))),
        exchange="fanout",
        queues=100,
        bytes=10_240,
        window=100,
    ),
    "latency-1000": latency(1_000, Figure("p50_ms", (Goal(1),))),
    "latency-5000": latency(5_000, Figure("p50_ms", (Goal(1),))),
    "latency-10000": latency(10_000, Figure("p99_ms", (Goal(0.5), Goal(20, of="", every=True)))),
    "latency-20000": latency(20_000, Figure("p99_ms", (Goal(0.5), Goal(20, of="", every=True)))),
    "one-in-flight": Row("one in flight", ONE_IN_FLIGHT, (Figure(PUBLISHED, (Goal(1.2),)),), ONE_IN_FLIGHT),
    "one-in-flight-sdk": Row(
        "one in flight, SDK",
        Load("sdk", "sync", 300, {"consumers": 0}),
        (Figure(PUBLISHED, (Goal(1),)),),
        ONE_IN_FLIGHT,
    ),
    "reply-to": amqp(
        "direct reply-to", "round-trips", 200, (Figure("round_trips_per_s", (Goal(1),)),), window=1, persistent=0
    ),
    "commits": amqp("tx commits", "commits", 200, (Figure("commits_per_s", (Goal(1.5),)),)),
    "declarations": amqp(
        "declarations one by one",
        "declarations",
        30,
        (
            Figure("declares_per_s", (Goal(2_000, of=""), Goal(1))),
            Figure("bind_ms", (Goal(1),)),
            Figure("consume_ms", (Goal(1),)),
            Figure("cancel_ms", (Goal(1),)),
        ),
    ),
    "connections-500": amqp(
        "500 connections, 20 msgs/s each",
        "devices",
        2_000,
        (Figure("cpu_us", (Goal(0.5),)), Figure("p99_ms")),
        connections=500,
        rate=10_000,
    ),
    "pika": pika("pika, a confirm for each", "confirmed", 300),
    "pika-unconfirmed": pika("pika, no confirms", "unconfirmed", 5_000),
    "pipelined-1": native("SDK pipelined, 1 queue", "pipelined", 50_000, Goal(334_000, of=""), 1),
    "pipelined-100": native("SDK pipelined, 100 queues", "pipelined", 100_000, Goal(150_000, of=""), 100),
    "pipelined-1000": native("SDK pipelined, 1,000 queues", "pipelined", 100_000, Goal(100_000, of=""), 1000),
    "bulk-1": native("SDK bulk, 1 queue", "bulk", 200_000, Goal(937_000, of=""), 1),
    "bulk-100": native("SDK bulk, 100 queues", "bulk", 200_000, Goal(0.8, of="bulk-1"), 100),
    "bulk-1000": native("SDK bulk, 1,000 queues", "bulk", 500_000, Goal(0.8, of="bulk-1"), 1000),
    "backlog": Row(
        "a backlog of 3,000,000 in one queue",
        Load("backlog", "", 3_000_000, {"shards": 4}, is_fixed=True),
        (
            Figure(PUBLISHED, (Goal(1_300_000, of=""),)),
            Figure("last_tenth", (Goal(0.8, of=""),)),
            Figure("shard_bytes", (Goal(95_000_000, of=""),)),
            Figure("restart_ms", (Goal(900, of=""),)),
        ),
    ),
    "priorities-sdk": Row(
        "priorities alternating, SDK",
        Load("features", "features", 20_000, {"only": "priority, alternating", "rounds": 1}, least=1000),
        (Figure("share_of_plain", (Goal(0.7, of=""),)),),
    ),
    "spark": Row(
        "Spark, exactly once",
        Load("spark", "spark", 2_000_000, {"turns": 1}, is_fixed=True),
        (Figure("exactly_once_rows_per_s", (Goal(1_000_000, of=""),)),),
    ),
}
"""All rows, by name; 100-byte persistent messages with confirms, unless the text says otherwise."""
