"""What happens in the broker, published for those who want to know: RabbitMQ's event exchange, and its firehose.

exchange.py       The event exchange, and how events get there.
topology.py       What was created and deleted, told by one gateway for all.
clients.py        What clients of this gateway do: connections, channels, consumers, logins.
encryption.py     What TLS has agreed on, for events of connections.
firehose.py       Copies of what is published and delivered, in virtual hosts that are traced.
own_publishes.py  Publishes of the gateway itself: counted, and dropped where there is no room.
"""
