"""The gateway process: speaks with clients, routes what they publish, carries bytes between them and the shards.

process.py            Options, start, signals, clean stop.
server.py             Listens, accepts, tells the protocol from the first byte, knows the connections.
protocol_detector.py  A socket that was accepted and has not said yet which protocol it speaks: its first byte tells.
amqp/                 The AMQP 0-9-1 front, its twin: the same names for the same jobs, and five more where AMQP has
                      rules of its own.
authentication/       Who may come in: passwords, and what becomes of those who guess them.
handlers/             What clients ask, whatever their protocol, as operations of the native protocol.
links/                The processes it dials.
native/               The native front: operations to session calls, and back.
session/              What a client has here, whatever its protocol.
state/                What all connections share.
"""
