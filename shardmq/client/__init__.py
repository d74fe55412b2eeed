"""The SDK: a program's side of the native protocol, with threads or with asyncio.

url.py          shardmq://user:password@host:port/vhost
arguments.py    what a program hands in, checked before it is sent
core.py         one connection without any I/O: frames in, answers out; requests in, frames out
ports.py        what the core asks of those who wait
runs.py         runs made of what is published
deliveries.py   messages and batches, as consumers get them
settlements.py  acks and nacks on their way, as ranges
results.py      the broker's answers, checked
waiting.py      waiting in threads
io_thread.py    the thread that serves a socket, and how others get past it
connection.py   Connection, for programs with threads
channel.py      Channel: RabbitMQ's verbs
publisher.py    Publisher: pipelined publishing
consuming.py    consumers' loops and callbacks

The same for asyncio, behind `shardmq.aio`:

aio_connection.py  Connection, and the socket it owns
aio_channel.py     Channel
aio_publisher.py   Publisher
aio_consuming.py   inboxes that coroutines wait at, and callbacks
"""
