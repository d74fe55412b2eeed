"""The links between replicas, over real sockets and with real keys.

replicas.py    Replicas that do nothing but talk.
tampering.py   A network that changes bytes, or loses all of them.
"""
