"""The coordinator: the authority on what exists. One process; data flows on while it restarts.

process.py      options, start and stop, the loop
desk.py         commands under way: whose turn it is, what each waits for, its deadline
tasks.py        one of them
attendance.py   who is connected over all gateways: connection limits, exclusive queues without an owner
backup.py       a backup of all stores while the broker runs
census.py       gateways asked how they are, on behalf of one of them
shards.py       the links to the shards: which queues they have been given, are to condemn and drop; transactions
members.py      which store serves as which shard, and whether the one that calls is it
endings.py      how transactions end: all shards are asked before, and told after
registry.py     transactions' numbers, committed names, and the time
rules.py        what a command changes, or why it is refused: which rule is for which
exchanges.py    the rules for exchanges and bindings
queues.py       the rules for queues, and which shard a new one goes to
access.py       the rules for virtual hosts, users, permissions and limits
transactions.py the rules for transactions
equivalence.py  declaring again what is there
adoption.py     a store made anew from what the shards have recorded
removal.py      what goes along when something goes
store.py        all of it on disk
ledger.py       the part of that which is about transactions
checkup.py      a look through that store while no process has it open
users.py        the users of a first start
"""
