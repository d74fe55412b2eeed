"""The C program that puts load on an AMQP 0-9-1 broker; `bench compare` compiles it where it runs.

main.c      What it does; options, figures, processor time.
amqpload.h  What the files share.
wire.c      Connections, methods, frames.
topology.c  Queues, the exchange, bindings.
messages.c  What is in a message; the checks of deliveries and confirms.
flow.c      Many queues in turn, fan-out, priorities; connections that publish and consume.
paced.c     Latency, and many connections, at a fixed rate.
steps.c     Round trips, commits, declarations, one after the other.
stream.c    A stream, and readers of all of it.
members.c   Members of a shared group that work for a while on each message.
nothing.c   A server that keeps nothing: what the client itself takes.
"""

from pathlib import Path
from typing import Final

SOURCES: Final = tuple(sorted(Path(__file__).parent.glob("*.c")))
"""What is compiled."""
