"""DataFrames to queues.

writer.py     Batches and streams: staged by tasks, committed by the driver.
rows.py       Rows cut into publishes by where they go.
encoding.py   Columns to records.
publisher.py  Publishes on their way, until each is confirmed.
"""
