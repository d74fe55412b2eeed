"""Several hosts: replica groups, with etcd as the one authority on who is what.

core/         One replica of a group without I/O: elections, records and releases, rejoin, join, transfer.
etcd/         Clients of etcd, and the register of brokers, hosts and groups kept there.
links/        The replicas' links with one another, on the bus.
node/         A replica in its process: the core on a store, links and etcd.
planning/     Which hosts have which replicas, and which of them lead: pure functions.
store/        What lies in a replica's store, and what moves between stores.
member.py     A process as a member of its group: it follows, leads in place, ends with its term.
standing.py   How hosts and groups are, and what is wrong with them: for the status, the page, metrics. Pure functions.
directory.py  Who is primary of each group, and at which address.
operating.py  What administrators want done with hosts and groups, written to etcd.
dialing.py    Sends a process's links to where the primaries are.
"""
