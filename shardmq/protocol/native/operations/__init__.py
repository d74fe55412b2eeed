"""What the payloads mean.

fields.py          The base of operations, and the types of their fields.
connection.py      Connections and channels: opening, closing, heartbeats, answers, blocked.
topology.py        Exchanges, queues and bindings, and looking at them; policies, topic permissions, parameters.
topics.py          Topics: declared, deleted, extended, looked at.
basic.py           Publishing, consuming, delivering, settling, confirms, returns.
transaction.py     Transactions over any number of queues.
reads.py           Reading a queue in parallel: slices, reads, reservations; searching queues and topics.
groups.py          Which partitions the consumer of a group has.
offsets.py         Topics by the offsets of their messages, and the offsets of groups.
statistics.py      What exists in pages, filtered and sorted, with counters and rates.
administration.py  Virtual hosts, users, permissions, limits, definitions, backups.
codec.py           The table of all operations: encode and decode.
publishing.py      The frame of a large BasicPublish, written with one copy of its records.
"""
