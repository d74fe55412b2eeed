"""What a broker takes of the machine: at rest, for large messages, and to start.

command.py   `bench footprint`.
rest.py      A start, processor time and memory at rest, idle connections.
large.py     The memory that one large message takes, by protocol.
starts.py    What a start takes that looks through a full store.
processes.py Memory and processor time of a broker's processes, as the kernel counts them.
"""
