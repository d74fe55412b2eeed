"""Spark and shardmq: DataFrames published exactly once, queues and topics read as DataFrames and streams.

    df.write.format("shardmq").option("url", "shardmq://…").option("exchange", "flights").mode("append").save()
    spark.read.format("shardmq").option("url", "shardmq://…").option("queue", "dead").load()
    spark.readStream.format("shardmq").option("url", "shardmq://…").option("subscribe", "orders").load()

source.py         The data source: what Spark finds, and what it hands out.
options.py        Its options, each declared once.
option_values.py  Their values, read from text.
tasks.py          What a task knows of itself: the gateway that is best for it.
bundle.py         The zip that executors need.
connection/       A broker as Spark's processes use it; msgpack alone.
write/            DataFrames to queues.
read/             Queues to DataFrames.
topics/           Topics to DataFrames and streams.
jobs/             Whole jobs, as functions and as `shardmq spark …`.
pyspark_shardmq/  The package by which Spark finds the data source.
"""

import atexit
import re
import shutil
import tempfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

# Imported now: importing the module of that name later would replace the function.
from shardmq.spark.read.drain import acknowledge, drain, position_ranges, release

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shardmq.spark.bundle import make_zip
    from shardmq.spark.jobs.dead_letters import deadletters
    from shardmq.spark.jobs.export import export
    from shardmq.spark.jobs.publish import publish
    from shardmq.spark.jobs.replay import replay
    from shardmq.spark.jobs.topics.export import export_topic
    from shardmq.spark.jobs.topics.replay import replay_topic

__all__ = [
    "acknowledge",
    "deadletters",
    "drain",
    "export",
    "export_topic",
    "make_zip",
    "position_ranges",
    "publish",
    "register",
    "release",
    "replay",
    "replay_topic",
]

_DEFINED_IN = {
    "deadletters": "shardmq.spark.jobs.dead_letters",
    "export": "shardmq.spark.jobs.export",
    "export_topic": "shardmq.spark.jobs.topics.export",
    "make_zip": "shardmq.spark.bundle",
    "publish": "shardmq.spark.jobs.publish",
    "replay": "shardmq.spark.jobs.replay",
    "replay_topic": "shardmq.spark.jobs.topics.replay",
}


def register(spark: "SparkSession") -> None:
    """Make format("shardmq") known to a session, and ship it to executors on other machines.

    It is not needed where shardmq is installed on driver and executors. Calling it twice does no harm.

    Args:
        spark: the session.

    Raises:
        StartupRefused: the zip for executors cannot be made.
    """
    from shardmq.spark.source import ShardmqDataSource

    master = spark.conf.get("spark.master", None) or ""
    if not re.match(r"local(\[|$)", master):  # tasks run on this machine
        _ship(spark)
    # Last: a registered source sees only files that were shipped before.
    spark.dataSource.register(ShardmqDataSource)


def _ship(spark: "SparkSession") -> None:
    from shardmq.spark.bundle import make_zip
    from shardmq.version import VERSION

    folder = Path(tempfile.mkdtemp(prefix="shardmq-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # executors that start later fetch it
    spark.addArtifacts(str(make_zip(folder / f"shardmq_spark-{VERSION}.zip")), pyfile=True)


def __getattr__(name: str) -> object:
    # Executors import this package as well, and their zip has no jobs.
    if name not in _DEFINED_IN:
        raise AttributeError(f"module 'shardmq.spark' has no attribute '{name}'")
    found: object = getattr(import_module(_DEFINED_IN[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
