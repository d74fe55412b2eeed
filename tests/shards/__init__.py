"""Shards: their rooms one by one, and whole processes over their real links.

driver.py               a shard process, and the other end of its links
inside.py               a shard in the test's own process, pass by pass
test_process.py         publishing, consuming, restarts
test_rings.py           priorities, exclusive and single active consumers, acknowledgement timeouts
test_timers.py          delayed publishes, delayed messages, clocks that jump
test_producers.py       what is sent again is stored once
test_transactions.py    staged, sealed, decided, and what queues of all kinds get of it
test_transactions_model.py  resends in any framing against a model, and a crash after any pass
test_staged_store.py    staged batches, reservations and decisions in the store
test_letters.py         dead letters on their way out
clocked.py              one inside the test's process, with a clock that can be put forward
test_snapshots.py       slices, reading without a trace
test_reservations.py    messages held, acknowledged, put back
test_reservations_model.py  the same against a model
test_administration.py  condemned and unused queues, peeking, status, alarms
test_queue_model.py     plain queues against a model
test_termed_model.py    queues with arguments against a model
test_collector.py       merging and collecting segments
test_cutter.py          pieces of batches
test_redo.py            the redo log, cut anywhere
test_redo_damage.py     the redo log, damaged: mended or refused
test_flips.py           one bit of a store flipped: refused, or nothing changes
test_first_version.py   stores whose rows had no checksums
test_sizes.py           what a store says of its size
test_store.py           files that are refused
"""
