"""The whole broker as its users meet it: real processes, real sockets, the SDK.

conftest.py   a connection, channels, and a queue of each test's own
traffic.py    publishing and taking numbers, looking at counts, waiting for what must come
combined.py   queues with arguments, and what became of their messages

Every test file begins with what it is about.
"""
