"""What a command changes, or why it is refused; pure functions of the topology.

changes.py         Which rule is for which command.
exchanges.py       Exchanges and bindings.
queues.py          Queues, and which shard a new one goes to.
topics.py          Topics, with the queues, the exchange and the bindings that belong to one.
access.py          Virtual hosts, users, permissions, limits; the default user of a first start.
policies.py        Policies, operator policies, topic permissions.
parameters.py      Parameters of components, and what those report.
transactions.py    Beginning, committing, aborting, expiring.
assignment.py      Which member of a consumer group should have which partition.
equivalence.py     Declaring again what is there.
shard_identity.py  Which store serves as which shard, and whether a shard that calls is the one that is expected.
"""
