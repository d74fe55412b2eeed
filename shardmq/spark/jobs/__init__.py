"""Whole jobs, as functions and as `shardmq spark …`.

publish.py        Files to an exchange.
export.py         A queue to Parquet, by date.
export_folder.py  Where an export stands until its messages are acknowledged.
replay.py         Parquet back to exchanges, at a pace.
replay_plan.py    Which rows of which files are one chunk, and when it is due.
dead_letters.py   What died of what, counted; chosen ones published again.
death_columns.py  x-death as columns.
files.py          Files as DataFrames.
templates.py      Routing keys and headers made of columns.
transaction.py    Rows on their way to the broker in one transaction.
preconditions.py  What there must be before a job starts.
outcome.py        What came of a job: figures, or what went wrong as one sentence.
summary.py        What came of a job of the pipeline.
"""
