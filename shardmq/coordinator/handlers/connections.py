"""Who is connected, over all gateways: connection limits, and the exclusive queues of gateways that are no more.

A gateway asks before it opens a connection (Admit) and says afterwards whom it has (Present). An admission counts from
the answer on, until the gateway's count rises or some seconds have passed: two gateways that ask at once do not both
get the last place.

A queue's owner is a connection, `<life of its gateway>.<number>`. The gateway deletes the queue when the connection
ends; a gateway that was killed cannot, so queues of lives that nobody has any more are deleted here: at once where a
gateway's successor shows itself, whose clients are the same and declare the same again. A gateway that only lost its
link is back well within the time that is waited otherwise; so it is after a restart of this process, whose clock then
starts anew.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from shardmq.bus.listener import Peer, Responder
from shardmq.bus.messages.coordinator import AdmitConnection, ReportConnections
from shardmq.errors import NotAllowed, RequestError
from shardmq.topology.topology import Topology

ADMISSION_SECONDS: Final = 3.0
"""An admitted connection that its gateway does not show within this time was not opened."""

ORPHAN_SECONDS: Final = 10.0
"""A gateway's life that nobody has shown for so long is over."""

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
    """See the module. What is said is only posted; the owner flushes.

    Args:
        topology: has the limits, and the exclusive queues.
        orphaned: called with the id of a queue whose owner is gone.
        silent_until: nobody is admitted before, monotonic seconds: not all gateways may have returned.
    """

    def __init__(self, topology: Topology, orphaned: Callable[[int], None], silent_until: float) -> None:
        self._topology = topology
        self._orphaned = orphaned
        self._silent_until = silent_until
        self._gateways: dict[Peer, _Gateway] = {}
        self._lives: dict[str, str] = {}  # by gateway's name, the last
        self._admitted: deque[_Admission] = deque()
        self._held: list[tuple[Responder[None], AdmitConnection]] = []
        self._shown_at: dict[str, float] = {}  # lives that own queues
        self._sweep_at = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits to be admitted."""
        return bool(self._held)

    def report(self, peer: Peer, message: ReportConnections) -> None:
        """A gateway says whom it has."""
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
        """A gateway asks whether one more connection may be opened."""
        if now < self._silent_until:
            self._held.append((responder, asked))
            return
        try:
            self._check(asked.vhost, asked.user)
        except RequestError as refusal:
            responder.refuse(refusal.code, refusal.text)
            return
        self._admitted.append(_Admission(responder.peer, (asked.vhost, asked.user), now))
        responder.answer(None)

    def lose(self, peer: Peer) -> None:
        """A gateway is gone, or its link is: its connections do not count until it shows them again."""
        self._gateways.pop(peer, None)
        self._admitted = deque(admission for admission in self._admitted if admission.peer is not peer)
        self._held = [(responder, asked) for responder, asked in self._held if responder.peer is not peer]

    def tick(self, now: float) -> None:
        """Answer who had to wait, forget admissions nothing came of, delete what is orphaned."""
        while self._admitted and now - self._admitted[0].since > ADMISSION_SECONDS:
            self._admitted.popleft()
        if self._held and now >= self._silent_until:
            held, self._held = self._held, []
            for responder, asked in held:
                self.admit(responder, asked, now)
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_SECONDS
            self._sweep(now)

    def _check(self, vhost: str, user: str) -> None:
        """Compare limits with what there is; counted only where there are limits.

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
        """Connections with that virtual host (place 0) or user (place 1), and those that will soon be."""
        shown = sum(
            count
            for gateway in self._gateways.values()
            for who, count in gateway.connections.items()
            if who[place] == name
        )
        return shown + sum(admission.who[place] == name for admission in self._admitted)

    def _end(self, origin: str) -> None:
        """A gateway's life is over: what it owned goes."""
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
            if now - shown_at[origin] > ORPHAN_SECONDS:
                orphans.append(queue.id)
        self._shown_at = shown_at
        for queue_id in orphans:
            self._orphaned(queue_id)
