"""The base of what the processes say to one another."""

import msgspec


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One thing said."""
