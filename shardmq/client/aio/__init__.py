"""The SDK for asyncio. What it lacks beside its twin (sockets, answers, workers) asyncio brings along.

connection.py      Connection.
administration.py  Virtual hosts, users, permissions: part of Connection.
channel.py         Channel.
topology.py        Exchanges, queues, bindings and reads: part of Channel.
publisher.py       Publisher: pipelined publishing.
transaction.py     Transaction.
consumer.py        The consumers of a channel: iterators, calls that wait for an answer, tasks that run handlers.
settler.py         Acks and nacks of a channel: counted, and flushed before the event loop waits.
transport.py       The socket of a connection, over all its lives.
reconnect.py       The asyncio protocol on a socket; the first socket, and another after each loss.
"""
