"""The base of what the processes say to one another."""

from typing import Any

import msgspec


class BusMessage(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One thing said."""


class Hello(BusMessage, frozen=True, tag=1):
    """Opens a session: who is calling. The session's number is in the envelope.

    Gateways tell shards their broker's id, and the generation of the coordinator whose topology they route by.
    """

    role: str
    name: str
    protocol: int
    broker: str = ""
    generation: int = 0


class Welcome(BusMessage, frozen=True, tag=2):
    """The session is open: who answered."""

    role: str
    name: str


class Reset(BusMessage, frozen=True, tag=3):
    """That session is not known here, or lost something; begin another."""

    reason: str


class Ping(BusMessage, frozen=True, tag=4):
    """A sign of life."""


class Answer(BusMessage, frozen=True, tag=10):
    """A request was carried out."""

    request: int
    result: Any = None


class Refusal(BusMessage, frozen=True, tag=11):
    """A request was not."""

    request: int
    code: int
    text: str


class Inspect(BusMessage, frozen=True, tag=12):
    """How are you? Answered by a table, as `shardmq status` shows it.

    With a `noun` ("connections", "channels", "consumers") a gateway answers with a list of tables, and the coordinator
    with the lists of all other gateways, joined.
    """

    request: int
    noun: str = ""
