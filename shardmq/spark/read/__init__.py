"""Queues to DataFrames.

reader.py    A queue in slices, one for each partition.
columns.py   The columns of messages, made from deliveries.
decoding.py  Records to columns.
drain.py     Messages acknowledged when a job is done.
"""
