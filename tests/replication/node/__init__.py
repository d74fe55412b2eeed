"""Nodes of a group on real stores, and a network and a register that fail as they are told.

alone.py      A group that has one replica.
cluster.py    Three hosts on a clock of their own, with a client that notes what it was answered.
network.py    Links in memory: they keep order, or lose and tell.
register.py   etcd's key in memory: it is slow, away, or loses answers.
"""
