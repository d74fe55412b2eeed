"""Connections to the members of etcd, without blocking.

resolver.py    Addresses of names, looked up beside the loop.
connection.py  One connection: HTTP over TCP or TLS.
endpoints.py   Members of etcd: which to ask next, and connections kept open to them.
login.py       The token of a user, renewed when etcd forgets it.
"""
