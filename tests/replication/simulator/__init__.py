"""A replica group in a simulated world, in which everything fails that can: `make simulate`.

    seed ─► scenario.py ─► world.py (the heap) ─► node.py: a replica core, its clock, its process
                                                    │   ├── disk.py, network.py, etcd.py
                                                    │   └── application.py: publishes, confirms, deliveries
                                                    └── checker.py: invariants

world.py         the heap of what is to happen, and the run of a seed
scenario.py      what a seed draws: how many hosts, which faults and when
plays.py         faults in an order that chance would not bring about
node.py          a host: its clock, its process with a replica core, what the core asks for
disk.py          a store with what is synced and what is not
network.py       links that keep order, or lose and tell; late messages of connections of before
etcd.py          a compare-and-swap register that can be away, for all or one, lose answers, and swap late
application.py   who publishes, and answers what was released
checker.py       what must be true after every step, and at the end
mutations.py     each guard of the core, removed
__main__.py      many seeds over all processors, or the trace of one
"""
