"""Which hosts have which replicas, and which of them lead: what to change next in etcd. Pure functions, no I/O.

    etcd ─► Cluster ─► plan ─► steps, each one compare-and-swap ─► etcd, and so on until there are none

cluster.py   What etcd says of a broker: hosts, groups, wishes, and sums over them.
steps.py     A change of one key.
replicas.py  New groups, learners, replicas that leave, an even spread.
formats.py   When the format of stores rises.
leaders.py   Who leads: nobody on hosts that stop, and all others share the load.
stops.py     Whether a host may stop: others lead, and every group is whole without it.
wishes.py    What an operator may wish of hosts and groups, checked.
states.py    How a group is, in a few words.
plan.py      All steps that can be taken now.
"""
