"""Hosts of their own on one machine.

network.py  Network namespaces on a bridge; a host may be cut off.
machine.py  A host and its processes.
etcd.py     An etcd on three of them.
"""
