"""The native protocol; SPEC.md has it to the byte.

frames.py    Type, length, payload: cutting a stream of bytes into frames.
operations/  What the payloads mean.
"""
