"""The pipeline: what people do with Spark and a broker all the time, as functions and as `shardmq spark …`.

publish.py      files to an exchange
export.py       a queue to Parquet, by date
landing.py      where an export stands until its messages are acknowledged, so that a crash leaves no row twice
replay.py       Parquet back to exchanges, at a pace
chunks.py       which rows of which files are one chunk of a replay, and when it is due
deadletters.py  what died of what, counted; chosen ones published again
deaths.py       x-death as columns, and what is chosen by them
files.py        files as DataFrames, and what is known of them
templates.py    routing keys and headers made of columns
sending.py      rows on their way to the broker in one transaction, counted
targets.py      what there must be before a job starts, and what is there after it
faults.py       what goes wrong in Spark, as one sentence
summary.py      what came of a job

Rows stay in Spark: all of it is expressions of SQL and the data source, nothing here runs on executors.
"""
