"""What lies in a replica's store, and what moves between stores: on any engine, for any layout that may be replicated.

    primary    edits ─► replicated_engine.py ─► record ─► its own store, and the bus
    follower   record ─► follower.py ─► its store: the same edits, the note and the touched keys in one commit
    rejoin     tail.py: what a follower lacks, or has too much of, as a few rows
    join       key_range.py: all rows, range by range, between the records

note.py              How far a replica is: incarnation, promised term, last record, history; in each commit.
touched_keys.py      The keys that records touched which may not be on all replicas: what a rejoin has to fetch.
replica.py           The note and the touched keys of one store, and a commit with both.
envelope.py          Edits as bytes with a checksum, and back; what is not what was sent is refused.
record.py            A record: the edits of one commit, with its term and index.
record_ring.py       The most recent records, bounded in bytes.
replicated_engine.py The primary's engine: every commit is a record.
follower.py          A follower's store: takes records, rejoins, joins.
tail.py              What brings a rejoining store to where the primary is.
key_range.py         The rows between two places of a store, to be copied or compared.
joining.py           The newcomer's side of a join: ranges are put, and what is not in them is deleted.
digest.py            The digest of a store: equal on replicas that hold the same rows.
faults.py            What a replica refuses.
"""
