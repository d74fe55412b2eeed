"""The SDK for asyncio. What it lacks beside its twin (sockets, answers, workers) asyncio brings along.

connection.py      Connection.
administration.py  Part of Connection.
channel.py         Channel.
topology.py        Part of Channel.
publisher.py       Publisher.
transaction.py     Transaction.
consumer.py        Inboxes that coroutines wait at, and tasks that run handlers.
transport.py       The asyncio protocol on the socket.
"""
