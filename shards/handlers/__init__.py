"""What is asked of a shard.

publish.py        Publishes: to queues at once or later, once each.
consume.py        What consumers ask for: messages; acks, nacks and renewals; credit and prefetch.
atomic_commit.py  Publishes and settlements carried out together or not at all.
statistics/       The state of the shard, and statistics of queues.
queues.py         Queues: assigned, deleted, counted, peeked into, purged.
transactions.py   Staged publishes: taken in, sealed, prepared, decided.
decisions.py      Decided transactions: their messages join their queues, or are dropped, in portions.
reservations.py   Messages reserved under a name, for a time.
reads.py          Queues cut into slices, and read without changing them.
searches.py       Messages that fit filters, found in slices between other work.
partitions/       What is asked of partitions alone: pulls, groups.
delays.py         Delayed publishes, and messages that were returned with a delay.
dead_letters.py   Dead letters on their way to a gateway.
backup.py         The shard's part in a backup: it stands still for a moment, and copies its store while it goes on.
enrolment.py      Whom a shard listens to, and who recognises it.
"""
