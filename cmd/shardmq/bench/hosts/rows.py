"""The rows of `bench hosts`: what each runs, on what, and the goals."""

from typing import Final

import msgspec

from shardmq.cmd.bench.compare.load import Load

ONE: Final = "one"
TWO: Final = "two"
THREE: Final = "three"
RABBITMQ: Final = "rabbitmq"
BROKERS: Final = {
    ONE: "one host",
    TWO: "2 replicas",
    THREE: "3 replicas",
    RABBITMQ: "RabbitMQ, 3 replicas",
}
"""What is measured, with its name for people. All but the first are on three hosts."""

BESIDE: Final = (TWO, THREE, RABBITMQ)
OVERHEAD: Final = (ONE, TWO)
OURS: Final = (TWO,)


class Row(msgspec.Struct, frozen=True):
    """One figure of a load or a fault.

    Attributes:
        text: description for people.
        run: name of the load or fault that it is a figure of; rows of the same one are measured together.
        figure: name of the figure.
        unit: of the figure.
        brokers: what it is measured on.
        goal: what the figure of two replicas is to reach at least, or at most where less is better.
        of: what the figure is divided by before: one of `BROKERS`; "" for the figure itself.
        every: whether the goal holds for the worst turn, and not for the median alone.
    """

    text: str
    run: str
    figure: str
    unit: str = "ms"
    brokers: tuple[str, ...] = OURS
    goal: float | None = None
    of: str = ""
    every: bool = False

    @property
    def is_less_better(self) -> bool:
        """Whether the figure is a time, or something that should not be."""
        return self.unit not in ("msgs/s", "of before")


RATE: Final = "msgs/s"
LATENCY_RATE: Final = 1000

LOADS: Final = {
    "confirms": Load("amqp", "flow", 20_000, {"order": "publish", "window": 1000}),
    "one-in-flight": Load("amqp", "flow", 300, {"order": "publish", "window": 1}),
    "latency": Load("amqp", "latency", LATENCY_RATE, {"rate": LATENCY_RATE}),
    "bulk": Load("sdk", "bulk", 200_000),
    "pipelined": Load("sdk", "pipelined", 50_000),
    "sync": Load("sdk", "sync", 300),
}
"""Loads that are put on all brokers in turns, by name; 100-byte persistent messages."""


def overhead(run: str, text: str, goal: float | None) -> Row:
    """A row of the SDK: what two replicas do of what one host does, all on the same cores."""
    return Row(text, run, "end_to_end_msgs_per_s", RATE, OVERHEAD, goal, ONE)


ROWS: Final = {
    "confirms": Row("AMQP, 1,000 unconfirmed", "confirms", "publish_msgs_per_s", RATE, BESIDE),
    "one-in-flight": Row("AMQP, a confirm for each", "one-in-flight", "publish_msgs_per_s", RATE, BESIDE),
    "latency-p50": Row(f"latency at {LATENCY_RATE:,}/s, p50", "latency", "p50_ms", brokers=BESIDE),
    "latency-p99": Row(f"latency at {LATENCY_RATE:,}/s, p99", "latency", "p99_ms", brokers=BESIDE),
    "host-killed": Row("leader's host killed: without a confirm", "host-killed", "pause_ms", brokers=BESIDE),
    "host-cut-off": Row("leader's host cut off: the same", "host-cut-off", "pause_ms", brokers=BESIDE),
    "bulk": overhead("bulk", "SDK bulk, published and consumed", 0.5),
    "pipelined": overhead("pipelined", "SDK pipelined, the same", 0.5),
    "sync": overhead("sync", "SDK, a confirm for each", None),
    "transfer": Row("planned transfer: without a confirm", "transfer", "pause_ms", goal=200),
    "transfer-refused": Row("publishes refused by it", "transfer", "refused", "messages", goal=0, every=True),
    "frozen-briefly": Row("follower frozen for 0.5 s", "frozen-briefly", "pause_ms"),
    "frozen-briefly-evicted": Row("evictions by it", "frozen-briefly", "evicted", "times", goal=0, every=True),
    "frozen": Row("follower frozen for good", "frozen", "pause_ms", goal=1500, every=True),
    "etcd-away": Row("etcd away: the longest time without a confirm", "etcd-away", "pause_ms", goal=500),
    "etcd-away-refused": Row("publishes refused meanwhile", "etcd-away", "refused", "messages", goal=0),
    "rejoin": Row("a host comes back: until its replica is in sync", "rejoin", "rejoin_ms", goal=2000),
    "rejoin-bytes": Row("bytes it takes, of what was published", "rejoin", "of_tail", "x", goal=2),
    "join": Row("an empty host joins under load, 1 GB", "join", "join_s", "s", goal=60),
    "join-rate": Row("publishing meanwhile", "join", "rate_share", "of before", goal=0.7),
    "join-growth": Row("growth of the primary's file by it", "join", "growth_percent", "%", goal=5),
    "full-killed": Row("primary's process killed, 10,000,000 stored", "full-killed", "pause_ms", goal=1000, every=True),
    "full-cut-off": Row("its host cut off, the same", "full-cut-off", "pause_ms", goal=3000, every=True),
}
"""All rows, by name."""

RUNS: Final = tuple(dict.fromkeys(row.run for row in ROWS.values()))
"""The loads and faults, in the order of the rows."""
