"""Whole jobs, as functions and as `shardmq spark …`.

options.py        The keywords of the jobs: one frozen value for each.
publish.py        Files to an exchange.
export.py         A queue to Parquet, by date.
export_folder.py  The folder of an export until its messages are acknowledged.
replay.py         Parquet back to exchanges, at a pace.
replay_plan.py    Which rows of which files are one chunk, and when it is due.
dead_letters.py   Dead letters counted by what they died of; chosen ones published again.
death_columns.py  x-death as columns.
files.py          Files as DataFrames.
templates.py      Routing keys and headers made of columns.
transaction.py    Sending rows to the broker in one transaction.
preconditions.py  What must exist before a job starts.
topics/           Topics to Parquet, and back to exchanges.
outcome.py        What came of a job: a summary, or one typed error with one sentence.
"""
