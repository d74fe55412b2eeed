"""Gateways that the coordinator of a broker on several hosts has lost: shards end their sessions until they are back.

A gateway that does not reach the coordinator routes by what it knew last, and its links to shards may well live: the
network between two of three hosts has failed, or it hears of no new coordinator because it cannot ask etcd. So nothing
is answered that such a gateway would have to know of before all shards that can be asked take nothing from it. On one
host, whoever lives has all of its links.
"""

import logging
from collections.abc import Callable, Sequence

from shardmq.bus.listener import Peer
from shardmq.coordinator.links.shard import ShardLink
from shardmq.coordinator.state.returning import Returning

_log = logging.getLogger(__name__)


class Fencing:
    """Which gateways are fenced off, and what waits for that.

    Args:
        shards: links to them; some may be added.
        returning: gateways of an earlier coordinator that are still to call; nobody is fenced off before they have.
        gone: called with a gateway that was lost, once it is fenced off.
    """

    def __init__(self, shards: Sequence[ShardLink], returning: Returning, gone: Callable[[Peer], None]) -> None:
        self._shards = shards
        self._returning = returning
        self._gone = gone
        self._here: dict[str, Peer] = {}
        self._fenced: frozenset[str] = frozenset()
        self._has_begun = False
        self._lost: list[Peer] = []

    def opened(self, peer: Peer) -> None:
        """Take note that a gateway is here: it gets the topology before shards hear it again."""
        self._here[peer.name] = peer
        if peer.name in self._fenced:
            _log.info("%s is back: shards take messages of it again", peer.name)
            self._fenced -= {peer.name}

    def lose(self, peer: Peer) -> None:
        """Take note that a gateway's session is over."""
        if self._here.get(peer.name) is peer:
            del self._here[peer.name]
            self._fence_off({peer.name})
        self._lost.append(peer)

    def look(self) -> None:
        """Tell shards what they have yet to hear, and go on with what waited for their answers."""
        if not self._returning.is_over:
            return
        if not self._has_begun:
            self._has_begun = True
            self._fence_off(self._told_of() - self._here.keys())
        is_asked = False
        for shard in self._shards:
            if shard.is_open:
                shard.sessions.fence(self._fenced)
                is_asked = is_asked or shard.sessions.is_asked
        if self._lost and not is_asked:
            lost, self._lost = self._lost, []
            for peer in lost:
                self._gone(peer)

    def _told_of(self) -> set[str]:
        """The gateways that shards had sessions with when they were asked last."""
        told = [shard.sessions.told for shard in self._shards]
        return {name for each in told if each is not None for name in each.names}

    def _fence_off(self, names: set[str]) -> None:
        for name in sorted(names):
            _log.info("%s is away: shards take nothing from it until it is back", name)
        self._fenced |= names
