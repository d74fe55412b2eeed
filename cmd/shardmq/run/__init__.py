"""Commands that run the broker.

up.py          `shardmq up`.
processes.py   `shardmq shard`, `gateway` and `coordinator`: one process alone.
shovels.py     `shardmq shovels`: the shovels of a broker alone.
management.py  `shardmq management`: the HTTP API alone, for a broker anywhere.
keys.py        `shardmq keys`.
roster.py      The processes of a broker, with the command line of each.
supervisor.py  Starts the processes of a broker, restarts those that end, stops all in order.
notices.py     What the supervisor says: the events of a broker.
child.py       One supervised process, always or only while it is wanted.
watch.py       Tells systemd of a whole broker, and ends processes of it that hang.
locks.py       Locks on the data directory and the port, and a private directory for sockets.
broker.py      `shardmq up` as a child process, for the demo and for tests.
invocation.py  Starting a command of ours as a process: as a program, or as a fork of this one.
hosts/         `shardmq up --join`: one host of several.
"""
