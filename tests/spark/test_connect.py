"""Spark Connect, where the driver is another process: reading, writing, streams and drains work."""

import os
import subprocess
import sys
from pathlib import Path

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.spark.session import DAEMON
from tests.spark.topics.streams import publish

PROGRAM = """
import sys
import shardmq.spark
from pyspark.sql import SparkSession
from shardmq.errors import InvalidRequest

url, folder = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert type(spark).__module__.startswith("pyspark.sql.connect.")
shardmq.spark.register(spark)
at = {"url": url}
rows = spark.read.format("shardmq").options(**at, subscribe="connected").load()
assert rows.count() == 100
batch = rows.selectExpr("value", "'connect-out' as routing_key")
batch.write.format("shardmq").options(**at, exchange="").mode("append").save()
source = spark.readStream.format("shardmq").options(**at, subscribe="connected", startingOffsets="earliest").load()
stream = source.selectExpr("value", "'connect-out' as routing_key").writeStream.format("shardmq")
query = stream.options(**at, exchange="", checkpointLocation=folder).trigger(availableNow=True).start()
query.awaitTermination()
assert query.exception() is None
with shardmq.spark.drain(spark, queue="connect-out", **at) as messages:
    print("DRAINED", messages.count())
try:
    shardmq.spark.export_topic(spark, "connected", folder, **at)
except InvalidRequest as refused:
    print("REFUSED", refused)
"""


def test_all_but_whole_jobs_work_over_spark_connect(broker: Broker, channel: shardmq.Channel, tmp_path: Path) -> None:
    channel.queue_declare("connected", durable=True, arguments={"x-queue-type": "stream"})
    channel.queue_declare("connect-out", durable=True)
    publish(channel, "connected", 0, 100)
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    named = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(DAEMON)}
    environment = {**os.environ, **named}
    command = [sys.executable, str(script), broker.url, str(tmp_path / "checkpoint")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    assert "DRAINED 200" in done.stdout
    assert "REFUSED shardmq.spark.export_topic needs Spark's driver in this process" in done.stdout
    channel.queue_delete("connected")
    channel.queue_delete("connect-out")
