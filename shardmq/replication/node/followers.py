"""How far the other replicas are behind their primary, as that sees it."""

from collections import deque
from typing import Any, Final

from shardmq.replication.core.catch_up import Peer
from shardmq.replication.core.group import Group
from shardmq.replication.core.replica import Replica
from shardmq.replication.core.timing import SILENT_SECONDS
from shardmq.replication.node.neighbours import Links
from shardmq.storage.engine import Engine

Row = dict[str, Any]

NOTES_MAX: Final = 512
"""Notes of which index was reached when. Where there are more, each second one goes: what is old is known less well."""

IN_SYNC: Final = "in sync"
JOINING: Final = "joining"
CATCHING_UP: Final = "catching up"
AWAY: Final = "away"


class Followers:
    """What a primary knows of the others. It is kept by ticks, not by records.

    Args:
        replica: that may lead.
        links: with the others.
        engine: of the store.
    """

    def __init__(self, replica: Replica, links: Links, engine: Engine) -> None:
        self._replica = replica
        self._links = links
        self._engine = engine
        self._term = 0
        self._acked: dict[str, int] = {}
        self._reached: deque[tuple[int, float]] = deque()  # index, and when it was the last one

    def note(self, now: float) -> None:
        """Take note of how far everybody is; a few times a second.

        Args:
            now: seconds on the node's clock.
        """
        replica = self._replica
        if replica.leads != self._term:
            self._term = replica.leads
            self._acked.clear()
            self._reached.clear()
        if not self._term:
            return
        self._learn()
        reached = self._reached
        if not reached or reached[-1][0] != replica.index:
            reached.append((replica.index, now))
        slowest = min([acked for name, acked in self._acked.items() if name in replica.peers], default=replica.index)
        while reached and reached[0][0] <= slowest:
            reached.popleft()
        if len(reached) > NOTES_MAX:
            self._reached = deque(list(reached)[::2])

    def rows(self, now: float) -> list[Row]:
        """A row for each follower, by its host: what it is doing, and how far it is behind; none where nobody leads.

        `records` and `seconds` are of what is not on its disk yet, None where this primary has not heard of it; seconds
        are those since the last note before which the first of these records was there. `bytes` is what it has yet to
        read, None where there is no link. `joined_percent` is about how much of the store a join has brought.

        Args:
            now: seconds on the node's clock.
        """
        group = self._replica.group
        if not self._replica.leads or group is None:
            return []
        self._learn()
        return [self._row(name, peer, group, now) for name, peer in sorted(self._replica.peers.items())]

    def _learn(self) -> None:
        for name, peer in self._replica.peers.items():
            if peer.acked:
                self._acked[name] = peer.acked

    def _row(self, name: str, peer: Peer, group: Group, now: float) -> Row:
        silent = now - peer.answered
        is_joining = bool(peer.stream) and not peer.is_complete
        state = IN_SYNC if name in group.in_sync else JOINING if is_joining else CATCHING_UP
        acked = self._acked.get(name)
        return {
            "host": name,
            "state": AWAY if silent > SILENT_SECONDS else state,
            "records": None if acked is None or is_joining else max(0, self._replica.index - acked),
            "bytes": self._links.unread_bytes(name),
            "seconds": None if acked is None or is_joining else self._behind(acked, now),
            "silent_seconds": None if silent == float("inf") else round(silent, 1),
            "joined_percent": self._joined_percent(peer) if is_joining else None,
        }

    def _behind(self, acked: int, now: float) -> float:
        since = next((at for index, at in self._reached if index > acked), now)
        return round(max(0.0, now - since), 1)

    def _joined_percent(self, peer: Peer) -> int | None:
        """Percent of the store that was sent, by its pages in use; 99 until the follower has all of it."""
        if peer.copied is None:
            return None
        used = self._engine.sizes()["used_bytes"]
        return min(99, 100 * peer.copied // max(1, used))
