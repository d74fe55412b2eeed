"""DataFrames to queues.

writer.py     Writers of batches and streams: tasks stage rows, the driver commits them.
rows.py       Rows split into publishes by their targets.
encoding.py   Columns to records.
literals.py   Values of Python's as Arrow has them.
publisher.py  A window of publishes, kept until each is confirmed.
"""
