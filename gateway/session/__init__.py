"""What a client has here, whatever its protocol.

connection.py           One client's connection, from its first byte to the end of its socket.
client_socket.py        A client's socket: reading in turns, what waits to be sent, back-pressure.
front.py                What a session needs of the protocol in front of it.
client.py               Who a client is, and what it may touch: user, virtual host, permissions, exclusive queues,
                        transactions; what it says of itself.
session.py              Its channels.
channel.py              One channel: its two halves, acknowledgements, closing.
channel_publisher.py    A channel's publishes and confirms.
channel_consumers.py    A channel's consumers, deliveries, gets.
delivery_tags.py        Delivery tags, kept as ranges.
prefetch/               What a channel's consumers may hold, each and together.
publish_split.py        A publish whose messages differ, cut into parts that go the same way.
groups/                 Consumers of groups.
connection_tracking.py  Who is connected: told to the coordinator, and disconnected when its user or virtual host is
                        deleted.
large_messages.py       A channel's large messages, which come when there is room for them.
"""
