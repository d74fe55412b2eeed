"""What it keeps on disk.

store.py         Everything that exists.
transactions.py  Transactions, decisions, and which shards have yet to follow them.
adoption.py      A coordinator's store made anew from what the shards have recorded, and from the old store where it
                 can be read.
check.py         A look through the coordinator's closed store: every row is read. Nothing is changed.
"""
