"""All links of a replica: its listener, and a dialer to each of its group's other replicas."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from shardmq.bus.curve import COMPLAINT_SECONDS, REPLICA, Context, may_replicate, process_name
from shardmq.bus.dialer import Dialer
from shardmq.bus.link import LinkLost as SessionLost
from shardmq.bus.link import LinkOpened
from shardmq.bus.listener import Listener, Peer
from shardmq.bus.messages.base import Hello
from shardmq.bus.transport.transport import Dealer, Router
from shardmq.errors import StartupRefused
from shardmq.replication.core.events import LinkLost, Received
from shardmq.replication.core.messages import Message
from shardmq.replication.links.outgoing import Outgoing
from shardmq.replication.links.wire import FormatRisen, Taken, ToReplica, opened, sealed, size_of
from shardmq.replication.store.faults import EnvelopeDamaged
from shardmq.storage.engine import Engine
from shardmq.storage.versions import VERSION

TAKEN_BYTES: Final = 1 << 20
"""Between two times that a replica is told how much of what it says was read; the rest is told with the next tick."""

SILENCE_SECONDS: Final = 3.0
"""After so long without a word, a session of replicas is over. Who is silent is evicted after a second, so that nothing
is lost by it; and a network that was cut is tried again at once, where TCP would wait as long again as it was cut."""

AGAIN_SECONDS: Final = 1.0
"""Before a replica is called again that could not be, as its key is not there yet."""

_log = logging.getLogger(__name__)


class Taking:
    """What was taken of one session of a peer.

    Attributes:
        host: of the peer.
        size: of all messages.
        told: how much of that it knows.
    """

    __slots__ = ("host", "size", "told")

    def __init__(self, host: str) -> None:
        self.host = host
        self.size = self.told = 0


class PeerLinks:
    """The links of one replica with its group's others. Nothing here blocks.

    Args:
        context: of the process.
        group: of the replica, such as `shard-0`.
        host: of the replica.
        listen_address: where the others call it.
        engine: its store, which what comes is checked against.
        broker: its id; replicas of another one are turned away.

    Raises:
        StartupRefused: the address is invalid, not safe to use, or in use.

    Attributes:
        name: of the replica on the bus, such as `a.shard-0`.
        more: whether the last `receive` left something behind.
        generation: goes up when `sources` changes.
        on_format: called with the format that another replica's store has from now on, before it is heard any further.
    """

    def __init__(
        self, context: Context, group: str, host: str, listen_address: str, engine: Engine, broker: str = ""
    ) -> None:
        self.name = process_name(host, group)
        self.more = False
        self.generation = 0
        self.on_format: Callable[[int], object] | None = None
        self._context = context
        self._group = group
        self._engine = engine
        self._broker = broker
        self._listener: Listener[ToReplica] = Listener(context, listen_address, REPLICA, self.name, ToReplica)
        self._listener.reason_against = self._reason_against
        self._listener.silence_seconds = SILENCE_SECONDS
        self._addresses: dict[str, str] = {}
        self._outgoing: dict[str, Outgoing] = {}
        self._left: set[str] = set()
        self._taking: dict[Peer, Taking] = {}
        self._complaints: dict[str, tuple[str, float]] = {}
        self._called_at = 0.0

    @property
    def sources(self) -> list[Dealer | Router]:
        """What a poller waits for."""
        return [self._listener.socket, *(outgoing.dialer.socket for outgoing in self._outgoing.values())]

    @property
    def connected(self) -> list[str]:
        """Hosts whose replicas hear what is said to them."""
        return [host for host, outgoing in self._outgoing.items() if outgoing.dialer.is_open]

    def set_peers(self, peers: Mapping[str, str]) -> None:
        """Say who the others are, from now on.

        Args:
            peers: host to the address of its replica; this replica's own host is left out, and who has no address.
        """
        others = {host: address for host, address in peers.items() if address and self._name_of(host) != self.name}
        for host in [host for host, address in self._addresses.items() if others.get(host) != address]:
            if host in self._outgoing:
                self._outgoing.pop(host).dialer.close()
                self._left.add(host)
                self.generation += 1
        self._addresses = others
        self._call()

    def format_has_risen(self) -> None:
        """Tell all that this store has a later format, and call as a replica of that one where sessions end."""
        version = self._engine.version
        for outgoing in self._outgoing.values():
            outgoing.dialer.call_as(self._broker, version)
            outgoing.dialer.post(FormatRisen(version))

    def send(self, to: str, message: Message) -> None:
        """Send a message with the next flush. It is lost where the other one is not there, which is told later."""
        outgoing = self._outgoing.get(to)
        if outgoing is not None:
            outgoing.say(sealed(message))

    def unread_bytes(self, host: str) -> int | None:
        """How much a host's replica has yet to read of what was said to it; None where the link is away.

        A replica tells what it has read for each megabyte, and ten times a second.
        """
        outgoing = self._outgoing.get(host)
        return None if outgoing is None else outgoing.unread_bytes

    def flush(self) -> bool:
        """Send what was said. Returns whether there was anything."""
        has_sent = False
        for outgoing in self._outgoing.values():
            has_sent |= outgoing.flush()
        return has_sent

    def receive(self) -> list[Received | LinkLost]:
        """Return what has come, in order for each sender, and whose links are lost."""
        events: list[Received | LinkLost] = []
        self.more = False
        for host, outgoing in self._outgoing.items():
            if outgoing.receive():
                events.append(LinkLost(host))
            self.more |= outgoing.dialer.more
        for peer, event in self._listener.receive():
            if isinstance(event, LinkOpened):
                self._taking[peer] = Taking(self._host_of(peer.name))
            elif isinstance(event, SessionLost):
                events += self._lost(peer, event)
            elif taking := self._taking.get(peer):
                self._take(peer, taking, event, events)
        self.more |= self._listener.more
        self._listener.flush()
        return events

    def tick(self, now: float) -> list[LinkLost]:
        """Call, ping, and notice silence; ten times a second or so.

        Args:
            now: monotonic seconds.
        """
        if len(self._outgoing) < len(self._addresses) and now - self._called_at >= AGAIN_SECONDS:
            self._call()
        lost = [LinkLost(host) for host, outgoing in self._outgoing.items() if outgoing.tick(now)]
        for peer, taking in self._taking.items():
            if taking.size != taking.told:
                self._tell(peer, taking)
        for peer, event in self._listener.tick(now):
            lost += self._lost(peer, event)
        return lost

    def close(self) -> None:
        """Close all links."""
        for outgoing in self._outgoing.values():
            outgoing.dialer.close()
        self._listener.close()

    def _call(self) -> None:
        """Call those that are not called yet."""
        self._called_at = time.monotonic()
        for host, address in self._addresses.items():
            if host in self._outgoing:
                continue
            peer = self._name_of(host)
            try:
                dialer: Dialer[Taken] = Dialer(self._context, address, REPLICA, self.name, Taken, peer)
            except StartupRefused as fault:
                self._complain(host, str(fault))
                continue
            dialer.call_as(self._broker, self._engine.version)
            dialer.silence_seconds = SILENCE_SECONDS
            self._outgoing[host] = Outgoing(dialer, peer, host in self._left)
            self.generation += 1

    def _take(self, peer: Peer, taking: Taking, message: ToReplica, events: list[Received | LinkLost]) -> None:
        if isinstance(message, FormatRisen):
            if self.on_format is not None:
                self.on_format(message.version)
            return
        taking.size += size_of(message)
        try:
            events.append(Received(taking.host, opened(message, self._engine)))
        except EnvelopeDamaged as fault:
            _log.warning("%s: %s", peer.name, fault)
            del self._taking[peer]
            self._listener.end(peer, "edits came damaged")
            events.append(LinkLost(taking.host))
            return
        if taking.size - taking.told >= TAKEN_BYTES:
            self._tell(peer, taking)

    def _tell(self, peer: Peer, taking: Taking) -> None:
        taking.told = taking.size
        peer.post(Taken(taking.size))

    def _lost(self, peer: Peer, event: SessionLost) -> list[LinkLost]:
        taking = self._taking.pop(peer, None)
        if taking is None:
            return []
        _log.info("the link from %s is lost: %s", peer.name, event.reason)
        return [LinkLost(taking.host)]

    def _reason_against(self, hello: Hello) -> str:
        """Why a caller gets no session, whatever its key; "" where it does."""
        if hello.role != REPLICA or not may_replicate(hello.name, self.name):
            return f"{self.name} replicates with its group's replicas on other hosts alone"
        if hello.broker != self._broker:
            return f"{self.name} is another broker's here; give each broker its own prefix in etcd, and its own ports"
        if self._engine.version < hello.generation <= VERSION and self.on_format is not None:
            self.on_format(hello.generation)  # the caller has heard of it in etcd
        if hello.generation != self._engine.version:
            return (
                f"{hello.name} has a store of format {hello.generation}, and {self.name} one of format "
                f"{self._engine.version}; replicas copy rows as they are: where that stays so, update both hosts to "
                "the same version of shardmq"
            )
        return ""

    def _name_of(self, host: str) -> str:
        return process_name(host, self._group)

    def _host_of(self, name: str) -> str:
        return name.removesuffix(f".{self._group}")

    def _complain(self, host: str, reason: str) -> None:
        """Log why a replica cannot be called, each reason once a minute."""
        before, since = self._complaints.get(host, ("", 0.0))
        now = time.monotonic()
        if reason != before or now - since >= COMPLAINT_SECONDS:
            self._complaints[host] = reason, now
            _log.warning("no link to %s: %s", self._name_of(host), reason)
