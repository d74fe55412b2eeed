"""What a shard keeps on disk.

store.py         Load, commit a write batch, read a segment.
timer_table.py   Delayed messages, and messages that were returned with a delay, in the order they are due.
staging_table.py Staged batches of transactions, in the order of transaction, attempt and sequence.
rows.py          Rows read through the engine and checked.
schema.py        How it lies in the engine: databases, keys, values.
entries.py       What is stored beside segments: timers, staged batches, reservations, producers' sequences.
shared_bodies.py Bodies that are stored once for several queues: their numbers, who refers to them.
write_batch.py   What one commit writes.
write_buffer.py  What passes have changed and not yet written, and the group commit.
recovery.py      What a start finds, queue by queue.
decoding.py      What a shard's small rows say, once their checksums are found to be right.
identity.py      Whose a shard's store is: its number, its broker, the newest coordinator it has heard of.
key_check.py     A start looks at keys, and at bodies only when they are asked for: are the bodies there, and all at
                 their keys?
"""
