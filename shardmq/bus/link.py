"""Links: sessions over ZeroMQ that notice what ZeroMQ does not tell.

ZeroMQ delivers or loses; it never says which. So each link has sessions. A session is opened by the dialing side with a
fresh random number, every envelope carries that number and counts up from 1 in each direction, and both sides ping. A
gap, an unknown session or silence ends the session, and the owner of each end hears of it exactly once (`Lost`); what
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

import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec
import zmq

from shardmq.bus.address import check_private, is_tcp
from shardmq.bus.curve import COMPLAINT_SECONDS, Guard, guard_of
from shardmq.bus.messages import Hello, Message, Ping, Reset, Welcome
from shardmq.clock import Ticks
from shardmq.errors import StartupRefused
from shardmq.limits import LINK_PING_SECONDS, LINK_SILENCE_SECONDS

BUS_PROTOCOL: Final = 2
ENVELOPES_PER_RECEIVE: Final = 64
"""How many one call takes off a socket, so that the other sockets of a process get their turn."""

ENVELOPE_BYTES: Final = 8 << 20
"""About where an envelope is closed and another begun, so that no peer has to swallow an evening's backlog at once."""

RECEIVE_BYTES: Final = 4 * ENVELOPE_BYTES
"""So much one call takes of callers at most, and an envelope more, which may hold a message of any size. Who is called
is bounded by the windows of its consumers."""

HELLO_SECONDS: Final = 0.1
RECALL_SECONDS: Final = 1.0
"""ZeroMQ never calls again whom it was refused by, or who answered in another language. We do, this often: keys and
processes are replaced."""

RECONNECT_MS: Final = 20
RECONNECT_MAX_MS: Final = 500

Incoming = TypeVar("Incoming", bound=Message)
_POLLIN: Final = int(zmq.POLLIN)  # arithmetic on pyzmq's enumerations takes 3 µs
_POLLOUT: Final = int(zmq.POLLOUT)
_Envelope = tuple[int, int, list[Any]]
_OF_LINKS: Final = frozenset({Hello, Welcome, Reset, Ping})
"""What is said between links: no business of their owners, wherever in an envelope it stands."""

