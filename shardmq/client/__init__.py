"""The SDK: a program's side of the native protocol, with threads or with asyncio.

The core, without any I/O, the same for both:

url.py               shardmq://user:password@host:port/vhost, several of them, and with TLS
arguments.py         what a program hands in, checked before it is sent
asks.py              the requests that are answered by an Ok, as values
core.py              one connection over all its lives: requests in, frames out
core_state.py        what a core knows, and the small steps its parts share
hearing.py           what the server says, and whom that settles
channel_core.py      what the core keeps of a channel, and of what waits for an answer
transaction_core.py  a transaction's attempt: what is staged and sent again, and the steps of its life
declared.py          what was declared, and is declared again after a loss
restoring.py         the order in which a reconnected connection is made as it was
recovery.py          how a lost connection is won back, and when which address is tried
ports.py             what the core asks of those around it
runs.py              runs made of what is published
deliveries.py        messages and batches, as consumers get them
settlements.py       acks and nacks on their way, as ranges
returns.py           mandatory messages that no queue took
results.py           the broker's answers, checked
failing.py           what becomes of a message whose handler raised
hooks.py             what a program wants to hear of its connection
meter.py             counts for a program's metrics

With threads:

waiting.py      waiting for answers and deliveries
tls.py          TLS on a socket that one thread reads and others write
dialing.py      making a socket, in time
io_thread.py    the thread that serves a socket, and how others get past it
workers.py      the threads that run handlers, hooks and metrics
connection.py   Connection, for programs with threads
admin.py        virtual hosts, users and permissions: a part of Connection
channel.py      Channel: publishing, consuming, settling
verbs.py        exchanges, queues and bindings: a part of Channel
publisher.py    Publisher: pipelined publishing
transaction.py  Transaction: messages that appear whole or not at all
consuming.py    consumers' loops and handlers

The same for asyncio, behind `shardmq.aio`:

aio_wire.py         the socket, and coming back
aio_connection.py   Connection
aio_admin.py        a part of Connection
aio_channel.py      Channel
aio_verbs.py        a part of Channel
aio_publisher.py    Publisher
aio_transaction.py  Transaction
aio_consuming.py    inboxes that coroutines wait at, and handlers
"""
