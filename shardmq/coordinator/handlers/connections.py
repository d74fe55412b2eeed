"""Connections over all gateways: limits, and exclusive queues without an owner.

A gateway asks before it opens a connection (AdmitConnection) and reports its connections afterwards
(ReportConnections). An admission counts from the answer on, until the gateway's count rises or some seconds have
passed, so two gateways that ask at once do not both get the last place.

An exclusive queue's owner is a connection, named `<origin of its gateway>.<number>`. The gateway deletes the queue when
the connection ends. A gateway that was killed cannot, so the coordinator deletes the queues of origins that no gateway
reports: at once when a gateway of the same name reports another origin, since its clients come back and declare the
same queues; otherwise after a time in which a gateway that only lost its link is back. A restart of the coordinator
starts that time again. It is shorter where another connection wants such a queue: that is a client whose gateway has
died, and which declares its queues at another one.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from shardmq.bus.listener import Peer, Responder
from shardmq.bus.messages.coordinator import AdmitConnection, ReportConnections
from shardmq.coordinator.state.returning import Returning
from shardmq.errors import NotAllowed, RequestError
from shardmq.topology.topology import Topology

ADMISSION_SECONDS: Final = 3.0
"""An admitted connection that its gateway does not report within this time was not opened."""

ORPHAN_SECONDS: Final = 10.0
"""A gateway's origin that was not reported for so long is gone."""

CLAIMED_SECONDS: Final = 2.0
"""The same where another connection declares one of its queues: a gateway that only lost its link is back in 0.6 s."""

SWEEP_SECONDS: Final = 1.0

_Who = tuple[str, str]
"""Virtual host and user."""


@dataclass(slots=True)
class _Gateway:
    origin: str
    connections: Counter[_Who] = field(default_factory=Counter)


@dataclass(slots=True)
class _Admission:
    peer: Peer
    who: _Who
    since: float


class ConnectionTracker:
    """Connection limits, and the deletion of exclusive queues without an owner. Messages are only posted here.

    Args:
        topology: has the limits, and the exclusive queues.
        orphaned: called with the id of a queue whose owner is gone.
        returning: gateways that may still call again; no connection is admitted before.
    """

    def __init__(self, topology: Topology, orphaned: Callable[[int], None], returning: Returning) -> None:
        self._topology = topology
        self._orphaned = orphaned
        self._returning = returning
        self._gateways: dict[Peer, _Gateway] = {}
        self._lives: dict[str, str] = {}  # the last one, by the gateway's name
        self._admitted: deque[_Admission] = deque()
        self._held: list[tuple[Responder[None], AdmitConnection]] = []
        self._shown_at: dict[str, float] = {}  # origins that own queues
        self._claimed: set[str] = set()  # of those, whose queues others want
        self._sweep_at = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether a connection waits to be admitted."""
        return bool(self._held)

    @property
    def gateways(self) -> set[str]:
        """Names of those that have said who is connected."""
        return {peer.name for peer in self._gateways}

    def report(self, peer: Peer, message: ReportConnections) -> None:
        """Note a gateway's connections."""
        before = self._gateways.get(peer, _Gateway("")).connections
        now = Counter({(vhost, user): count for vhost, user, count in message.connections})
        origin = f"{message.origin:016x}"
        self._gateways[peer] = _Gateway(origin, now)
        if self._lives.get(peer.name, origin) != origin:
            self._end(self._lives[peer.name])
        self._lives[peer.name] = origin
        risen = now - before
        waiting = deque[_Admission]()
        for admission in self._admitted:
            if admission.peer is peer and risen[admission.who] > 0:
                risen[admission.who] -= 1
            else:
                waiting.append(admission)
        self._admitted = waiting

    def admit(self, responder: Responder[None], asked: AdmitConnection, now: float) -> None:
        """Answer whether a gateway may open one more connection."""
        if not self._returning.is_over:
            self._held.append((responder, asked))
            return
        try:
            self._check(asked.vhost, asked.user)
        except RequestError as refusal:
            responder.refuse(refusal.code, refusal.text)
            return
        self._admitted.append(_Admission(responder.peer, (asked.vhost, asked.user), now))
        responder.answer(None)

    def claim(self, owner: str) -> bool:
        """Have the queues of a connection deleted soon, unless its gateway shows that it is there.

        Args:
            owner: name of the connection.

        Returns:
            Whether its gateway is away; if not, the queues stay.
        """
        origin = owner.partition(".")[0]
        if any(gateway.origin == origin for gateway in self._gateways.values()):
            return False
        self._claimed.add(origin)
        return True

    def lose(self, peer: Peer) -> None:
        """Note that a gateway's link is lost: its connections do not count until it reports them again."""
        self._gateways.pop(peer, None)
        self._admitted = deque(admission for admission in self._admitted if admission.peer is not peer)
        self._held = [(responder, asked) for responder, asked in self._held if responder.peer is not peer]

    def tick(self, now: float) -> None:
        """Answer requests that had to wait, forget admissions without a connection, delete orphaned queues."""
        while self._admitted and now - self._admitted[0].since > ADMISSION_SECONDS:
            self._admitted.popleft()
        if self._held and self._returning.is_over:
            held, self._held = self._held, []
            for responder, asked in held:
                self.admit(responder, asked, now)
        if now >= self._sweep_at or self._claimed:
            self._sweep_at = now + SWEEP_SECONDS
            self._sweep(now)

    def _check(self, vhost: str, user: str) -> None:
        """Compare limits with the connections, which are counted only where there are limits.

        Raises:
            NotAllowed: a limit is reached, or there is no such virtual host.
        """
        if vhost not in self._topology.vhosts:
            raise NotAllowed(f"vhost '{vhost}' not found")
        limit = self._topology.vhosts[vhost].limits.get("max-connections")
        if limit is not None and self._count(0, vhost) >= limit:
            raise NotAllowed(
                f"access to vhost '{vhost}' refused for user '{user}': connection limit ({limit}) is reached"
            )
        known = self._topology.users.get(user)
        limit = known.limits.get("max-connections") if known is not None else None
        if limit is not None and self._count(1, user) >= limit:
            raise NotAllowed(f"connection refused for user '{user}': user connection limit ({limit}) is reached")

    def _count(self, place: int, name: str) -> int:
        """Open and admitted connections of a virtual host (place 0) or a user (place 1)."""
        shown = sum(
            count
            for gateway in self._gateways.values()
            for who, count in gateway.connections.items()
            if who[place] == name
        )
        return shown + sum(admission.who[place] == name for admission in self._admitted)

    def _end(self, origin: str) -> None:
        """Delete the queues that a gateway's origin owned."""
        owned = [queue.id for queue in self._topology.exclusive_queues if queue.owner.partition(".")[0] == origin]
        for queue_id in owned:
            self._orphaned(queue_id)

    def _sweep(self, now: float) -> None:
        here = {gateway.origin for gateway in self._gateways.values()}
        shown_at: dict[str, float] = {}
        orphans: list[int] = []
        for queue in self._topology.exclusive_queues:
            origin = queue.owner.partition(".")[0]
            if origin not in shown_at:
                shown_at[origin] = now if origin in here else self._shown_at.get(origin, now)
            is_claimed = origin in self._claimed and self._returning.is_over
            if now - shown_at[origin] > (CLAIMED_SECONDS if is_claimed else ORPHAN_SECONDS):
                orphans.append(queue.id)
        self._shown_at = shown_at
        self._claimed = (self._claimed & shown_at.keys()) - here
        for queue_id in orphans:
            self._orphaned(queue_id)
