"""Spark as a process of its own: `python -m shardmq.cmd.demo.stream URL FOLDER`.

For each line that it reads it counts what the topic has by then, from where its checkpoint ends, and writes all counts
as a line of JSON.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shardmq.cmd.demo.member import TOPIC
from shardmq.cmd.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READY: Final = "ready"
SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "2",
    # For a minute and small batches, compiling takes longer than it saves.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def count(spark: "SparkSession", url: str, checkpoint: str) -> dict[str, int]:
    """Count the flights by carrier, as a stream: what the topic has now, from where the checkpoint ends.

    Returns:
        The flights of each carrier, those of earlier runs included: they are in the checkpoint.
    """
    flights = (
        spark.readStream.format("shardmq")
        .option("url", url)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .schema("key binary")  # of what a message has, only the carrier
        .load()
    )
    query = (
        flights.groupBy(flights.key.cast("string").alias("carrier"))
        .count()
        .writeStream.outputMode("complete")
        .format("memory")
        .queryName("carriers")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return {row["carrier"]: row["count"] for row in spark.table("carriers").collect()}


def main() -> None:
    """Count once for each line, until there are no more."""
    url, folder = sys.argv[1:]
    with session("shardmq demo", "local[2]", SETTINGS, Path(folder) / "spark.log") as spark:
        print(READY, flush=True)
        for _ in sys.stdin:
            print(json.dumps(count(spark, url, f"{folder}/checkpoint")), flush=True)


if __name__ == "__main__":
    main()
