"""Shards that were added to a broker on several hosts while it runs.

    etcd tells of more shards ─► called ─► enrolled ─► all gateways have reached it ─► taken in: queues are placed on it

Until it is taken in, nothing waits for an added shard: no transaction asks it, and no queue is on it. So a shard that
comes late, or never, holds nobody up, and no gateway hears of a queue on a shard that it cannot reach.
"""

import logging
from collections.abc import Callable, Collection
from typing import Final

from shardmq.bus.listener import Peer
from shardmq.bus.messages.base import Inspect
from shardmq.bus.messages.coordinator import SHARDS_REACHED
from shardmq.coordinator.handlers.status import StatusCollector, Table
from shardmq.coordinator.links.shard import ShardLink
from shardmq.coordinator.state.coordinator import CoordinatorState
from shardmq.replication.dialing import PrimaryDialing

ASK_SECONDS: Final = 0.1
"""Between two questions to gateways which shards they have reached."""

_log = logging.getLogger(__name__)


class NewShards:
    """Calls shards that were added, and takes them in.

    Args:
        state: of the coordinator, whose shards become more.
        coming: shards that were not enrolled before this coordinator started, those with higher numbers.
        call: makes the link to the shard of a number.
        dialing: keeps the links at the shards' primaries, and knows how many shards there are.

    Attributes:
        links: to all shards, those that are still to be taken in too.
        on_link: called with each link that is made; the owner sets it.
    """

    peer: Peer | None = None  # it asks all gateways

    def __init__(
        self,
        state: CoordinatorState,
        coming: Collection[ShardLink],
        call: Callable[[int], ShardLink],
        dialing: PrimaryDialing,
    ) -> None:
        self.links = [*state.shards, *coming]
        self.on_link: Callable[[ShardLink], None] = lambda _link: None
        self._state = state
        self._call = call
        self._dialing = dialing
        self._is_asking = False
        self._ask_at = 0.0
        self._gateways: Collection[Peer] = ()

    @property
    def is_busy(self) -> bool:
        """Whether shards are still to be taken in."""
        return len(self.links) > len(self._state.shards)

    def fileno(self) -> int:
        """A descriptor that is readable while etcd has told something."""
        return self._dialing.fileno()

    def look(self, now: float) -> bool:
        """Take in what etcd has told; returns whether a shard is called elsewhere now. `now`: monotonic seconds."""
        is_elsewhere = self._dialing.look(now)
        while len(self.links) < self._dialing.shards:
            link = self._call(len(self.links))
            self.links.append(link)
            self.on_link(link)
            self._dialing.add(link.name, link.dialer, now)
            _log.info("%s was added; queues are placed on it once all gateways have reached it", link.name)
        return is_elsewhere

    def work(self, gateways: Collection[Peer], collector: StatusCollector, now: float) -> None:
        """Ask gateways which shards they have reached, as long as one that is there is still to be taken in.

        Args:
            gateways: all that are connected.
            collector: that asks them.
            now: monotonic seconds.
        """
        if self._is_asking or now < self._ask_at:
            return
        if self.is_busy and self.links[len(self._state.shards)].is_open:
            self._ask_at = now + ASK_SECONDS
            self._gateways = gateways
            self._is_asking = True
            collector.begin(self, {}, gateways, now, Inspect())

    def answer(self, table: Table) -> None:
        """Take in the shards that are there, and that all gateways have reached."""
        self._is_asking = False
        rows = table["others"]
        if len(rows) < len(self._gateways):
            return  # one of them is silent
        shards = self._state.shards
        reached = min((row.get(SHARDS_REACHED, 0) for row in rows), default=len(self.links))
        while len(shards) < min(reached, len(self.links)) and self.links[len(shards)].is_open:
            shards.append(self.links[len(shards)])
            self._state.store.count_shards(len(shards))
            _log.info("%s is taken in: queues are placed on it from now on", shards[-1].name)

    def close(self) -> None:
        """Hear of no more."""
        self._dialing.close()
