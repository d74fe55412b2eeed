"""The `shardmq` program: commands parse, build and run; what they run is elsewhere.

main.py        the list of commands, and how each of them may end
roles.py       `shardmq shard`, `gateway` and `coordinator`: one process, alone
up.py          `shardmq up`: a whole broker on this machine
supervisor.py  what `up` runs: starts, watches, starts again, stops
child.py       one supervised process
holds.py       what a broker must have for itself: data directory, port, directory for sockets
broker.py      `shardmq up` as a child process, for the demo and for tests
invocation.py  how one of our commands is started as a process
session.py     what the commands that talk to a broker share
status.py      `shardmq status`
publish.py     `shardmq publish`
consume.py     `shardmq consume`
topology.py    `shardmq exchange`, `queue` and `binding`
demo.py        `shardmq demo`
flights.py     the flights of the demo and what pandas counts of them
bench/         `shardmq bench`
"""
