"""The rules.

queues.py   Queues where messages stay, and why.
ages.py     Queues where some messages wait for too long, while others move.
flow.py     Queues where what comes and goes is wrong: loops, expiry, too much for consumers.
clients.py  Connections, groups of consumers and transactions.
broker.py   Processes: alarms, shards that are away.
replicas.py Hosts and replicas, of a broker on several hosts.
"""
