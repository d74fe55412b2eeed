"""What can be seen of a broker from outside, without a login.

readiness.py     Whether a gateway takes clients in, and reaches the coordinator and all shards.
certificates.py  The certificates that are shown to clients, and until when they hold.
"""
