"""What the coordinator keeps on disk.

store.py         Everything that exists.
changes.py       What each change of the topology writes.
transactions.py  Transactions, decisions, and which shards have yet to follow them.
write_batch.py   What one commit writes: edits, and reads that see them.
rows.py          The rows of the store, each with a checksum.
schema.py        The databases, keys and values.
adoption.py      A store made anew from what the shards have recorded, and from the old store where it can be read.
check.py         Looks through the closed store: every row is read, nothing is changed.
"""
