"""Segments: the unit of storing, what is in memory of them, and how they are cut.

body_cache.py       Which bodies are in memory, within a budget.
chunks.py           Messages of a segment as several readers get them, put together once.
compactable.py      What the compactor looks after.
delivery_counts.py  How often each of some messages was delivered in vain, kept by ranges: most were not, and others
                    were together.
index_entry.py      A segment's entry in the index.
reference_counts.py How many segments refer to each shared body.
segment.py          Segments: the unit in which messages are stored, read back and deleted.
shared_batch.py     Batches whose records are stored once for several queues.
tag_summary.py      About which tags the messages of a segment have: a Bloom filter.
timed_segment.py    Segments of partitions, which know when their messages came.
slicer.py           Cutting record batches by message.
steps.py            Work that is carried out in steps, with what each step counts for.
"""
