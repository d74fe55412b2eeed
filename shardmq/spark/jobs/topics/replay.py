"""Messages of a topic back to exchanges: at a pace, and each once, however often the replay is begun.

The offsets of the partitions are fixed at first, and numbered through, partition after partition; the rest is as for
files (jobs/replay.py).
"""

import json
import time
from datetime import datetime
from typing import TYPE_CHECKING, Final

from shardmq.spark.jobs import preconditions
from shardmq.spark.jobs.options import TopicReplayOptions, takes_keywords
from shardmq.spark.jobs.outcome import Summary, plain_faults
from shardmq.spark.jobs.replay import carry_out, check_target, numbered
from shardmq.spark.jobs.replay_plan import File, ReplayPlan, chunk_rows
from shardmq.spark.jobs.transaction import FORMAT, asking

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from shardmq.spark.topics.ranges import TopicRange

SCHEMA: Final = (
    "body binary, exchange string, routing_key string, message_id string, raw_properties binary, "
    "properties struct<message_id: string>, partition int, offset bigint"
)


@takes_keywords(TopicReplayOptions)
def replay_topic(spark: "SparkSession", topic: str, options: TopicReplayOptions) -> Summary:
    """Publish messages of a topic again, with their routing keys, ids and properties, types of headers included.

    The order is that of each partition; within a chunk it is kept for each routing key. A replay that broke off goes on
    where it was when it is run again with the same offsets, which it says at its start.

    Args:
        spark: the session.
        topic: the topic's or stream's name.
        options: see Keywords.

    Raises:
        NotFound: the topic does not exist.
        InvalidRequest: neither or both of `exchange` and `keep_exchange` are given, or the offsets fit no partition.
        PreconditionFailed: messages are not there any more, or something else was replayed under this name.
        ShardmqError: a chunk failed; the chunks before it are published.
    """
    started_at = time.monotonic()
    check_target(options)
    preconditions.check_topic(options.url, topic)
    ranges = {f"{part.topic}/{part.number:06}": part for part in replayed_ranges(topic, options)}
    first = {str(part.number): part.first for part in ranges.values()}
    end = {str(part.number): part.end for part in ranges.values()}
    if not options.starting_offsets.startswith("{") or not options.ending_offsets.startswith("{"):
        options.say(
            f"from {json.dumps({topic: first})} to {json.dumps({topic: end})}: given as starting and ending offsets, "
            "with those of the partitions without messages, they make it the same replay, which goes on where it was"
        )
    described = (File(f"{name}@{part.first}", part.end, part.end - part.first) for name, part in ranges.items())
    plan = ReplayPlan(tuple(described), chunk_rows(options.rate), f"partitions of topic '{topic}'")

    def block(chunks: range) -> "DataFrame":
        from pyspark.sql import functions as F

        parts = [(ranges[part.path.partition("@")[0]], part) for part in plan.parts(chunks)]
        start = {str(piece.number): piece.first + part.first for piece, part in parts}
        end = {str(piece.number): piece.first + part.end for piece, part in parts}
        where = [(piece.number, part.before - piece.first) for piece, part in parts]
        given = {
            "url": options.url,
            "assign": json.dumps({topic: [piece.number for piece, _ in parts]}),
            "startingOffsets": json.dumps({topic: start}),
            "endingOffsets": json.dumps({topic: end}),
        }
        rows = spark.read.format(FORMAT).options(**given).schema(SCHEMA).load()
        placed = rows.join(F.broadcast(spark.createDataFrame(where, "partition int, shift long")), "partition")
        return numbered(placed, F.col("offset") + F.col("shift"), plan, options.keep_exchange)

    with plain_faults(f"replaying topic '{topic}'"):
        return carry_out(plan, options, started_at, block)


def replayed_ranges(topic: str, options: TopicReplayOptions) -> list["TopicRange"]:
    """The offsets to replay, one range for each partition that has any. Any thread may ask for them.

    Args:
        topic: the topic's or stream's name.
        options: of the replay.

    Raises:
        NotFound: the topic does not exist.
        InvalidRequest: the offsets fit no partition.
        PreconditionFailed: messages are not there any more.
        ShardmqError: the broker does not answer, or refuses.
    """
    from shardmq.spark.options import parse
    from shardmq.spark.topics.batch import TopicReader
    from shardmq.spark.topics.columns import TOPIC_SCHEMA

    given = {
        "url": options.url,
        "subscribe": topic,
        "startingOffsets": options.starting_offsets,
        "endingOffsets": options.ending_offsets,
        **_time("startingTimestamp", options.since),
        **_time("endingTimestamp", options.until),
    }
    with asking(options.url) as broker:
        return TopicReader(parse(given, "topic"), TOPIC_SCHEMA).ranges(broker)


def _time(option: str, moment: datetime | None) -> dict[str, str]:
    return {} if moment is None else {option: str(round(moment.timestamp() * 1000))}
