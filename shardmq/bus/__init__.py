"""How the processes talk: the only room that knows ZeroMQ.

messages.py   what they say: typed messages, and who says which to whom
stores.py     what they say of their stores: whose they are, and copies of them
base.py       the base of messages
link.py       sessions with numbering, pings and loss made visible
address.py    which addresses are safe to use
curve.py      keys, and who may call over TCP
wait.py       the context links are made with, and waiting for them without an event loop
"""
