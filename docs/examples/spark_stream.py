"""A Spark stream: count the flights of a topic by carrier, stop, and go on from the checkpoint.

    python docs/examples/spark_stream.py [URL]

It needs Java 17 or newer and `pip install 'shardmq[spark]'`; in a clone, `.venv/bin/pip install -e '.[spark]'`.
"""

import os
import sys
import tempfile

from pyspark.sql import SparkSession

import shardmq

url = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("SHARDMQ_URL", "shardmq://guest:guest@127.0.0.1:5672/")
TOPIC, CARRIERS = "example-departures", ("UA", "B6", "AA")

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's workers run this Python
spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
flights = (
    spark.readStream.format("shardmq")
    .option("url", url)
    .option("subscribe", TOPIC)
    .option("startingOffsets", "earliest")  # of a new checkpoint; later the stream goes on where it was
    .option("maxOffsetsPerTrigger", 100)  # messages of a micro-batch
    .option("groupId", "spark")  # `shardmq group describe` shows how far the stream is
)

with (
    shardmq.connect(url) as connection,
    connection.channel() as channel,
    tempfile.TemporaryDirectory() as checkpoint,
):
    channel.topic_declare(TOPIC, 3)
    for first in (0, 200):
        with channel.publisher() as publisher:
            for number in range(first, first + 150):
                publisher.publish(TOPIC, CARRIERS[number % 3], b"flight %d" % number)
        counts = flights.load().selectExpr("cast(key as string) as carrier").groupBy("carrier").count()
        query = (
            counts.writeStream.outputMode("complete")
            .format("memory")  # a table of the driver; files, queues and topics are sinks for real
            .queryName("departures")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)  # what is there now, then it ends; or processingTime="1 second"
            .start()
        )
        query.awaitTermination()
        batches = [batch["numInputRows"] for batch in query.recentProgress if batch["numInputRows"]]
        print(f"{sum(batches)} flights in {len(batches)} micro-batches; by carrier so far:")
        for row in spark.table("departures").orderBy("carrier").collect():
            print(f"  {row['carrier']}: {row['count']}")
    channel.topic_delete(TOPIC)
spark.stop()
