"""Links between the replicas of a group, on the bus: each has a listener, and a dialer to each of the others.

    a ── a's dialer ──► b's listener      what a says to b
    a ◄── b's dialer ── b                 what b says to a

wire.py      The core's messages on the bus; edits are sealed once for all that they are sent to.
outgoing.py  What one replica says to another, as far as that reads it.
peers.py     All links of a replica.
"""
