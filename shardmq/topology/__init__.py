"""What exists and where messages go: authoritative in the coordinator, replicated to gateways.

entities.py   Virtual hosts, exchanges, queues, bindings, users, permissions, open transactions.
arguments.py  The x-arguments of queues, exchanges and consumers: which there are, their checks, a queue's arguments
              parsed.
commands.py   What the coordinator can be asked to do.
changes.py    What it tells everybody was done.
topology.py   All that exists, kept up to date by changes.
binding_ids.py What makes two bindings the same, and where a topology finds them.
snapshot.py   All of it at one version, as lists.
router.py     The way of a message: exchanges, exchange-to-exchange bindings, alternate exchanges, and a cache of
              routes.
repeats.py    Whether what a command asks for is there already, exactly so.
cascade.py    What goes along when a queue or an exchange is deleted.
partitions.py The partitions that a name stands for.
expressions.py Regular expressions that users give, and the time they may take.
passwords.py  Users' passwords as salted hashes, ours and RabbitMQ's.
parameters/   What components of the broker are given while it runs: shovels.
policies/     Settings of all queues and exchanges whose names match.
exchanges/    Exchange types, one file each; pure functions of bindings, key and properties.
"""
