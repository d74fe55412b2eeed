"""What happens in the broker, published for those who want to know: RabbitMQ's event exchange.

exchange.py  The exchange, and how events get there.
topology.py  What was created and deleted, told by one gateway for all.
clients.py   What clients of this gateway do: connections, channels, consumers, logins.
"""
