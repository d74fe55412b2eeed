"""The gateways that have sessions with a shard, and those whose sessions it is to end."""

from collections.abc import Callable
from typing import Any

from shardmq.bus.messages.stores import LinkedGateways, ListGateways
from shardmq.errors import RequestError

Ask = Callable[[ListGateways, Callable[[Any], None]], None]
"""Asks the shard, and calls back with the answer or the refusal; never, where the session ends before."""


class GatewaySessions:
    """What a shard says of gateways, and is told about them, in one session with the coordinator.

    Args:
        ask: the shard.

    Attributes:
        told: which gateways have sessions with it, as it said last in this session; None before.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.told: LinkedGateways | None = None
        self._fenced: frozenset[str] | None = None
        self._unanswered = 0

    def look(self) -> None:
        """Ask which gateways have sessions with it, unless it was asked and has not answered."""
        if not self._unanswered:
            self._send(ListGateways())

    def fence(self, names: frozenset[str]) -> None:
        """Have it end the sessions of gateways and open none for them, until others are named; no more than once."""
        if self._fenced != names:
            self._fenced = names
            self._send(ListGateways(sorted(names)))

    @property
    def is_asked(self) -> bool:
        """Whether it has yet to answer."""
        return self._unanswered > 0

    def lose(self) -> None:
        """Forget all, as the session is over."""
        self.told = self._fenced = None
        self._unanswered = 0

    def _send(self, message: ListGateways) -> None:
        self._unanswered += 1
        self._ask(message, self._on_told)

    def _on_told(self, told: LinkedGateways | RequestError) -> None:
        self._unanswered -= 1
        self.told = None if isinstance(told, RequestError) else told
