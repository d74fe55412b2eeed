"""What the coordinator knows beside the topology.

coordinator.py      What the coordinator's handlers share.
groups.py           One consumer group: members, partitions, who has which.
pending_command.py  A command under way.
promises.py         Whether enough replicas have what an answer would promise.
fencing.py          Gateways that were lost: shards end their sessions until they are back.
returning.py        Gateways that were linked with an earlier coordinator, and are still to call this one.
turns.py            Commands that name the same thing, one after the other.
transactions.py     Transaction numbers, committed names, deadlines.
"""
