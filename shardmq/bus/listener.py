"""The listening end of links, and its peers."""

import logging
import time
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Generic

import zmq

from shardmq.bus.holding import HeldEnvelopes
from shardmq.bus.link import (
    BUS_PROTOCOL,
    LINK_MESSAGES,
    Incoming,
    LinkLost,
    LinkOpened,
    LinkState,
    Shorten,
    as_they_are,
    encode,
    envelope_decoder,
    read_envelope,
)
from shardmq.bus.messages.base import Answer, BusMessage, Hello, Ping, Refusal, Reset, Result, Welcome
from shardmq.bus.transport.opening import open_router
from shardmq.limits import LINK_SILENCE_SECONDS
from shardmq.runtime.clock import Ticks

_log = logging.getLogger(__name__)


class Peer:
    """A caller during one session.

    Attributes:
        shorten: says the messages of an envelope in fewer bytes; the listener's owner may set it.
    """

    __slots__ = ("_session", "caller", "name", "role", "shorten")

    def __init__(self, caller: Hashable, session: LinkState, hello: Hello) -> None:
        self.caller = caller
        self.role = hello.role
        self.name = hello.name
        self.shorten: Shorten = as_they_are
        self._session = session

    def __repr__(self) -> str:
        return f"Peer({self.name})"

    @property
    def newest(self) -> BusMessage | None:
        """The message that was posted last, if it was not sent yet."""
        outbox = self._session.outbox
        return outbox[-1] if outbox else None

    def post(self, message: BusMessage) -> None:
        """Send a message with the listener's next flush."""
        self._session.outbox.append(message)


class Responder(Generic[Result]):
    """Answers one request of a peer.

    Args:
        peer: the caller.
        request: the peer's number of the request.
    """

    __slots__ = ("peer", "request")

    def __init__(self, peer: Peer, request: int) -> None:
        self.peer = peer
        self.request = request

    def answer(self, result: Result) -> None:
        """Answer the request with the listener's next flush."""
        self.peer.post(Answer(self.request, result))

    def refuse(self, code: int, text: str) -> None:
        """Refuse the request with the listener's next flush."""
        self.peer.post(Refusal(self.request, code, text))


