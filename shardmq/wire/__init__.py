"""The native client protocol without any I/O: bytes in, operations out, and back.

SPEC.md            the protocol to the byte
frames.py          type, length, payload: cutting a stream of bytes into frames
operations.py      what the payloads mean: the table of typed operations
administration.py  those of them that only administrators may use
transactions.py    those by which messages to many queues appear together
snapshots.py       those by which a queue is read in parallel
fields.py          what operations are made of
publishing.py      the frame of a large publish, with fewer copies
"""
