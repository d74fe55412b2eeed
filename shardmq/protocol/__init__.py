"""The client protocols without any I/O: bytes in, typed values out, and back.

translation.py  Messages from one protocol for clients of the other.
amqp/           AMQP 0-9-1.
native/         The native protocol; SPEC.md has it to the byte.
"""
