"""A group that reads a topic while it is published to, in batches, and what partitions cost in memory."""

import multiprocessing
import time
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, Final

from shardmq.cmd.bench.compare.comparison import cpu_seconds
from shardmq.cmd.bench.compare.load import Contestant, Figures, new_name
from shardmq.cmd.bench.scale.connections import memory, per
from shardmq.cmd.bench.streams.sdk import BODY_BYTES, START_SECONDS, STEP, scaled
from shardmq.errors import ShardmqError

PARTITIONS: Final = 4
PREFETCH: Final = 20_000
MANY: Final = 10_000
"""Partitions of the topic whose memory is measured."""


def follow(who: Contestant, messages: int, is_shared: bool) -> Figures:
    """Publish to a topic in batches while a group's only member reads it, in a process of its own.

    Raises:
        ShardmqError: the member got a message twice, not at all, or in an ordered group out of order.
    """
    from shardmq.client.sync.connection import connect

    assert who.url is not None
    topic, body = new_name(), bytes(BODY_BYTES - 8)
    messages = messages // (STEP * PARTITIONS) * STEP * PARTITIONS or STEP * PARTITIONS
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    member = context.Process(target=_read, args=(who.url, topic, messages, is_shared, theirs), daemon=True)
    with connect(who.url) as connection:
        channel = connection.channel()
        channel.topic_declare(topic, PARTITIONS)
        member.start()
        _told(ours)
        before, start = cpu_seconds(who.pids), time.monotonic()
        with channel.publisher(window=50_000) as publisher:
            for first in range(0, messages // PARTITIONS, STEP):
                for partition in range(PARTITIONS):
                    heads = [(partition << 32 | number).to_bytes(8, "big") for number in range(first, first + STEP)]
                    publisher.publish_many("", f"{topic}-{partition}", [head + body for head in heads])
        fault = _told(ours)
        seconds = time.monotonic() - start
        used = cpu_seconds(who.pids) - before
        member.join()
        channel.topic_delete(topic)
    if fault:
        raise ShardmqError(fault)
    return {"end_to_end_msgs_per_s": messages / seconds, "seconds": seconds, "cpu_us": used * 1e6 / messages}


def _told(pipe: Pipe) -> str:
    if not pipe.poll(START_SECONDS):
        raise ShardmqError("a member of a group was silent for a minute")
    told: str = pipe.recv()
    return told


def _read(url: str, topic: str, messages: int, is_shared: bool, pipe: Pipe) -> None:
    """The main function of the member's process; it says when it is there, and then "" or what went wrong."""
    from shardmq.client.sync.connection import connect

    seen = [bytearray(messages // PARTITIONS) for _ in range(PARTITIONS)]
    due, got, fault = [0] * PARTITIONS, 0, ""
    with connect(url) as connection:
        options: dict[str, Any] = {"shared": is_shared, "prefetch": PREFETCH, "start": "earliest"}
        with connection.channel().group_consumer(topic, "tail", **options) as consumer:
            pipe.send("")
            for batch in consumer.batches():
                bodies = batch.bodies
                partition, first = divmod(int.from_bytes(bodies[0][:8], "big"), 1 << 32)
                if not is_shared and first != due[partition]:
                    fault = f"partition {partition} gave message {first} where {due[partition]} was due"
                due[partition] = first + len(bodies)
                seen[partition][first : first + len(bodies)] = bytes([1]) * len(bodies)
                got += len(bodies)
                if fault or got >= messages:
                    break
            consumer.commit()
    pipe.send(fault or ("" if all(map(all, seen)) else "not every message came once"))


def partitions(folder: Path, messages: int) -> Figures:
    """What processes have more of memory with a topic of many partitions, for each of them; the broker is new."""
    from shardmq.client.sync.connection import connect
    from shardmq.cmd.run.broker import Broker

    topic, count, start = new_name(), scaled(MANY, messages), time.monotonic()
    with Broker(folder / "partitions") as broker, connect(broker.url) as connection:
        before = memory(connection)
        connection.channel().topic_declare(topic, count)
        grown = per(count, before, memory(connection))
    return {"shard_bytes": grown["shard"], "all_bytes": grown["all"], "seconds": time.monotonic() - start}
