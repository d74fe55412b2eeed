"""The `shardmq` program: commands parse, build and run; what they run is elsewhere.

main.py        the list of commands, and how each of them may end
roles.py       `shardmq shard`, `gateway` and `coordinator`: one process, alone
up.py          `shardmq up`: a whole broker on this machine
supervisor.py  what `up` runs: starts, watches, starts again, stops
child.py       one supervised process
holds.py       what a broker must have for itself: data directory, port, directory for sockets
broker.py      `shardmq up` as a child process, for the demo and for tests
invocation.py  how one of our commands is started as a process
options.py     options that several commands have: data directory, keys, watermarks, TLS
amounts.py     bytes with units, shares of memory and NAME=VALUE on the command line
session.py     what the commands that talk to a broker share
listing.py     what the commands about nouns share: tables, one thing done and told
status.py      `shardmq status`
publish.py     `shardmq publish`
consume.py     `shardmq consume`
messages.py    messages as commands show them
exchange.py    `shardmq exchange`
queue.py       `shardmq queue`
peek.py        `shardmq queue peek`
move.py        `shardmq queue move`
binding.py     `shardmq binding`
transaction.py  `shardmq transaction`
user.py        `shardmq user`
vhost.py       `shardmq vhost`
limits.py      `shardmq user limits` and `vhost limits`
permission.py  `shardmq permission`
connection.py  `shardmq connection`
channel.py     `shardmq channel`
consumer.py    `shardmq consumer`
definitions.py `shardmq definitions`
backup.py      `shardmq backup` and `shardmq restore`
keys.py        `shardmq keys`
demo.py        `shardmq demo`
flights.py     the flights of the demo and what pandas counts of them
spark/         `shardmq spark`
store/         `shardmq store`
bench/         `shardmq bench`
"""
