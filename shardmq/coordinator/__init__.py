"""The coordinator: the authority on what exists. One process; data flows on while it restarts.

process.py      options, start and stop, the loop
desk.py         commands under way: whose turn it is, what each waits for, its deadline
attendance.py   who is connected over all gateways: connection limits, exclusive queues without an owner
census.py       gateways asked how they are, on behalf of one of them
shards.py       the links to the shards: which queues they have been given, are to condemn, are to drop
rules.py        what a command changes, or why it is refused: which rule is for which
exchanges.py    the rules for exchanges and bindings
queues.py       the rules for queues, and which shard a new one goes to
access.py       the rules for virtual hosts, users, permissions and limits
equivalence.py  declaring again what is there
removal.py      what goes along when something goes
store.py        all of it on disk
users.py        the users of a first start
"""
