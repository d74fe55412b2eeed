"""What a shard knows while it runs.

shard.py          The queues, the sessions of peers, what is active in this pass.
hosted_queue.py   A queue with all that belongs to it here: consumers, producers, delays, expiry; and which
                  kind of queue a declaration asks for.
unrecorded_queues.py  New queues that the coordinator may not have on its disk yet.
forwarding.py     Messages that gateways forward before they are here, and the queues for which they may.
common_deliveries.py  What each gateway has of the records that several deliveries share.
queue_rates.py    Counters of queues and their rates.
measures.py       What a shard measures of itself: passes, commits, flushes of the disk.
deduplication.py  Which sequence numbers of each producer a queue has.
attempts.py       What an attempt of a transaction has staged.
preparations.py   Commits that are being prepared: what is staged for them is read, in turns.
schedule.py       What is to be done when: one heap for the whole shard.
quarantine.py     Queues out of service: something stored of them is damaged. They are left exactly as they are on
                  disk, and whoever wants something of them is told so; everything else on the shard goes on.
sliced_work.py    Work that is too much for one pass: it is carried out in slices, one a pass, and others have their
                  turns in between.
"""
