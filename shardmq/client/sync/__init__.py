"""The SDK for threads.

connection.py      Connection.
channel.py         Channel.
requests/          What is answered by one answer: parts of Connection and Channel.
publisher.py       Publisher: pipelined publishing.
transaction.py     Transaction.
consumer.py        The consumers of a channel: iterators, the calls of handlers.
calls.py           Calls that wait for an answer.
groups.py          The consumers of groups.
settler.py         Acks and nacks of a channel: counted, lingering a moment, flushed.
transport.py       The thread that serves a socket, and how other threads get past it.
reconnect.py       The first socket, and another after each loss, dialed from the transport's thread.
sockets.py         Making a socket in time; TLS on a socket that one thread reads and others write.
answers.py         Waiting for an answer or a delivery.
workers.py         The threads that run handlers, hooks and metrics.
"""
