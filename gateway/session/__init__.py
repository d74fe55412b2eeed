"""What a client has here, whatever its protocol.

connection.py           The socket: reading, what waits to be sent, back-pressure, parting.
front.py                What a session needs of the protocol in front of it.
session.py              Its channels.
channel.py              One channel: its parts, acknowledgements, closing.
delivery_tags.py        Delivery tags, kept as ranges.
prefetch.py             One prefetch for all consumers of a channel.
publish_split.py        A publish whose messages differ, cut into parts that go the same way.
connection_tracking.py  Who is connected: told to the coordinator, and parted from when what it needs is gone.
client_properties.py    What clients say of themselves, shared and cut to size.
large_messages.py       A channel's large messages, which come when there is room for them.
"""
