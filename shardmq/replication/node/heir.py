"""The next primary, until it has heard that it may begin."""

from collections.abc import Callable
from typing import Final

from shardmq.replication.core.events import Event, Received
from shardmq.replication.core.messages import Beat, Handover

HEIR_SECONDS: Final = 0.2
"""How long the owner is not told that its term ended by a transfer, so that its process does not end before the next
primary has heard that it may begin: what a process has not sent is lost with it. It is heard sooner, most often."""


class Heir:
    """Who was handed over to.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told: tuple[str, Handover, float] | None = None

    def tell(self, name: str, handover: Handover) -> None:
        """Note that a replica is sent a handover."""
        self._told = name, handover, self._clock() + HEIR_SECONDS

    def hear(self, event: Event) -> None:
        """Look whether an event shows that it leads, and need not be told any more."""
        if self._told is None or not isinstance(event, Received):
            return
        name, handover, _ = self._told
        if event.sender == name and isinstance(event.message, Beat) and event.message.term >= handover.term:
            self._told = None

    @property
    def is_awaited(self) -> bool:
        """Whether it may not have heard yet."""
        return self._told is not None and self._clock() < self._told[2]
