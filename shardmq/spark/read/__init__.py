"""Queues to DataFrames.

reader.py    A queue in slices, one for each partition.
columns.py   The columns there are, made of what was read.
decoding.py  Records to columns.
drain.py     Messages acknowledged when a job is done.
"""
