"""Links: sessions over ZeroMQ that notice what ZeroMQ does not tell.

ZeroMQ delivers or loses; it never says which. So each link has sessions. A session is opened by the dialing side with a
fresh random number, every envelope carries that number and counts up from 1 in each direction, and both sides ping. A
gap, an unknown session or silence ends the session, and the owner of each end hears of it once (`LinkLost`); what
the peer was holding is then its owner's to give back. A stale envelope of an older session is dropped. Who stood still
itself has not listened, so that time is nobody's silence: a machine that was suspended goes on where it was.

    dialer                                listener
      │  [session, 0, [Hello]]  ─────────►  │  Opened
      │  ◄─────────  [session, 0, [Welcome]]│
    Opened                                  │
      │  [session, 1, [message, …]] ──────► │  messages, one by one, in order
      │  ◄────── [session, 1, [message, …]] │
      │  [session, 2, [Ping]]  ───────────► │  (a second without anything to say)
      │  ◄──────── [session, n, [Reset]]    │  unknown or broken session
    Lost, then a new Hello

Nothing here blocks or knows an event loop: owners wait on `socket` as they like, then call `receive`, `flush`, `tick`.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
import zmq

from shardmq.bus.address import check_private, is_tcp
from shardmq.bus.curve import CurveGuard, guard_of
from shardmq.bus.messages.base import BusMessage, Hello, Ping, Reset, Welcome
from shardmq.errors import StartupRefused
from shardmq.limits import LINK_PING_SECONDS, LINK_SILENCE_SECONDS

BUS_PROTOCOL: Final = 3
"""Told in Hello. A listener opens sessions with its own version alone."""

ENVELOPES_PER_RECEIVE: Final = 64
"""How many one call takes off a socket, so that the other sockets of a process get their turn."""

ENVELOPE_BYTES: Final = 8 << 20
"""About where an envelope is closed and another begun, so that no peer has to swallow an evening's backlog at once."""

RECEIVE_BYTES: Final = 4 * ENVELOPE_BYTES
"""So much one call takes of callers at most, and an envelope more, which may hold a message of any size. Who is called
is bounded by the windows of its consumers."""


RECONNECT_MS: Final = 20
RECONNECT_MAX_MS: Final = 500

Incoming = TypeVar("Incoming", bound=BusMessage)
_POLLIN: Final = int(zmq.POLLIN)  # arithmetic on pyzmq's enumerations takes 3 µs
_POLLOUT: Final = int(zmq.POLLOUT)
_Envelope = tuple[int, int, list[Any]]
_OF_LINKS: Final = frozenset({Hello, Welcome, Reset, Ping})
"""What is said between links: no business of their owners, wherever in an envelope it stands."""

_log = logging.getLogger(__name__)
_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class LinkOpened:
    """A session begins; nothing of an earlier one is known any more."""

    role: str
    name: str


@dataclass(frozen=True, slots=True)
class LinkLost:
    """The session ended: what was posted and not answered may or may not have arrived."""

    reason: str


class LinkState:
    """One end of a session: numbers, signs of life, what is waiting to be sent."""

    __slots__ = ("heard_at", "number", "outbox", "outbox_bytes", "received", "sent", "sent_at")

    def __init__(self, number: int, now: float) -> None:
        self.number = number
        self.sent = 0
        self.received = 0
        self.heard_at = now
        self.sent_at = now
        self.outbox: list[BusMessage] = []

    def envelopes(self, now: float) -> Iterator[bytes]:
        """What waits, as envelopes ready to send."""
        outbox = self.outbox
        if not outbox:
            return
        self.outbox = []
        self.sent_at = now
        for part in _portions(outbox):
            self.sent += 1
            yield _encode((self.number, self.sent, part))

    def ping_due(self, now: float) -> bool:
        return not self.outbox and now - self.sent_at >= LINK_PING_SECONDS

    def silent(self, now: float) -> bool:
        return now - self.heard_at > LINK_SILENCE_SECONDS

    def forgive(self, seconds: float, now: float) -> None:
        """So long nobody listened here."""
        self.heard_at = min(now, self.heard_at + seconds)


def _portions(messages: list[BusMessage]) -> Iterator[list[BusMessage]]:
    """The messages in lists of about ENVELOPE_BYTES; most often one list, the same."""
    start = size = 0
    for place, message in enumerate(messages):
        batch = getattr(message, "batch", None)
        if batch is not None:
            size += len(batch.records)
            if size > ENVELOPE_BYTES:
                yield messages[start : place + 1]
                start, size = place + 1, 0
    if start < len(messages):
        yield messages[start:] if start else messages


def _socket(context: "zmq.Context[zmq.Socket[bytes]]", kind: int) -> "zmq.Socket[bytes]":
    socket = context.socket(kind)
    socket.linger = 0
    socket.sndhwm = socket.rcvhwm = 0  # counted in messages, it could not bound bytes; credit windows do
    return socket


def _attach(
    context: "zmq.Context[zmq.Socket[bytes]]", socket: "zmq.Socket[bytes]", address: str, peer: str
) -> CurveGuard | None:
    """Connect a socket to a peer, or bind it where there is none, as safely as its address needs.

    Returns:
        Who guards it; None where nobody need.
    """
    guard = None
    try:
        if is_tcp(address):
            socket.ipv6 = "[" in address
            guard = guard_of(context, address)
            if guard is not None and peer:
                guard.protect_dialer(socket, peer)
            elif guard is not None:
                guard.protect_listener(socket)
        else:
            check_private(address, must_exist=not peer)
        if peer:
            socket.connect(address)
        else:
            socket.bind(address)
    except zmq.ZMQError as fault:
        socket.close()
        raise StartupRefused(f"the bus cannot use {address}: {fault.strerror}; choose another address") from fault
    except StartupRefused:
        socket.close()
        raise
    return guard


def _readiness(socket: "zmq.Socket[bytes]") -> int:
    """What can be done: _POLLIN, _POLLOUT. Asking takes 2 µs; to try, and to be told so by an exception, 10."""
    events = socket.getsockopt(zmq.EVENTS)
    assert isinstance(events, int)
    return events


def _read(decode: Callable[[bytes], _Envelope], parts: list[bytes]) -> _Envelope | None:
    """The envelope, or None for what is none: a stranger's, or another version's."""
    try:
        (raw,) = parts
        envelope = decode(raw)
    except (ValueError, msgspec.DecodeError, RecursionError):
        return None
    return envelope if envelope[2] else None


def _decoder(incoming: Any) -> "msgspec.msgpack.Decoder[_Envelope]":
    return msgspec.msgpack.Decoder(tuple[int, int, list[Hello | Welcome | Reset | Ping | incoming]])
