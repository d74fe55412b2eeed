"""What is asked of the coordinator.

commands.py      Commands under way: whose turn it is, what each waits for, its deadline.
queues.py        Steps of a command that need a shard: assigning, preparing deletion, dropping.
policies.py      Steps of a command on policies: shards hear what has changed for their queues.
replicas.py      Gateways and the topology version each has reached.
transaction_steps.py  Steps of a command on a transaction: a commit is prepared, decided, followed.
transactions.py  Two-phase commit: all shards are asked before, and told after.
claims.py        Declarations of exclusive queues that another connection has, whose gateway is away.
connections.py   Connections over all gateways: limits, and exclusive queues without an owner.
groups.py        Members of consumer groups over all gateways, and who is to have which partition.
status.py        Gateways asked how they are, on behalf of one of them.
shards.py        Shards that were added while the broker runs: when queues are placed on them.
backup.py        A backup of all stores, taken while the broker runs.
boot_definitions.py  Definitions that the coordinator is started with.
"""
