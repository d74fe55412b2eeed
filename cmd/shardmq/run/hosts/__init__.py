"""`shardmq up --join`: this host's part of a broker on several hosts.

options.py     The options of one host, and the addresses that follow from them.
identity.py    Whose stores lie in a data directory: of which broker, and of which host.
needs.py       What a host needs before it says in etcd that it is there.
keys.py        Keys of all processes of several hosts.
membership.py  This host in etcd: it makes the broker or joins it, says where it is, and hears of everything.
growth.py      Shards that are added while it runs: whether this host has what they need, and where they are reached.
load.py        What the primaries on this host take of the processor.
planner.py     Carries out what is planned for replicas and leaders, on the host that leads the coordinator.
roster.py      The processes of one host, with the command line of each.
supervisor.py  Runs the replicas that this host has in etcd, and hands over what it leads before it stops.
"""
