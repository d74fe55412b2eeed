"""The SDK for asyncio. What it lacks beside its twin (sockets, answers, workers) asyncio brings along.

connection.py      Connection.
channel.py         Channel.
requests/          What is answered by one answer: parts of Connection and Channel.
publisher.py       Publisher: pipelined publishing.
transaction.py     Transaction.
consumer.py        The consumers of a channel: iterators, tasks that run handlers.
calls.py           Calls that wait for an answer.
groups.py          The consumers of groups.
settler.py         Acks and nacks of a channel: counted, and flushed before the event loop waits.
transport.py       The socket of a connection, over all its lives.
reconnect.py       The asyncio protocol on a socket; the first socket, and another after each loss.
"""
