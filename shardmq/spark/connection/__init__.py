"""A broker as Spark's processes use it; msgpack alone.

broker.py        One blocking connection, which reconnects and repeats its requests.
shared.py        This process's connections, shared by its tasks.
gateways.py      Which gateway comes first.
topics.py        What it asks of topics.
reservations.py  What jobs ask of reservations, and the mark of a job that runs.
link.py          Its socket.
protocol.py      Frames and operations of the native protocol.
"""
