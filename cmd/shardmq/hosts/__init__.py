"""Commands about the hosts of a broker and what they have, asked of etcd.

host.py      `shardmq host`: list, drain, remove.
shard.py     `shardmq shard list`, `transfer`, `move` and `elect`.
growth.py    `shardmq shard add`.
rows.py      Hosts and groups as rows of lists.
register.py  What etcd has of a broker, for a command.
"""
