"""Gateways that were linked with an earlier coordinator, and are still to call this one.

Until they are back they route by what they knew, so nothing is answered that they must know of. On several hosts, the
shards tell which gateways there are: those of a host that died are not waited for.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from shardmq.bus.messages.stores import LinkedGateways


class Sessions(Protocol):
    """What a shard says of gateways."""

    @property
    def told(self) -> LinkedGateways | None:
        """Which gateways have sessions with it, as it said last in this session."""

    def look(self) -> None:
        """Ask it which these are."""


class Shard(Protocol):
    """A link to a shard."""

    @property
    def is_open(self) -> bool:
        """Whether it can be asked."""

    @property
    def sessions(self) -> Sessions:
        """Of gateways, with it."""


class Returning:
    """Waits for gateways to be back.

    Args:
        seconds: after which all are back that live; 0 where there are none to wait for.
        now: monotonic seconds.
        shards: that know the gateways; none where that is not to be asked.

    Attributes:
        is_over: whether nobody is waited for any more.
    """

    def __init__(self, seconds: float, now: float, shards: Sequence[Shard] = ()) -> None:
        self.is_over = not seconds
        self._seconds = seconds
        self._until = now + seconds
        self._shards = shards

    def look(self, now: float, here: Collection[str]) -> None:
        """See whether all are back.

        Args:
            now: monotonic seconds.
            here: names of the gateways that have called, and told who is connected there.
        """
        if not self.is_over:
            self.is_over = now >= self._until or self._are_here({*here})

    def _are_here(self, here: set[str]) -> bool:
        """Whether those are here that shards have sessions with.

        A shard that has just been started or elected may not have been called by all: one has to know them.
        """
        told = []
        for shard in self._shards:
            if shard.is_open:
                told.append(shard.sessions.told)
                shard.sessions.look()
        known = [each for each in told if each is not None]
        if len(known) < len(told) or not any(each.seconds >= self._seconds for each in known):
            return False
        return all(here.issuperset(each.names) for each in known)
