"""Commands that run the broker.

up.py          `shardmq up`.
processes.py   `shardmq shard`, `gateway`, `coordinator` (and later `management`): one process alone.
keys.py        `shardmq keys`.
supervisor.py  What `up` runs: starts, watches, starts again, stops.
child.py       One supervised process.
locks.py       What a broker must have for itself: data directory, port, socket directory.
broker.py      `shardmq up` as a child process, for the demo and for tests.
invocation.py  How a command is started as a process.
"""
