"""What Spark looks for: a top-level module pyspark_… with a DefaultSource makes format("shardmq") known by itself."""

from shardmq.spark.source import ShardmqDataSource as DefaultSource

__all__ = ["DefaultSource"]
