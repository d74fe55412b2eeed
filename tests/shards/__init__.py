"""Shards: their rooms one by one, and whole processes over their real links.

driver.py          a shard process, and the other end of its links
inside.py          a shard in the test's own process, pass by pass
clocked.py         the same, with a clock that can be put forward
stores.py          stores that are closed and opened again, on disk and in memory
damaging.py        damage to what a shard has stored, made on purpose
test_process.py    publishing, consuming, restarts
handlers/          what is asked of a shard
state/             what it knows while it runs
queues/            queues against models
storage/           its store: read back, cut anywhere, flipped, full
segments/          how segments are cut, and what they count
check/             closed stores, looked through and repaired
"""
