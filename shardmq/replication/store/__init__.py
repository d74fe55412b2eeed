"""What lies in a replica's store, and what goes between stores: on any engine, for any layout that may be replicated.

note.py              How far a replica is: incarnation, promised term, last record, history; in each commit.
touched_keys.py      The keys that records touched which may not be on all replicas: what a rejoin has to fetch.
replica.py           The note and the touched keys of one store, and how it is opened.
envelope.py          Edits as bytes with a checksum, and back; what is not what was sent is refused.
key_range.py         The rows that replicas share, and which of them lie between two places.
faults.py            What a replica refuses.
"""
