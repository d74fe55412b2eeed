"""A Spark job: publish a DataFrame exactly once, and read a queue as a DataFrame.

    python docs/examples/spark_job.py [URL]

It needs Java 17 or newer and `pip install 'shardmq[spark]'`; in a clone, `.venv/bin/pip install -e '.[spark]'`.
"""

import os
import sys

from pyspark.sql import SparkSession

import shardmq

url = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("SHARDMQ_URL", "shardmq://guest:guest@127.0.0.1:5672/")
with shardmq.connect(url) as connection, connection.channel() as channel:
    channel.exchange_declare("flights", "topic", durable=True)
    channel.queue_declare("departures", durable=True)
    channel.queue_bind("departures", "flights", "*.EWR")

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's workers run this Python
spark = SparkSession.builder.getOrCreate()
flights = spark.createDataFrame(
    [("UA", "EWR", 1545), ("B6", "EWR", 725), ("AA", "JFK", 1141)], "carrier string, origin string, flight int"
)
(
    flights.selectExpr("to_json(struct(*)) as value", "concat(carrier, '.', origin) as routing_key")
    .write.format("shardmq")
    .option("url", url)
    .option("exchange", "flights")
    .option("mandatory", "false")  # nothing is bound for JFK
    .option("txnId", "flights-2026-11-20")  # run again, the job publishes nothing twice
    .mode("append")
    .save()
)

departures = spark.read.format("shardmq").option("url", url).option("queue", "departures").load()
departures.selectExpr("routing_key", "cast(body as string) as flight").show(truncate=False)
spark.stop()
