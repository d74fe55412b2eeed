"""The dialing end of a link."""

import logging
import secrets
import time
from functools import partial
from typing import Any, Final, Generic

import zmq

from shardmq.bus.address import is_tcp
from shardmq.bus.curve import COMPLAINT_SECONDS
from shardmq.bus.holding import HeldEnvelopes
from shardmq.bus.link import (
    BUS_PROTOCOL,
    LINK_MESSAGES,
    Incoming,
    LinkLost,
    LinkOpened,
    LinkState,
    encode,
    envelope_decoder,
    read_envelope,
)
from shardmq.bus.messages.base import BusMessage, Hello, Ping, Reset, Welcome
from shardmq.bus.transport.opening import open_dealer
from shardmq.limits import LINK_SILENCE_SECONDS
from shardmq.runtime.clock import Ticks

HELLO_SECONDS: Final = 0.1
"""Time between two calls while no session is open."""

RECALLS: Final = 10
"""A dialer that was sent elsewhere calls again with so many of the next events of its socket: one of them is that it is
connected, and calls before it may have gone the old way."""

UNANSWERED_SECONDS: Final = 0.3
UNANSWERED_SECONDS_MAX: Final = 5.0
"""A dialer over TCP, or one that was sent elsewhere, connects anew where its calls go unanswered for so long, twice as
long each time. With libzmq, calls may go the old way for as long as the old listener is frozen; and a router hears
nothing, ever, of a connection that was made anew while what came by the last one was yet to be read."""

_log = logging.getLogger(__name__)


def _new_number() -> int:
    return secrets.randbits(63)


