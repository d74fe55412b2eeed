"""`bench scaling`: what more gateways and shards bring, what each process takes of a core, and a model made of that.

command.py    The command.
rows.py       What is measured, and how it is recorded.
processes.py  A broker whose processes are started one by one.
usage.py      Processor time of the broker's processes, of clients, and memory.
spark.py      Rows that Spark publishes and reads.
messages.py   Messages published and consumed over AMQP.
queues.py     Declarations, as the number of queues grows.
replicas.py   What a copy of a shard takes.
etcd.py       What etcd takes.
groups.py     Groups that begin, as their number grows.
model.py      How rates grow with processes and hosts: arithmetic.
derived.py    What the documents derive from recorded costs by that.
"""