_log = logging.getLogger(__name__)
_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class Opened:
    """A session begins; nothing of an earlier one is known any more."""

    role: str
    name: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The session ended: what was posted and not answered may or may not have arrived."""

    reason: str


class _Session:
    """One end of a session: numbers, signs of life, what is waiting to be sent."""

    __slots__ = ("heard_at", "number", "outbox", "outbox_bytes", "received", "sent", "sent_at")

    def __init__(self, number: int, now: float) -> None:
        self.number = number
        self.sent = 0
        self.received = 0
        self.heard_at = now
        self.sent_at = now
        self.outbox: list[Message] = []

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


def _portions(messages: list[Message]) -> Iterator[list[Message]]:
    """The messages in lists of about ENVELOPE_BYTES; most often one list, the same."""
    start = size = 0
    for place, message in enumerate(messages):
        run = getattr(message, "run", None)
        if run is not None:
            size += len(run.records)
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
) -> Guard | None:
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


class Dialer(Generic[Incoming]):
    """The calling end of a link. It calls again and again until somebody answers.

    Args:
        context: of the process.
        address: ZeroMQ endpoint of the listener, as `ipc:///run/shardmq/shard-0` or `tcp://10.0.0.2:5680`.
        role: this process's role, told to the listener.
        name: this process's name, unique among the listener's callers, as `gateway-0`.
        incoming: union of the message types the listener sends.
        peer: the listener's name, as `shard-0`: over TCP, the holder of that key answers, or nobody.
        waits: whether it calls nobody before it was told whose it is (`call_as`).

    Raises:
        StartupRefused: the address is none, or not safe to use.

    Attributes:
        refused: why the listener did not want the last session, or ended it; "" once another one is open.
    """

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        address: str,
        role: str,
        name: str,
        incoming: Any,
        peer: str = "listener",
        waits: bool = False,
    ) -> None:
        self.address = address
        self.socket = _socket(context, zmq.DEALER)
        self.socket.setsockopt(zmq.IMMEDIATE, 1)
        self.socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self.socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
        self.socket.setsockopt(zmq.ROUTING_ID, f"{name}:{secrets.token_hex(8)}".encode())
        self._peer = peer if _attach(context, self.socket, address, peer) is not None else ""
        self.is_open = False
        self.more = False
        self.refused = ""
        self._hello = Hello(role, name, BUS_PROTOCOL)
        self._waits = waits
        self._decode = _decoder(incoming).decode
        self._session: _Session | None = None
        self._lost: list[Lost] = []
        self._ticks = Ticks()
        self._called_at = time.monotonic()
        self._complaint = ("", 0.0)

    def post(self, message: Message) -> None:
        """Say something with the next flush. Only while open: what is posted to a lost session is lost with it."""
        if self._session is not None:
            self._session.outbox.append(message)

    def flush(self) -> bool:
        """Send what was posted, as one envelope; returns whether there was anything."""
        session = self._session
        if session is None or not session.outbox or not self.is_open:
            return False
        for envelope in session.envelopes(time.monotonic()):
            if not self._send(envelope):
                self._lose("the peer is not connected")
                break
        return True

    def receive(self) -> list[Opened | Lost | Incoming]:
        """What has come, in order. At most ENVELOPES_PER_RECEIVE envelopes; `more` tells whether some are left."""
        events: list[Opened | Lost | Incoming] = []
        self.more = False
        for _ in range(ENVELOPES_PER_RECEIVE):
            readiness = _readiness(self.socket)
            if not readiness & _POLLIN:
                if self.is_open and not readiness & _POLLOUT:  # no limit can have been reached: it is not connected
                    self._lose("the peer is not connected")
                break
            raw = self.socket.recv(zmq.NOBLOCK)
            envelope = _read(self._decode, [raw])
            session = self._session
            if envelope is None:
                self._lose("the peer sent something that is no envelope")
                events.extend(self._take_lost())
                continue
            number, count, messages = envelope
            if session is None or number != session.number:
                continue
            session.heard_at = time.monotonic()
            if type(messages[0]) is Reset:
                self.refused = messages[0].reason
                self._turned_away(messages[0].reason)
            elif count != session.received + (1 if self.is_open else 0):
                self._lose(f"envelope {session.received + 1} of the session is missing")
            elif self.is_open:
                session.received = count
                events.extend(message for message in messages if type(message) not in _OF_LINKS)
            elif self._is_welcome(messages[0]):
                self.is_open = True
                self.refused = ""
                events.append(Opened(messages[0].role, messages[0].name))
            else:
                self._session = None  # whoever it is, it did not answer; call again
            events.extend(self._take_lost())
        else:
            self.more = True
        if self._lost:
            events.extend(self._take_lost())
        return events

    def tick(self, now: float) -> list[Lost]:
        """To be called every tenth of a second or so: calls, pings, and notices silence.

        Returns:
            The end of the session, if it was noticed here or in a flush.
        """
        if self._waits:
            return self._take_lost()
        session = self._session
        if session is None:
            self._session = session = _Session(secrets.randbits(63), now)
            session.sent_at = 0.0
        if pause := self._ticks.stood_still(now):
            session.forgive(pause, now)
        if not self.is_open:
            if now - session.sent_at >= HELLO_SECONDS:
                session.sent_at = now
                if self._send(_encode((session.number, 0, [self._hello]))):
                    self._called_at = now
                elif now - self._called_at >= RECALL_SECONDS:
                    self._call_again(now)
        elif session.silent(now):
            self._lose(f"nothing heard for {LINK_SILENCE_SECONDS:.0f} s")
        elif session.ping_due(now):
            session.outbox.append(Ping())
            self.flush()
        return self._take_lost()

    def call_as(self, broker: str, generation: int) -> None:
        """Call for this broker from now on; a session that was opened for another one ends."""
        self._waits = False
        if self._hello.broker != broker:
            self._lose(f"this process belongs to broker {broker} now")
        self._hello = Hello(self._hello.role, self._hello.name, BUS_PROTOCOL, broker, generation)

    def close(self) -> None:
        """Hang up."""
        self.socket.close()

    def _call_again(self, now: float) -> None:
        self._called_at = now
        with contextlib.suppress(zmq.ZMQError):  # ENOENT: ZeroMQ has given it up already
            self.socket.disconnect(self.address)
        self.socket.connect(self.address)

    def _send(self, envelope: bytes) -> bool:
        try:
            self.socket.send(envelope, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def _is_welcome(self, answer: Message) -> bool:
        """Whether it is the answer to a call, and who was called gives it."""
        if type(answer) is not Welcome:
            return False
        if self._peer and answer.name != self._peer:
            self._complain(f"it says it is {answer.name[:80]!r}, and has the key of {self._peer!r}")
            return False
        return True

    def _turned_away(self, reason: str) -> None:
        if not self.is_open:
            self._complain(reason)
        self._lose(reason)

    def _complain(self, reason: str) -> None:
        """Say why no session begins: once, and again every minute."""
        now = time.monotonic()
        before, since = self._complaint
        if reason != before or now - since >= COMPLAINT_SECONDS:
            self._complaint = reason, now
            _log.warning("no link to %s: %s", self.address, reason)

    def _lose(self, reason: str) -> None:
        if self.is_open:
            self._lost.append(Lost(f"{self.address}: {reason}"))
        self.is_open = False
        self._session = None

    def _take_lost(self) -> list[Lost]:
        lost, self._lost = self._lost, []
        return lost


class Peer:
    """A caller, as the listener knows it for one session."""

    __slots__ = ("_session", "identity", "name", "role")

    def __init__(self, identity: bytes, session: _Session, hello: Hello) -> None:
        self.identity = identity
        self.role = hello.role
        self.name = hello.name
        self._session = session

    def __repr__(self) -> str:
        return f"Peer({self.name})"

    def post(self, message: Message) -> None:
        """Say something with the listener's next flush."""
        self._session.outbox.append(message)


