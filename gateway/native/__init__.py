"""The native front: operations to session calls, and back.

connection.py     One client connection.
channel.py        A channel's place in the connection: what waits, what is held.
dispatch.py       Which call carries out each operation.
consume.py        Consuming, getting, qos.
publish_check.py  Checks of large publishes of native clients, in slices: others are served in between.
"""
