"""Cuts, losses and delays that begin and end independently of one another."""

from dataclasses import dataclass, field

from tests.hosts.hosts import Hosts

Way = tuple[str, str]
"""Sender and receiver."""


@dataclass
class Weather:
    """What is wrong with the network just now.

    Args:
        hosts: on it.
    """

    hosts: Hosts
    cuts: list[Way] = field(default_factory=list)
    losses: list[tuple[Way, float]] = field(default_factory=list)
    delays: list[tuple[Way, float]] = field(default_factory=list)

    def cut(self, *ways: Way) -> None:
        self.cuts += ways
        self._apply()

    def mend(self, *ways: Way) -> None:
        for way in ways:
            self.cuts.remove(way)
        self._apply()

    def lose(self, way: Way, share: float) -> None:
        self.losses.append((way, share))
        self._apply()

    def keep(self, way: Way, share: float) -> None:
        self.losses.remove((way, share))
        self._apply()

    def delay(self, way: Way, seconds: float) -> None:
        self.delays.append((way, seconds))
        self._apply()

    def hasten(self, way: Way, seconds: float) -> None:
        self.delays.remove((way, seconds))
        self._apply()

    def clear(self) -> None:
        """Nothing is wrong any more."""
        self.cuts, self.losses, self.delays = [], [], []
        self._apply()

    def _apply(self) -> None:
        self.hosts.network.become(set(self.cuts), dict(self.losses), dict(self.delays))
