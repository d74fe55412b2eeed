"""The rows of `bench streams`: what each runs, and the goals."""

from typing import Final

import msgspec

SHARDMQ: Final = "shardmq"
RABBITMQ: Final = "RabbitMQ"
REDIS: Final = "Redis"

SDK: Final = "sdk"
"""The mode of rows that the SDK measures."""

ON_TOPIC: Final = "members"
"""The C program's mode that needs a topic, which AMQP cannot declare."""

GROUP: Final = "bench"
READERS: Final = 10
KEYS: Final = 1000
PARTITIONS: Final = 8
MEMBERS: Final = 300
MEMBER_PREFETCH: Final = 10
WORK_PARTITIONS: Final = 4
WORK_PROCESSES: Final = 2


class Row(msgspec.Struct, frozen=True):
    """One load, and the figure that is compared.

    Attributes:
        text: description for people.
        figure: name of the figure, as the load's program calls it.
        unit: of the figure.
        brokers: those that have such a thing.
        options: of the C programs, or of what the SDK does.
        mode: of the C program for AMQP, or SDK.
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
        """Whether the figure is a time, or memory."""
        return self.unit in ("ms", "B", "partitions")


def c_row(text: str, figure: str, *brokers: str, goal: float | None = None, of: str = "", **options: int | str) -> Row:
    """A row of the C programs."""
    return Row(text, figure, brokers=brokers or (SHARDMQ, RABBITMQ, REDIS), options=options, goal=goal, of=of)


def flow_row(text: str, streams: int) -> Row:
    """A row of the C program: publishing to several streams in turn, and consuming from all of them."""
    options: dict[str, int | str] = {"queues": streams, "type": "stream"}
    return Row(text, "end_to_end_msgs_per_s", brokers=(SHARDMQ,), options=options, mode="flow", share=0.2)


def sdk_row(text: str, figure: str, share: float, goal: float | None = None, of: str = "") -> Row:
    """A row of the SDK."""
    return Row(text, figure, brokers=(SHARDMQ,), mode=SDK, share=share, goal=goal, of=of)


def groups_row(text: str, groups: int) -> Row:
    """A row of the SDK: groups that read the same stream."""
    return Row(text, READ, brokers=(SHARDMQ,), options={"groups": groups}, mode=SDK)


def tail_row(text: str, is_shared: bool, goal: float, of: str = "") -> Row:
    """A row of the SDK: a group that reads what is published meanwhile."""
    options: dict[str, int | str] = {"is_shared": is_shared}
    return Row(text, "end_to_end_msgs_per_s", brokers=(SHARDMQ,), options=options, mode=SDK, share=5, goal=goal, of=of)


def time_row(text: str, figure: str, goal: float, unit: str = "ms") -> Row:
    """A row of the SDK: how soon partitions have their owner."""
    return Row(text, figure, unit, (SHARDMQ,), mode=SDK, goal=goal)


def work_row(text: str, work_ms: int) -> Row:
    """A row of the SDK: members that work."""
    return Row(text, "of_theory", "of what theory allows", (SHARDMQ,), {"work_ms": work_ms}, SDK, goal=0.9)


def members_row(text: str, work_ms: int, share: float) -> Row:
    """A row of the C program: members that work, on as many connections as those of the SDK."""
    options: dict[str, int | str] = {"work_ms": work_ms, "consumers": MEMBERS, "prefetch": MEMBER_PREFETCH}
    options |= {"connections": WORK_PROCESSES, "queues": WORK_PARTITIONS, "group": GROUP}
    return Row(text, "of_theory", "of what theory allows", (SHARDMQ,), options, ON_TOPIC, share, goal=0.9)


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
    "streams-10": flow_row("append and read 10 streams in turn", 10),
    "streams-100": flow_row("append and read 100 streams in turn", 100),
    "streams-1000": flow_row("append and read 1,000 streams in turn", 1000),
    "sdk-append": sdk_row("SDK, append in batches", PUBLISH, 5, goal=0.95, of="sdk-queue"),
    "sdk-queue": sdk_row("SDK, the same to a queue", PUBLISH, 5),
    "keys": sdk_row("SDK, 1,000 keys to 8 partitions in turn, one by one", PUBLISH, 2, goal=150_000),
    "keys-many": sdk_row("SDK, the same, many at once", PUBLISH, 5, goal=400_000),
    "sdk-read-10": sdk_row("SDK, ten readers together", READ, 2.5, goal=4_000_000),
    "groups-1": groups_row("a stream read by 1 group", 1),
    "groups-10": groups_row("the same by 10 groups at once, together", 10),
    "groups-100": groups_row("by 100 groups", 100),
    "groups-1000": groups_row("by 1,000 groups", 1000),
    "group-tail": tail_row("SDK, one group reads a topic of 4 partitions as it is published", False, goal=1_200_000),
    "group-shared": tail_row("SDK, a shared group, the same", True, goal=0.7, of="group-tail"),
    "join": time_row("a member joins 100 on 1,000 partitions: until all is shared out again", "stable_ms", 1000),
    "interrupted": time_row("partitions interrupted by that, which did not move", "interrupted", 0, "partitions"),
    "broken": time_row("an owner's connection breaks: until a new owner", "taken_ms", 500),
    "silent": time_row("an owner with a session of 2 s falls silent: until a new owner", "taken_ms", 2500),
    "workers-50": work_row("300 members of a shared group on 4 partitions, 50 ms of work on each message", 50),
    "workers-5": work_row("the same, 5 ms of work", 5),
    "members-50": members_row("the same, members in C over AMQP, 50 ms of work", 50, 0.06),
    "members-5": members_row("the same, 5 ms of work, members in C over AMQP", 5, 0.25),
    "cursor": Row("memory of a group's cursor", "cursor_bytes", "B", (SHARDMQ,), goal=300),
    "partition": Row("memory of a partition, in its shard", "shard_bytes", "B", (SHARDMQ,), goal=3000),
    "partition-all": Row("the same, in all processes", "all_bytes", "B", (SHARDMQ,)),
    "restart": Row("restart with a long stream", "restart_ms", "ms", (SHARDMQ,), goal=5_000),
    "seek": Row("find a time in it, cold", "seek_ms", "ms", (SHARDMQ,), goal=10),
}
"""All rows, by name; 100-byte messages, confirmed when they are on disk as the broker promises it."""
