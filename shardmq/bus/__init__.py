"""How the processes talk: the only room that knows ZeroMQ.

messages.py   what they say: typed messages, and who says which to whom
link.py       sessions with numbering, pings and loss made visible
wait.py       waiting for links, for processes without an event loop
"""
