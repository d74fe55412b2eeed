"""Links in memory: they keep order, or lose and tell. What is sent is sealed and opened as between hosts."""

from collections import deque
from collections.abc import Callable, Mapping
from random import Random

import msgspec

from shardmq.bus.transport.transport import Dealer, Router
from shardmq.replication.core.events import LinkLost, Received
from shardmq.replication.core.messages import Message
from shardmq.replication.links.wire import FormatRisen, ToReplica, opened, sealed, size_of
from shardmq.storage.engine import Engine

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ToReplica).decode


class Network:
    """All links.

    Attributes:
        now: seconds; whoever drives the network sets it.
        slow: by link, seconds that a message takes.
        cut: links that keep what is sent until they are healed.
        bytes: carried so far.
    """

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.now = 0.0
        self.slow: dict[tuple[str, str], float] = {}
        self.cut: set[tuple[str, str]] = set()
        self.hosts: dict[str, MemoryLinks] = {}
        self.bytes = 0
        self._under_way: dict[tuple[str, str], deque[tuple[float, bytes]]] = {}

    def post(self, source: str, target: str, message: Message | FormatRisen) -> None:
        data = _encode(_sealed(message))
        self.bytes += len(data)
        arrival = self.now + 0.0002 + 0.001 * self.dice.random() + self.slow.get((source, target), 0.0)
        self._under_way.setdefault((source, target), deque()).append((arrival, data))

    def arrived(self, source: str, target: str) -> list[bytes]:
        """What has come, in order."""
        found: list[bytes] = []
        waiting = self._under_way.get((source, target))
        while waiting and waiting[0][0] <= self.now and (source, target) not in self.cut:
            found.append(waiting.popleft()[1])
        return found

    def lose(self, one: str, other: str) -> None:
        """Lose a connection with what is on its way, and tell both."""
        for source, target in ((one, other), (other, one)):
            self._under_way.pop((source, target), None)
            if target in self.hosts:
                self.hosts[target].lost.append(LinkLost(source))

    def heal(self) -> None:
        """Let all links be whole."""
        self.cut.clear()
        self.slow.clear()

    def gone(self, host: str) -> None:
        """A process has ended."""
        self.hosts.pop(host, None)
        for other in list(self.hosts):
            self.lose(host, other)


def _sealed(message: Message | FormatRisen) -> ToReplica:
    return message if isinstance(message, FormatRisen) else sealed(message)


class MemoryLinks:
    """The links of one process."""

    def __init__(self, network: Network, host: str, engine: Engine) -> None:
        self._network = network
        self._host = host
        self._engine = engine
        self._peers: tuple[str, ...] = ()
        self._unflushed: list[tuple[str, Message | FormatRisen]] = []
        self.on_format: Callable[[int], object] | None = None
        self.lost: list[LinkLost] = []
        self.more = False
        self.generation = 0
        network.hosts[host] = self

    @property
    def sources(self) -> list[Dealer | Router]:
        return []

    def set_peers(self, peers: Mapping[str, str]) -> None:
        self._peers = tuple(peers)

    def format_has_risen(self) -> None:
        self._unflushed += [(to, FormatRisen(self._engine.version)) for to in self._peers]

    def send(self, to: str, message: Message) -> None:
        if to in self._peers:
            self._unflushed.append((to, message))

    def unread_bytes(self, host: str) -> int | None:
        waiting = [size_of(_sealed(message)) for to, message in self._unflushed if to == host]
        return sum(waiting) if host in self._peers else None

    def flush(self) -> bool:
        for to, message in self._unflushed:
            self._network.post(self._host, to, message)
        has_sent = bool(self._unflushed)
        self._unflushed.clear()
        return has_sent

    def receive(self) -> list[Received | LinkLost]:
        events: list[Received | LinkLost] = [*self.lost]
        self.lost.clear()
        for source in ("a", "b", "c", "d"):
            for data in self._network.arrived(source, self._host):
                message = _decode(data)
                if not isinstance(message, FormatRisen):
                    events.append(Received(source, opened(message, self._engine)))
                elif self.on_format is not None:
                    self.on_format(message.version)
        return events

    def tick(self, _: float) -> list[LinkLost]:
        return []

    def close(self) -> None:
        self._network.gone(self._host)
