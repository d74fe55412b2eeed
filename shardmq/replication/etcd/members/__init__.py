"""Connections to the members of etcd, without blocking.

resolver.py    Addresses of names, looked up beside the loop.
connection.py  One connection: HTTP over TCP or TLS.
endpoints.py   Members of etcd: which to ask next, and connections kept open to them.
attempt.py     A request on its way, and the members that were asked.
failures.py    What is said of requests that came to nothing.
login.py       The token of a user, renewed when etcd forgets it.
"""
