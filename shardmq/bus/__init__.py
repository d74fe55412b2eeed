"""How the processes talk. The only folder that imports zmq.

address.py           Endpoints, and which of them are safe.
curve.py             CurveZMQ: a process's keys, and who may call.
link.py              Sessions: envelope numbers, pings and the notice of a loss, for both ends of a link.
dialer.py            The dialing end of a link.
listener.py          The listening end of links, and its peers.
holding.py           Envelopes that wait for the replicas on other hosts before they leave.
transport/           What carries their envelopes: ZMTP by this process itself over ipc, by libzmq over tcp.
poller.py            Waiting for links and file descriptors without an event loop.
spinning.py          Staying awake for what comes next, where that has paid.
inquiry.py           Requests of clients that only read, and fail as nobody expected.
coordinator_link.py  The coordinator as seen from a process with a topology replica: commands under way, changes
                     coming in.
messages/            The messages.
"""
