"""Looks through stores that no process has open: what is damaged, and what a repair would do.

check.py         A whole look through a shard's closed store, in one call.
closed_store.py  A shard's store that no process has open, read without changing a byte of it.
queues.py        Looks through a shard's closed store: every row is read, and what refers to what. Nothing is changed.
rows.py          Looks at a shard's small rows: delayed messages, producers, reservations, cursors, notes.
segments.py      Looks at a shard's segments: are entries and messages both there, can both be read, and do they
                 agree?
shared.py        Looks at shared bodies: are all there that segments refer to, and does somebody refer to each?
staged.py        Looks at what transactions have on a shard: staged messages, seals, decisions that are being carried
                 out.
"""
