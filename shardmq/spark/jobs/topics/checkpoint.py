"""The checkpoint of a topic's exports to a folder, which is of one topic of one virtual host and broker.

    TO/_shardmq-export/topic-DIGEST/   DIGEST is of broker, virtual host and topic

Earlier versions made it of the topic's name alone. Such a checkpoint is taken where the last messages that it has
exported are, under the same offsets, in the topic that is to be exported; a note in it says so from then on.
"""

from typing import TYPE_CHECKING, Final

from shardmq.errors import InvalidRequest, NotFound, OffsetOutOfRange
from shardmq.spark.jobs import preconditions
from shardmq.spark.jobs.export_folder import FOLDER, Folder, Origin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shardmq.client.sync.channel import Channel

NOTE: Final = "_of-"
"""The beginning of the name of a file in the checkpoint of an earlier version that says whose it is."""

LAST: Final = "topic string, partition int, offset bigint, message_id string, timestamp timestamp"
"""What is read of exported messages to tell whose they are."""


def checkpoint_of(spark: "SparkSession", target: Folder, origin: Origin, url: str) -> Folder:
    """Find where the exports of a topic to a folder have their checkpoint.

    Args:
        spark: the session.
        target: the folder.
        origin: the topic.
        url: its broker's.

    Raises:
        InvalidRequest: the folder exists, and is not of exports of this topic; or that cannot be told.
    """
    folder = target.at(FOLDER)
    checkpoint, before = folder.at(f"topic-{origin.digest}"), folder.at(f"topic-{origin.name_digest}")
    if checkpoint.exists() or not target.names():
        return checkpoint
    whose = f"topic '{origin.name}' of virtual host '{origin.vhost}' of this broker"
    if not before.exists():
        raise InvalidRequest(f"folder '{target.path}' exists, and is not of exports of {whose}; name another one")
    note = f"{NOTE}{origin.digest}"
    if before.at(note).exists():
        return before
    is_others = any(name.startswith(NOTE) for name in before.names())
    is_ours = False if is_others else _has_exported(spark, target, origin, url)
    if is_ours is None:
        raise InvalidRequest(
            f"folder '{target.path}' has exports of a topic '{origin.name}' by an earlier version, which did not note "
            f"the virtual host and the broker, and the topic keeps none of the last ones to compare with: if they are "
            f"of {whose}, make an empty file {before.at(note).path} and export again; else name another folder"
        )
    if not is_ours:
        raise InvalidRequest(
            f"folder '{target.path}' has exports of another topic '{origin.name}', of another virtual host or broker, "
            f"or deleted and made anew, and is not of exports of {whose}; name another one"
        )
    before.note(note)
    return before


def _has_exported(spark: "SparkSession", target: Folder, origin: Origin, url: str) -> bool | None:
    """Whether the last exported message of each partition is that of the topic; None where none can be compared."""
    from pyspark.sql import functions as F

    exported = spark.read.schema(LAST).parquet(target.path).where(F.col("topic") == origin.name)
    what = F.struct("offset", "message_id", F.unix_millis("timestamp").alias("time_ms"))
    lasts = exported.groupBy("partition").agg(F.max_by(what, "offset").alias("last")).collect()
    with preconditions.connected(url) as connection:
        channel = connection.channel()
        found = {_is_there(channel, origin.name, row["partition"], *row["last"]) for row in lasts}
    return all(found - {None}) if found - {None} else None


def _is_there(
    channel: "Channel", topic: str, partition: int, offset: int, message_id: str, time_ms: int
) -> bool | None:
    """Whether a topic has that message; None where the message of that offset is not kept any more."""
    try:
        pulled = channel.pull(topic, partition, offset, 1)
    except NotFound:
        return False  # there is no such partition: the topic itself was found before
    except OffsetOutOfRange as fault:
        return None if offset < fault.first else False
    if not pulled.messages:
        return False  # it is yet to come
    [message] = pulled.messages
    return (message.message_id, message.timestamp_ms) == (message_id, time_ms) if message.offset == offset else None