class Listener(Generic[Incoming]):
    """The listening end of links from any number of callers.

    Args:
        context: of the process.
        address: ZeroMQ endpoint to listen on.
        role: this process's role, for callers.
        name: this process's name, such as `shard-0`.
        incoming: union of the message types callers send.

    Raises:
        StartupRefused: the address is invalid, not safe to use, or in use.

    Attributes:
        reason_against: returns why a caller gets no session, or "" where it gets one; the owner sets it.
        is_early: returns whether a call is to be ignored, as the caller will call again; the owner sets it.
        silence_seconds: after which a session is over; the owner may set it.
        held: where what is flushed waits until it may leave; None where it leaves at once. The owner sets it.
        more: whether the last `receive` left envelopes behind.
        is_settled: whether all sessions have been settled, and none is opened.
    """

    def __init__(
        self, context: "zmq.Context[zmq.Socket[bytes]]", address: str, role: str, name: str, incoming: Any
    ) -> None:
        self.address = address
        self.socket, self._guard = open_router(context, address)
        self.more = self.is_settled = False
        self.silence_seconds = LINK_SILENCE_SECONDS
        self._welcome = Welcome(role, name)
        self._decode = envelope_decoder(incoming).decode
        self.reason_against: Callable[[Hello], str] = lambda _hello: ""
        self.is_early: Callable[[Hello], bool] = lambda _hello: False
        self.held: HeldEnvelopes | None = None
        self._peers: dict[Hashable, Peer] = {}
        self._ticks = Ticks()
        self._lost: list[tuple[Peer, LinkLost]] = []

    @property
    def peers(self) -> list[Peer]:
        """The peers with an open session."""
        return list(self._peers.values())

    @property
    def has_posted(self) -> bool:
        """Whether anything was posted to a peer that was not sent yet."""
        return any(peer._session.outbox for peer in self._peers.values())

    def flush(self) -> bool:
        """Send every peer what was posted to it. Returns whether there was anything."""
        return self._send_to([peer for peer in self._peers.values() if peer._session.outbox])

    def flush_all_but(self, kinds: frozenset[type]) -> bool:
        """Send what was posted to peers, but where that is of these kinds alone; returns whether there was anything."""
        waiting = [peer for peer in self._peers.values() if peer._session.outbox]
        return self._send_to([peer for peer in waiting if not kinds.issuperset(map(type, peer._session.outbox))])

    def flush_all_of(self, kinds: frozenset[type]) -> bool:
        """Send what was posted to peers for which messages of other kinds than these do not wait.

        Returns:
            Whether there was anything.
        """
        waiting = [peer for peer in self._peers.values() if peer._session.outbox]
        return self._send_to([peer for peer in waiting if kinds.issuperset(map(type, peer._session.outbox))])

    def _send_to(self, peers: list[Peer]) -> bool:
        if not peers:
            return False
        now = time.monotonic()
        held = self.held
        for peer in peers:
            for envelope in peer._session.envelopes(now, peer.shorten):
                if held is not None:
                    held.hold(partial(self._send_held, peer), envelope)
                elif not self.socket.send(peer.caller, envelope):
                    self._lose(peer, "the peer is not connected")
                    break
        return True

    def _send_held(self, peer: Peer, envelope: bytes) -> None:
        if self._peers.get(peer.caller) is peer and not self.socket.send(peer.caller, envelope):
            self._lose(peer, "the peer is not connected")

    def receive(self, has_come: bool = False) -> list[tuple[Peer, LinkOpened | LinkLost | Incoming]]:
        """Return what has come and from whom, in order. `more` tells whether envelopes are left for the next call.

        Args:
            has_come: a poller has found something on this socket. Asking it again takes 2 µs.
        """
        events: list[tuple[Peer, LinkOpened | LinkLost | Incoming]] = []
        received = self.socket.receive(has_come)
        self.more = self.socket.more
        if self.is_settled:
            return events
        for caller, key_name, raw in received:
            peer = self._peers.get(caller)
            if raw is None:
                if peer is not None:
                    self._lose(peer, "it has hung up")
                    events.extend(self._take_lost())
                continue
            envelope = read_envelope(self._decode, raw)
            if envelope is None:
                _log.warning("%s: %s sent bytes that are no envelope", self.address, peer or "a stranger")
                if peer is not None:
                    self._lose(peer, "it sent bytes that are no envelope")
                    events.extend(self._take_lost())
                continue
            number, count, messages = envelope
            if type(messages[0]) is Hello:
                greeted = self._greet(caller, peer, number, messages[0], key_name)
                events.extend(self._take_lost())
                if greeted is not None:
                    events.append((greeted, LinkOpened(greeted.role, greeted.name)))
                continue
            if peer is None or peer._session.number != number:
                self._reset(caller, number, "that session is not known here")
                continue
            session = peer._session
            session.heard_at = time.monotonic()
            if count != session.received + 1:
                self._reset(caller, number, f"envelope {session.received + 1} of the session is missing")
                self._lose(peer, f"envelope {session.received + 1} of the session is missing")
                events.extend(self._take_lost())
                continue
            session.received = count
            events += [(peer, message) for message in messages if type(message) not in LINK_MESSAGES]
        return events

    def tick(self, now: float) -> list[tuple[Peer, LinkLost]]:
        """Ping, and notice silence. The owner calls this every tenth of a second or so.

        Returns:
            The sessions that ended, if noticed here or in a flush.
        """
        self.socket.tick(now)
        pause = self._ticks.stood_still(now)
        for peer in list(self._peers.values()):
            if pause:
                peer._session.forgive(pause, now)
            if peer._session.silent(now, self.silence_seconds):
                self._lose(peer, f"nothing heard for {self.silence_seconds:g} s")
                self.socket.hang_up(peer.caller)
            elif peer._session.ping_due(now):
                peer.post(Ping())
        self.flush()
        return self._take_lost()

    def end(self, peer: Peer, reason: str) -> None:
        """End a peer's session; it hears why, and may begin another one."""
        self._reset(peer.caller, peer._session.number, reason)
        self._lose(peer, reason)

    def end_all(self, reason: str) -> None:
        """End all sessions; each peer hears why, and may begin another one."""
        for peer in self.peers:
            self.end(peer, reason)

    def settle(self, reason: str) -> None:
        """End all sessions in order, before another process serves: nothing is taken in any more, until `resume`.

        Each peer hears of it behind all that was said to it, and knows that what was not answered was not taken in.
        """
        self.is_settled = True
        self.flush()
        for peer in self._peers.values():
            peer.post(Reset(reason, is_settled=True))
        self.flush()

    def resume(self, reason: str) -> list[tuple[Peer, LinkLost]]:
        """Open sessions again, as no other process serves. Returns those of before, which are over."""
        self.is_settled = False
        self.end_all(reason)
        return self._take_lost()

    def close(self) -> None:
        """Stop listening."""
        self.socket.close()

    def _greet(self, caller: Hashable, peer: Peer | None, number: int, hello: Hello, key_name: str) -> Peer | None:
        """Open a session; None when there is none to open, or it is open already."""
        if self._guard is not None:
            reason = self._guard.refuse(self.address, self._welcome.role, key_name, hello.role, hello.name)
            if reason is not None:
                self._reset(caller, number, reason)
                return None
        if hello.protocol != BUS_PROTOCOL:
            reason = f"{hello.name[:80]} speaks bus protocol {hello.protocol}, and {self._welcome.name} {BUS_PROTOCOL}"
            self._reset(caller, number, f"{reason}; update both to the same version of shardmq")
            return None
        if reason := self.reason_against(hello):
            self._reset(caller, number, reason)
            return None
        if self.is_early(hello):
            return None
        if peer is not None:
            if peer._session.number == number:
                return None  # called again before the answer came; it is on its way
            self._lose(peer, "it began a new session")
        for older in self.peers:
            if older.name == hello.name:  # names are unique, so this is its successor: do not wait for silence
                self._lose(older, "a new process of this name has called")
                self.socket.hang_up(older.caller)
        greeted = Peer(caller, LinkState(number, time.monotonic()), hello)
        if not self.socket.send(caller, encode((number, 0, [self._welcome]))):
            return None
        self._peers[caller] = greeted
        return greeted

    def _reset(self, caller: Hashable, number: int, reason: str) -> None:
        if not self.socket.is_behind(caller):  # nothing else bounds what is said to somebody who does not listen
            self.socket.send(caller, encode((number, 0, [Reset(reason)])))

    def _lose(self, peer: Peer, reason: str) -> None:
        if self._peers.get(peer.caller) is peer:
            del self._peers[peer.caller]
            self._lost.append((peer, LinkLost(f"{peer.name}: {reason}")))

    def _take_lost(self) -> list[tuple[Peer, LinkLost]]:
        lost, self._lost = self._lost, []
        return lost