class Listener(Generic[Incoming]):
    """The answering end of links from any number of callers.

    Args:
        context: of the process.
        address: ZeroMQ endpoint to listen on.
        role: this process's role, told to callers.
        name: this process's name, as `shard-0`.
        incoming: union of the message types callers send.

    Raises:
        StartupRefused: the address is none, or not safe to use, or in use.

    Attributes:
        reason_against: asked about each caller, says why it gets no session; "" where it gets one. Its owner sets it.
        is_early: asked about each caller, says whether it is to call again later. Its owner sets it.
    """

    def __init__(
        self, context: "zmq.Context[zmq.Socket[bytes]]", address: str, role: str, name: str, incoming: Any
    ) -> None:
        self.address = address
        self.socket = _socket(context, zmq.ROUTER)
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._guard = _attach(context, self.socket, address, "")
        self.more = False
        self._welcome = Welcome(role, name)
        self._decode = _decoder(incoming).decode
        self.reason_against: Callable[[Hello], str] = lambda _hello: ""
        self.is_early: Callable[[Hello], bool] = lambda _hello: False
        self._peers: dict[bytes, Peer] = {}
        self._ticks = Ticks()
        self._lost: list[tuple[Peer, Lost]] = []

    @property
    def peers(self) -> list[Peer]:
        """Those with an open session."""
        return list(self._peers.values())

    def flush(self) -> None:
        """Send every peer what was posted to it, as one envelope each."""
        now = time.monotonic()
        for peer in [peer for peer in self._peers.values() if peer._session.outbox]:
            for envelope in peer._session.envelopes(now):
                if not self._send(peer.identity, envelope):
                    self._lose(peer, "the peer is not connected")
                    break

    def receive(self) -> list[tuple[Peer, Opened | Lost | Incoming]]:
        """What has come from whom, in order. At most ENVELOPES_PER_RECEIVE; `more` tells whether some are left."""
        events: list[tuple[Peer, Opened | Lost | Incoming]] = []
        self.more = False
        size = 0
        for _ in range(ENVELOPES_PER_RECEIVE):
            if size > RECEIVE_BYTES:
                self.more = True
                break
            if not _readiness(self.socket) & _POLLIN:
                break
            identity, key_name, parts = self._next()
            size += sum(map(len, parts))
            peer = self._peers.get(identity)
            envelope = _read(self._decode, parts)
            if envelope is None:
                _log.warning("%s: %s sent something that is no envelope", self.address, peer or "a stranger")
                if peer is not None:
                    self._lose(peer, "it sent something that is no envelope")
                    events.extend(self._take_lost())
                continue
            number, count, messages = envelope
            if type(messages[0]) is Hello:
                greeted = self._greet(identity, peer, number, messages[0], key_name)
                events.extend(self._take_lost())
                if greeted is not None:
                    events.append((greeted, Opened(greeted.role, greeted.name)))
                continue
            if peer is None or peer._session.number != number:
                self._reset(identity, number, "that session is not known here")
                continue
            session = peer._session
            session.heard_at = time.monotonic()
            if count != session.received + 1:
                self._reset(identity, number, f"envelope {session.received + 1} of the session is missing")
                self._lose(peer, f"envelope {session.received + 1} of the session is missing")
                events.extend(self._take_lost())
                continue
            session.received = count
            events.extend((peer, message) for message in messages if type(message) not in _OF_LINKS)
        else:
            self.more = True
        return events

    def tick(self, now: float) -> list[tuple[Peer, Lost]]:
        """To be called every tenth of a second or so: pings, and notices silence.

        Returns:
            The sessions that ended, if noticed here or in a flush.
        """
        pause = self._ticks.stood_still(now)
        for peer in list(self._peers.values()):
            if pause:
                peer._session.forgive(pause, now)
            if peer._session.silent(now):
                self._lose(peer, f"nothing heard for {LINK_SILENCE_SECONDS:.0f} s")
            elif peer._session.ping_due(now):
                peer.post(Ping())
        self.flush()
        return self._take_lost()

    def close(self) -> None:
        """Stop listening."""
        self.socket.close()

    def _next(self) -> tuple[bytes, str, list[bytes]]:
        """Who called, the name its key is allowed under ("" where there are none), and what it said."""
        if self._guard is None:
            identity, *parts = self.socket.recv_multipart(zmq.NOBLOCK)
            return identity, "", parts
        caller, *frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
        key_name = str(frames[-1].get("User-Id")) if frames else ""
        return caller.bytes, key_name, [frame.bytes for frame in frames]

    def _greet(self, identity: bytes, peer: Peer | None, number: int, hello: Hello, key_name: str) -> Peer | None:
        """Open a session; None when there is none to open, or it is open already."""
        if self._guard is not None:
            reason = self._guard.refuse(self.address, self._welcome.role, key_name, hello.role, hello.name)
            if reason is not None:
                self._reset(identity, number, reason)
                return None
        if hello.protocol != BUS_PROTOCOL:
            self._reset(identity, number, f"bus protocol {hello.protocol}; this process speaks {BUS_PROTOCOL}")
            return None
        if reason := self.reason_against(hello):
            self._reset(identity, number, reason)
            return None
        if self.is_early(hello):
            return None
        if peer is not None:
            if peer._session.number == number:
                return None  # called again before the answer came; it is on its way
            self._lose(peer, "it began a new session")
        for older in self.peers:
            if older.name == hello.name:  # names are unique: this is its successor, and silence need not be waited for
                self._lose(older, "its successor has called")
        greeted = Peer(identity, _Session(number, time.monotonic()), hello)
        if not self._send(identity, _encode((number, 0, [self._welcome]))):
            return None
        self._peers[identity] = greeted
        return greeted

    def _reset(self, identity: bytes, number: int, reason: str) -> None:
        self._send(identity, _encode((number, 0, [Reset(reason)])))

    def _send(self, identity: bytes, envelope: bytes) -> bool:
        try:
            self.socket.send_multipart((identity, envelope), zmq.NOBLOCK)
        except zmq.ZMQError as fault:
            if fault.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                return False
            raise
        return True

    def _lose(self, peer: Peer, reason: str) -> None:
        if self._peers.get(peer.identity) is peer:
            del self._peers[peer.identity]
            self._lost.append((peer, Lost(f"{peer.name}: {reason}")))

    def _take_lost(self) -> list[tuple[Peer, Lost]]:
        lost, self._lost = self._lost, []
        return lost
