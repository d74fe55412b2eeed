"""How the processes talk. The only folder that imports zmq.

address.py           Endpoints, and which of them are safe.
curve.py             CurveZMQ: a process's keys, and who may call.
link.py              Numbering, pings and loss made visible, for both ends of a link.
dialer.py            The end that calls.
listener.py          The end that is called, and its peers.
poller.py            Waiting for links and file descriptors without an event loop.
coordinator_link.py  The coordinator as seen from a process with a topology replica: commands under way, changes
                     coming in.
messages/            What they say.
"""
