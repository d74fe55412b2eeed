"""The gateway process: speaks with clients, routes what they publish, carries bytes between them and the shards.

process.py       Options, start, signals, clean stop.
loop.py          One pass: links drained, batches closed, one envelope a shard and one write a client.
wakefulness.py   Looking for what comes next without sleep, where that pays.
server.py        Listens, accepts, tells the protocol from the first byte, knows the connections.
amqp/            The AMQP 0-9-1 front, its twin: the same names for the same jobs, and five more where AMQP has
                 rules of its own.
authentication/  Logins: passwords, and the defence against those who guess them.
events/          What happens here, told in the event exchange; copies of messages in the trace exchange.
handlers/        What clients ask, whatever their protocol, as operations of the native protocol.
links/           The processes it dials.
native/          The native front: operations to session calls, and back.
session/         What a client has here, whatever its protocol.
state/           What all connections share.
tracing/         Spans of messages whose trace is sampled, where they are asked for.
"""
