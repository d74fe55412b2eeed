"""Spark and shardmq: DataFrames published exactly once, queues read as DataFrames.

    df.write.format("shardmq").option("url", "shardmq://…").option("exchange", "flights").mode("append").save()
    spark.read.format("shardmq").option("url", "shardmq://…").option("queue", "dead").load()

source.py           the data source: what Spark finds, and what it hands out
options.py          its options, one table
records.py          columns to runs of records, without a step for each row
writer.py           batches and streams, published and committed
publisher.py        runs on their way, until they are confirmed
broker.py           a connection that asks again
link.py             its socket
wire.py             frames of the native protocol, with msgpack alone
bundle.py           the zip that executors need
pyspark_shardmq/    what Spark looks for where shardmq is installed
"""
