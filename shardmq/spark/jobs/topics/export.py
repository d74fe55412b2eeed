"""A topic to Parquet, in folders by date. Run again, it adds what came since.

It is a stream that ends where the topic does. The folder has Spark's checkpoint and its list of the files that count,
so that an export that broke off anywhere is finished by the next one, and Spark reads no message twice.
"""

import time
from typing import TYPE_CHECKING, Final

from shardmq.errors import InvalidRequest
from shardmq.spark.jobs import preconditions
from shardmq.spark.jobs.export import dated
from shardmq.spark.jobs.export_folder import Folder, Origin
from shardmq.spark.jobs.options import TopicExportOptions, takes_keywords
from shardmq.spark.jobs.outcome import Summary, plain_faults
from shardmq.spark.jobs.topics.checkpoint import checkpoint_of
from shardmq.spark.jobs.transaction import FORMAT, asking

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BATCH_MESSAGES: Final = 10_000_000
"""Messages that are written before Spark notes where it is; an export that breaks off begins with the last of them."""

SCHEMA: Final = (
    "body binary, exchange string, routing_key string, message_id string, headers map<string,string>, "
    "timestamp timestamp, persistent boolean, raw_properties binary, topic string, partition int, offset bigint, "
)


@takes_keywords(TopicExportOptions)
def export_topic(spark: "SparkSession", topic: str, options: TopicExportOptions) -> Summary:
    """Write a topic's messages to Parquet, in folders date=YYYY-MM-DD, by when the broker took them (UTC).

    The first export to a folder begins at `starting_offsets`, each later one where the one before it ended; run one at
    a time. A folder is of one topic of one virtual host and broker. The topic stays as it is.

    Args:
        spark: the session.
        topic: the topic's or stream's name.
        options: see Keywords.

    Raises:
        NotFound: the topic does not exist.
        InvalidRequest: the folder exists, and is not of exports of this topic.
        PreconditionFailed: messages were dropped before they could be exported.
        ShardmqError: the export failed. The next one goes on where it was.
    """
    started_at = time.monotonic()
    if options.by not in ("date", "hour"):
        raise InvalidRequest(f"'{options.by}' is no way to lay out files; give by='date' or by='hour'")
    preconditions.check_topic(options.url, topic)
    with asking(options.url) as broker:
        origin = Origin(broker.broker, broker.vhost, topic)
    with plain_faults(f"finding what was exported of topic '{topic}' to {options.to}"):
        checkpoint = checkpoint_of(spark, Folder(spark, options.to), origin, options.url)
    with plain_faults(f"exporting topic '{topic}' to {options.to}"):
        query = _begin(_messages(spark, topic, options), options, checkpoint)
        try:
            query.awaitTermination()
        finally:
            query.stop()
    progress = [batch for batch in query.recentProgress if batch["numInputRows"]]
    return Summary(
        job="export",
        rows=sum(batch["numInputRows"] for batch in progress),
        bytes=sum(batch["observedMetrics"]["exported"]["bytes"] for batch in progress),
        seconds=time.monotonic() - started_at,
    )


def _messages(spark: "SparkSession", topic: str, options: TopicExportOptions) -> "DataFrame":
    from shardmq.spark.read.columns import PROPERTIES

    given = {
        "url": options.url,
        "subscribe": topic,
        "startingOffsets": options.starting_offsets,
        "maxOffsetsPerTrigger": str(BATCH_MESSAGES),
        "minPartitions": str(options.partitions),
        "failOnDataLoss": str(options.fails_on_loss).lower(),
    }
    schema = f"{SCHEMA}properties {PROPERTIES.simpleString()}"
    return spark.readStream.format(FORMAT).options(**given).schema(schema).load()


def _begin(messages: "DataFrame", options: TopicExportOptions, checkpoint: Folder) -> "StreamingQuery":
    from pyspark.sql import functions as F

    size = F.coalesce(F.sum(F.octet_length("body")), F.lit(0)).alias("bytes")
    columns = ["date"] if options.by == "date" else ["date", "hour"]
    return (
        dated(messages, options.by)
        .observe("exported", size)
        .writeStream.format("parquet")
        .partitionBy(*columns)
        .option("path", options.to)
        .option("checkpointLocation", checkpoint.path)
        .trigger(availableNow=True)
        .start()
    )