class Dialer(Generic[Incoming]):
    """The dialing end of a link. It calls until a listener answers.

    Args:
        context: of the process.
        address: ZeroMQ endpoint of the listener, such as `ipc:///run/shardmq/shard-0` or `tcp://10.0.0.2:5680`; ""
            calls nobody until `redirect` names one over TCP.
        role: this process's role, for the listener.
        name: this process's name, unique among the listener's callers, such as `gateway-0`.
        incoming: union of the message types the listener sends.
        peer: the listener's name, such as `shard-0`; over TCP, only the holder of its key is talked to.
        waits: whether it begins to call only when `call_as` has named its broker.

    Raises:
        StartupRefused: the address is invalid, or not safe to use.

    Attributes:
        held: where what is flushed waits until it may leave; None where it leaves at once. The owner sets it.
        is_open: whether a session is open.
        has_posted: whether what was posted waits for a flush, or for the session to open.
        posted: how many messages were posted, in all sessions.
        more: whether the last `receive` left envelopes behind.
        refused: why the listener refused or ended the last session; "" once another one is open.
        silence_seconds: after which a session is over; the owner may set it.
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
        self.socket, is_guarded = open_dealer(context, address, f"{name}:{secrets.token_hex(8)}".encode(), peer)
        self._called = peer
        self._peer = peer if is_guarded else ""
        self.held: HeldEnvelopes | None = None
        self.is_open = False
        self.has_posted = False
        self.posted = 0
        self.more = False
        self.refused = ""
        self.silence_seconds = LINK_SILENCE_SECONDS
        self._hello = Hello(role, name, BUS_PROTOCOL)
        self._waits = waits
        self._decode = envelope_decoder(incoming).decode
        self._session: LinkState | None = None
        self._lost: list[LinkLost] = []
        self._ticks = Ticks()
        self._complaint = ("", 0.0)
        self._patience = 0.0 if address and not is_tcp(address) else UNANSWERED_SECONDS
        self._called_since = time.monotonic()  # calls go unanswered; they may for ever where there is no patience
        self._recalls = 0

    def post(self, message: BusMessage) -> None:
        """Send a message with the next flush. What is posted to a lost session is lost with it."""
        if self._session is not None:
            self._session.outbox.append(message)
            self.has_posted = True
            self.posted += 1

    def flush(self) -> bool:
        """Send what was posted. Returns whether there was anything."""
        session = self._session
        if session is None or not session.outbox:
            self.has_posted = False
            return False
        if not self.is_open:
            return False  # it goes once the listener has answered
        self.has_posted = False
        held = self.held
        for envelope in session.envelopes(time.monotonic()):
            if held is not None:
                held.hold(partial(self._send_held, session), envelope)
            elif not self.socket.send(envelope):
                self._lose("the peer is not connected")
                break
        return True

    def _send_held(self, session: LinkState, envelope: bytes) -> None:
        if self._session is session and not self.socket.send(envelope):
            self._lose("the peer is not connected")

    @property
    def has_news(self) -> bool:
        """Whether `receive` would return anything now."""
        return self.socket.has_news or bool(self._lost)

    @property
    def has_come(self) -> bool:
        """Whether `receive` would return anything, for owners that ask many links and expect little."""
        return self.socket.has_come or bool(self._lost)

    def receive(self) -> list[LinkOpened | LinkLost | Incoming]:
        """Return what has come, in order. `more` tells whether envelopes are left for the next call."""
        events: list[LinkOpened | LinkLost | Incoming] = []
        received = self.socket.receive()
        self.more = self.socket.more
        for raw in received:
            envelope = read_envelope(self._decode, raw)
            session = self._session
            if envelope is None:
                self._lose("the peer sent bytes that are no envelope")
                events.extend(self._take_lost())
                continue
            number, count, messages = envelope
            if session is None or number != session.number:
                continue
            session.heard_at = time.monotonic()
            if type(messages[0]) is Reset:
                self._turned_away(messages[0], count == session.received + 1)
            elif count != session.received + (1 if self.is_open else 0):
                self._lose(f"envelope {session.received + 1} of the session is missing")
            elif self.is_open:
                session.received = count
                events += [message for message in messages if type(message) not in LINK_MESSAGES]
            elif self._is_welcome(messages[0]):
                self.is_open = True
                self.refused = ""
                events.append(LinkOpened(messages[0].role, messages[0].name))
            else:
                self._session = None  # this is not the listener's answer: call again
            events += self._take_lost() if self._lost else ()
        if not self.is_open:
            if self.socket.took_up() or self._recalls:
                self._recalls = max(0, self._recalls - 1)
                self._call(time.monotonic())
        elif not (self.more or self.socket.is_connected):
            self._lose("the peer is not connected")
        if self._lost:
            events.extend(self._take_lost())
        return events

    def tick(self, now: float) -> list[LinkLost]:
        """Call, ping, and notice silence. The owner calls this every tenth of a second or so.

        Returns:
            The end of the session, if it was noticed here or in a flush.
        """
        if self._waits or not self.address:
            return self._take_lost()
        session = self._session or self._begin(now)
        if pause := self._ticks.stood_still(now):
            session.forgive(pause, now)
        if not self.is_open:
            if self._patience and now - self._called_since >= self._patience:
                self._connect_anew(now)
            if now - session.sent_at >= HELLO_SECONDS and not self._call(now):
                self._renumber()
                if self.socket.complaint:
                    self._complain(self.socket.complaint)
                self.socket.redial(now)
        elif session.silent(now, self.silence_seconds):
            self._lose(f"nothing heard for {self.silence_seconds:g} s")
            self.socket.hang_up()
        elif session.ping_due(now):
            session.outbox.append(Ping())
            self.flush()
        return self._take_lost()

    def call_as(self, broker: str, generation: int) -> None:
        """Call as a process of this broker from now on. A session opened for another broker ends."""
        self._waits = False
        if self._hello.broker != broker:
            self._lose(f"this process belongs to broker {broker} now")
        self._hello = Hello(self._hello.role, self._hello.name, BUS_PROTOCOL, broker, generation)

    def redirect(self, address: str, peer: str) -> None:
        """Call another listener from now on; a session with the one before ends. The socket's descriptor stays.

        Args:
            address: its endpoint, of the kind that the dialer was made with (`ipc://` or `tcp://`); "" for nobody.
            peer: its name; over TCP, only the holder of its key is talked to.

        Raises:
            StartupRefused: the address is invalid, not safe to use, or the listener's key is missing. Nobody is called
                then.
        """
        if (address, peer) == (self.address, self._called):
            return
        self._lose(f"{peer} is at {address} now" if address else f"nobody is known to be {peer} now")
        self.refused = ""
        self.address, self._called = "", peer
        is_guarded = self.socket.redirect(address, peer)
        self.address, self._peer = address, peer if is_guarded else ""
        self._recalls = RECALLS
        self._patience, self._called_since = UNANSWERED_SECONDS, time.monotonic()

    def end(self, reason: str) -> None:
        """End the session, and drop what of it waits to be sent; the next one has a connection of its own."""
        self._lose(reason)
        self.socket.hang_up()

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    def _begin(self, now: float) -> LinkState:
        self._session = session = LinkState(_new_number(), now)
        session.sent_at = 0.0
        return session

    def _connect_anew(self, now: float) -> None:
        self._patience, self._called_since = min(2 * self._patience, UNANSWERED_SECONDS_MAX), now
        self.socket.hang_up()
        self._renumber()

    def _renumber(self) -> None:
        """Take no answer to calls over the last connection: over the next one, nobody knows that session."""
        if self._session is not None:
            self._session.number = _new_number()

    def _call(self, now: float) -> bool:
        """Ask for a session; returns False where nobody is connected."""
        if self._waits or not self.address:
            return True
        session = self._session or self._begin(now)
        session.sent_at = now
        return self.socket.send(encode((session.number, 0, [self._hello])))

    def _is_welcome(self, answer: BusMessage) -> bool:
        """Whether a message is the answer to a call, from the process that was called."""
        if type(answer) is not Welcome:
            return False
        if self._peer and answer.name != self._peer:
            self._complain(f"the listener says it is {answer.name[:80]!r}, and has the key of {self._peer!r}")
            return False
        return True

    def _turned_away(self, reset: Reset, is_next: bool) -> None:
        if not reset.is_settled:
            self.refused = reset.reason
            if not self.is_open:
                self._complain(reset.reason)
        self._lose(reset.reason, reset.is_settled and is_next)

    def _complain(self, reason: str) -> None:
        """Log why no session begins, each reason once a minute."""
        now = time.monotonic()
        before, since = self._complaint
        if reason != before or now - since >= COMPLAINT_SECONDS:
            self._complaint = reason, now
            _log.warning("no link to %s: %s", self.address, reason)

    def _lose(self, reason: str, is_settled: bool = False) -> None:
        if self.is_open:
            self._lost.append(LinkLost(f"{self.address}: {reason}", is_settled))
            if self._patience:
                self._patience, self._called_since = UNANSWERED_SECONDS, time.monotonic()
        self.is_open = False
        self._session = None

    def _take_lost(self) -> list[LinkLost]:
        lost, self._lost = self._lost, []
        return lost
