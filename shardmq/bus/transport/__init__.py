"""What carries the envelopes of links: ZeroMQ's wire protocol, by libzmq or spoken by the process itself.

transport.py    What links ask of a socket, whichever it is.
opening.py      Which one an address gets.
libzmq.py       Sockets of libzmq, for links over TCP: it encrypts them, on threads of its own.
zmtp.py         ZMTP 3.1 without I/O: greeting, handshake, frames.
connection.py   A connection over a Unix domain socket that speaks ZMTP.
unix_dealer.py  The dialing end over Unix domain sockets.
unix_router.py  The listening end over Unix domain sockets.
"""
