"""Topics to DataFrames, in batches and as streams.

subscription.py  Which topics and partitions a job reads, and how far each goes.
offsets.py       Places in them: where a job begins and ends.
partition_ids.py Which partitions those are, where a topic may be made anew under its name.
ranges.py        What one Spark task reads.
rate_limit.py    How far a micro-batch goes.
fetch.py         A range read by a task.
columns.py       The columns of a topic's messages.
batch.py         The reader of batches.
stream.py        The reader of streams.
"""
