"""A replica in its process: the core's effects are carried out on a store, on links and on etcd.

    links ──┐                        ┌─► store     commits, one flush for what came in one turn
    etcd ───┼─► node ──► core ───────┼─► links
    owner ──┘                        └─► etcd

node.py       The replica, driven by its owner's loop.
neighbours.py What it needs of its links, and of etcd.
store.py      What the core writes and reads, on an engine.
engine.py     The engine that the owner of the primary's store has: each commit is a record.
format.py     The format of the store, which rises with the broker's.
news.py       What the register tells beside the group's key: where the others are, and what operators wish.
heir.py       The next primary, until it has heard that it may begin.
writes.py     Commits until they are on disk, and what is done while that is full.
followers.py  How far the others are behind their primary.
telling.py    What of a replica's life its process tells in the log.
errors.py     What a replica that does not lead refuses.
"""
