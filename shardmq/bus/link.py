"""Links: sessions over sockets of ZeroMQ that notice lost messages and lost peers.

ZeroMQ delivers or loses messages, and never says which. So each link has sessions. The dialer opens a session with a
new random number, and with another one where it connects anew before it is answered. Every envelope carries that number
and counts up from 1 in each direction, and both sides ping. A gap, an unknown session or silence ends the session, and
the owner of each end is told once (`LinkLost`). A late envelope of an older session is dropped. Time in which a process
itself stood still does not count as its peers' silence, so sessions survive a suspended machine.

    dialer                                listener
      │  [session, 0, [Hello]]  ─────────►  │  Opened
      │  ◄─────────  [session, 0, [Welcome]]│
    Opened                                  │
      │  [session, 1, [message, …]] ──────► │  messages, one by one, in order
      │  ◄────── [session, 1, [message, …]] │
      │  [session, 2, [Ping]]  ───────────► │  (after a second without messages)
      │  ◄──────── [session, n, [Reset]]    │  unknown or broken session
    Lost, then a new Hello

A listener whose part goes on elsewhere ends sessions behind all that it has said: with a Reset that is settled, in an
envelope of its turn. What the dialer has no answer to was not taken in.

Nothing here blocks or knows an event loop: owners wait on `socket` as they like, then call `receive`, `flush`, `tick`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from shardmq.bus.messages.base import BusMessage, Hello, Ping, Reset, Welcome
from shardmq.bus.messages.columns import Deliveries, Publishes
from shardmq.bus.transport.transport import ENVELOPE_BYTES, Envelope
from shardmq.limits import LINK_PING_SECONDS

BUS_PROTOCOL: Final = 16
"""Sent in Hello. A listener opens sessions only with dialers of its own version."""

Incoming = TypeVar("Incoming", bound=BusMessage)
_Envelope = tuple[int, int, list[Any]]
LINK_MESSAGES: Final = frozenset({Hello, Welcome, Reset, Ping})
"""Messages of the links themselves, which owners never see."""

encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class LinkOpened:
    """A session begins. The peer has forgotten all earlier sessions."""

    role: str
    name: str


@dataclass(frozen=True, slots=True)
class LinkLost:
    """The session ended.

    Attributes:
        reason: why.
        is_settled: whether the listener said all that it had to say about what it took in, and has taken in nothing
            else. Otherwise messages that were posted and not answered may or may not have arrived.
    """

    reason: str
    is_settled: bool = False


Shorten = Callable[[list[BusMessage]], list[BusMessage]]
"""Says the messages of an envelope in fewer bytes."""


def as_they_are(messages: list[BusMessage]) -> list[BusMessage]:
    """Shorten nothing."""
    return messages


class LinkState:
    """One end of a session: envelope numbers, times of the last traffic, messages waiting to be sent."""

    __slots__ = ("heard_at", "number", "outbox", "received", "sent", "sent_at")

    def __init__(self, number: int, now: float) -> None:
        self.number = number
        self.sent = 0
        self.received = 0
        self.heard_at = now
        self.sent_at = now
        self.outbox: list[BusMessage] = []

    def envelopes(self, now: float, shorten: Shorten = as_they_are) -> Iterator[bytes]:
        """Yield the waiting messages as envelopes ready to send.

        Args:
            now: monotonic seconds.
            shorten: called with the messages of an envelope; returns those that say the same in fewer bytes.
        """
        outbox = self.outbox
        if not outbox:
            return
        self.outbox = []
        self.sent_at = now
        for part in _portions(outbox) if len(outbox) > 1 else (outbox,):
            self.sent += 1
            yield encode((self.number, self.sent, shorten(part)))

    def ping_due(self, now: float) -> bool:
        """Whether nothing was sent for so long that a ping is due."""
        return not self.outbox and now - self.sent_at >= LINK_PING_SECONDS

    def silent(self, now: float, seconds: float) -> bool:
        """Whether the peer has sent nothing for so many seconds that the session is over."""
        return now - self.heard_at > seconds

    def forgive(self, seconds: float, now: float) -> None:
        """Take off the peer's silence the seconds in which this process did not listen."""
        self.heard_at = min(now, self.heard_at + seconds)


def _portions(messages: list[BusMessage]) -> Iterator[list[BusMessage]]:
    """Yield the messages in lists of about ENVELOPE_BYTES; most often the one list that was given."""
    start = size = 0
    for place, message in enumerate(messages):
        batch = getattr(message, "batch", None)
        if batch is not None:
            size += len(batch.records)
        elif type(message) is Deliveries or type(message) is Publishes:
            size += message.size
        else:
            continue
        if size > ENVELOPE_BYTES:
            yield messages[start : place + 1]
            start, size = place + 1, 0
    if start < len(messages):
        yield messages[start:] if start else messages


def read_envelope(decode: Callable[[Envelope], _Envelope], raw: Envelope) -> _Envelope | None:
    """Decode an envelope; None for bytes that are none, as from another version."""
    try:
        envelope = decode(raw)
    except (ValueError, msgspec.DecodeError, RecursionError):
        return None
    return envelope if envelope[2] else None


def envelope_decoder(incoming: Any) -> "msgspec.msgpack.Decoder[_Envelope]":
    """Make the decoder of envelopes from peers that send a union of message types."""
    return msgspec.msgpack.Decoder(tuple[int, int, list[Hello | Welcome | Reset | Ping | incoming]])
