"""A broker as Spark's processes use it; msgpack alone.

broker.py    A blocking connection that asks again.
link.py      Its socket.
protocol.py  Frames and operations of the native protocol.
"""
