"""The coordinator: the authority on what exists. One process; data flows on while it restarts.

process.py  options, start and stop, the loop
desk.py     commands under way: whose turn it is, what each waits for, its deadline
census.py   gateways asked how they are, on behalf of one of them
shards.py   the links to the shards: which queues they have been given, which they are to drop
rules.py    what a command changes, or why it is refused
store.py    all of it on disk
users.py    the users of a first start
"""
