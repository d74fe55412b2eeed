"""The rows of `bench streams`: what each runs, and the goals."""

from typing import Final

import msgspec

SHARDMQ: Final = "shardmq"
RABBITMQ: Final = "RabbitMQ"
REDIS: Final = "Redis"

GROUP: Final = "bench"
READERS: Final = 10
KEYS: Final = 1000
PARTITIONS: Final = 8


class Row(msgspec.Struct, frozen=True):
    """One load, and the figure that is compared.

    Attributes:
        text: description for people.
        figure: name of the figure, as the load's program calls it.
        unit: of the figure.
        brokers: those that have such a thing.
        options: of the C programs; None for what the SDK does.
        mode: of the C program for AMQP.
        share: of the messages of a measurement that this one has.
        goal: what shardmq's figure is to reach at least, or at most where less is better.
        of: name of the row that the figure is divided by before; "" for the figure itself.
    """

    text: str
    figure: str
    unit: str = "msgs/s"
    brokers: tuple[str, ...] = (SHARDMQ, RABBITMQ, REDIS)
    options: dict[str, int | str] | None = None
    mode: str = "stream"
    share: float = 1.0
    goal: float | None = None
    of: str = ""

    @property
    def is_less_better(self) -> bool:
        """Whether the figure is a time."""
        return self.unit == "ms"


def c_row(text: str, figure: str, *brokers: str, goal: float | None = None, of: str = "", **options: int | str) -> Row:
    """A row of the C programs."""
    return Row(text, figure, brokers=brokers or (SHARDMQ, RABBITMQ, REDIS), options=options, goal=goal, of=of)


def flow_row(text: str, streams: int) -> Row:
    """A row of the C program: publishing to several streams in turn, and consuming from all of them."""
    options: dict[str, int | str] = {"queues": streams, "type": "stream"}
    return Row(text, "end_to_end_msgs_per_s", brokers=(SHARDMQ,), options=options, mode="flow", share=0.2)


def sdk_row(text: str, figure: str, share: float, goal: float | None = None, of: str = "") -> Row:
    """A row of the SDK."""
    return Row(text, figure, brokers=(SHARDMQ,), share=share, goal=goal, of=of)


READ: Final = "read_msgs_per_s"
PUBLISH: Final = "publish_msgs_per_s"

ROWS: Final = {
    "append": c_row("append, message by message", PUBLISH, order="publish", type="stream", goal=0.95, of="queue"),
    "queue": c_row("the same to a queue", PUBLISH, SHARDMQ, order="publish"),
    "read": c_row("one reader, from the beginning", READ, order="seq", type="stream", goal=300_000),
    "read-10": c_row("ten readers, together", READ, order="seq", type="stream", consumers=READERS),
    "tail": c_row("append and read at once", "end_to_end_msgs_per_s", order="both", type="stream"),
    "group": c_row("one group, offsets stored", READ, SHARDMQ, REDIS, order="seq", type="stream", group=GROUP),
    "streams-1": flow_row("append and read 1 stream", 1),
    "streams-100": flow_row("append and read 100 streams in turn", 100),
    "streams-1000": flow_row("append and read 1,000 streams in turn", 1000),
    "sdk-append": sdk_row("SDK, append in batches", PUBLISH, 5, goal=0.95, of="sdk-queue"),
    "sdk-queue": sdk_row("SDK, the same to a queue", PUBLISH, 5),
    "keys": sdk_row("SDK, 1,000 keys to 8 partitions in turn, one by one", PUBLISH, 2, goal=150_000),
    "keys-many": sdk_row("SDK, the same, many at once", PUBLISH, 5, goal=400_000),
    "sdk-read-10": sdk_row("SDK, ten readers together", READ, 2.5, goal=4_000_000),
    "restart": Row("restart with a long stream", "restart_ms", "ms", (SHARDMQ,), goal=5_000),
    "seek": Row("find a time in it, cold", "seek_ms", "ms", (SHARDMQ,), goal=10),
}
"""All rows, by name; 100-byte messages, confirmed when they are on disk as the broker promises it."""
