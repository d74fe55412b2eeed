"""The Spark session of the tests: in this process, two tasks at a time, on a loopback address."""

from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from shardmq.spark.source import ShardmqDataSource
from tests.spark.cluster import INTERPRETED

DAEMON: Final = Path(__file__).parent / "daemon"
"""Where the module is that workers are forked from."""

CHECKPOINTED: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""How streams write their checkpoints: what Spark has for local files asks a process of its own, `readlink`, of each
name, which is a quarter of what a micro-batch takes. In clusters and where Spark is killed it writes as it does."""

RETRIES: Final = 4
"""Attempts that a task has; local[2] alone gives one."""


def local_session() -> SparkSession:
    """Start it, or return the one that runs. The environment has DAEMON in PYTHONPATH meanwhile."""
    builder = SparkSession.Builder().master(f"local[2,{RETRIES}]").appName("shardmq tests")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "OFF",
        **INTERPRETED,
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINTED,
        "spark.python.daemon.module": "warm_daemon",
        "spark.executorEnv.PYTHONPATH": str(DAEMON),  # also where a command started Java before
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.dataSource.register(ShardmqDataSource)
    return session
