"""Spark and shardmq: DataFrames published exactly once, queues read as DataFrames.

    df.write.format("shardmq").option("url", "shardmq://…").option("exchange", "flights").mode("append").save()
    spark.read.format("shardmq").option("url", "shardmq://…").option("queue", "dead").load()

source.py           the data source: what Spark finds, and what it hands out
options.py          its options, one table
bundle.py           the zip that executors need

Writing:

writer.py           batches and streams: staged by tasks, committed by the driver
rows.py             rows cut into publishes by where they go
records.py          columns to records, without a step for each row
publisher.py        publishes on their way, until they are confirmed

Reading:

reader.py           a queue in slices, one for each partition
columns.py          the columns there are, made of what was read
unpacking.py        records to columns
drain.py            messages that are acknowledged when a job is done

The broker:

broker.py           a connection that asks again
link.py             its socket
wire.py             frames of the native protocol, with msgpack alone

pipeline/           whole jobs, as functions and as `shardmq spark …`
pyspark_shardmq/    what Spark looks for where shardmq is installed
"""
