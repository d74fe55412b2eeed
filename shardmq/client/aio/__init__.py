"""The SDK for asyncio. What it lacks beside its twin (sockets, answers, workers) asyncio brings along.

connection.py      Connection.
administration.py  Part of Connection.
channel.py         Channel.
topology.py        Part of Channel.
publisher.py       Publisher.
transaction.py     Transaction.
consumer.py        The consumers of a channel: iterators, calls that wait for an answer, tasks that run handlers.
settler.py         Acks and nacks of a channel: counted, and flushed before the event loop waits.
transport.py       The socket of a connection, over all its lives.
reconnect.py       The asyncio protocol on a socket; dialing again and restoring, as a task.
"""
