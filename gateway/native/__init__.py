"""The native front: operations to session calls, and back.

connection.py    One client connection.
handshake.py     Opening it: authentication, limits, server properties.
channel.py       A channel's place in the connection: what waits, what is held.
dispatch.py      Which call carries out each operation.
publish.py       Publishes: checked, large ones in slices; held while an alarm is on.
consume.py       Consuming, getting, qos.
direct_reply.py  Queues of answers: direct reply-to.
outbox.py        What is sent to the client.
"""
