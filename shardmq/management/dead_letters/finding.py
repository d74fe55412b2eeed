"""Dead letters that the broker finds, and where each would go."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from shardmq.client.api.message import Message
from shardmq.client.api.results import DeathsPage
from shardmq.limits import RANGES_MAX
from shardmq.search.filters import DeathFilters

if TYPE_CHECKING:
    from shardmq.client.aio.channel import Channel
    from shardmq.search.filters import SearchFilters

Row = dict[str, Any]

EVER: Final = float("inf")
"""Seconds of a search that goes on to the end."""


def died(
    reason: str = "", queue: str = "", older_than: int | None = None, newer_than: int | None = None
) -> DeathFilters:
    """What is to be known of deaths; ages are in seconds, None is any."""
    now_ms = time.time_ns() // 1_000_000
    since_ms = 0 if newer_than is None else max(1, now_ms - newer_than * 1000 + 1)
    until_ms = 0 if older_than is None else max(1, now_ms - older_than * 1000 + 1)
    return DeathFilters(reason=reason, queue=queue, since_ms=since_ms, until_ms=until_ms)


def deaths(message: Message) -> list[Any]:
    """All entries of `x-death`, most recent first."""
    found = (message.properties.headers or {}).get("x-death")
    return found if isinstance(found, list) else []


class Selection:
    """Dead letters of a queue that would be redriven, by the queues that they would go to.

    Args:
        queues: there are, but for the one that is searched.
        limit: messages at most.
        first: the position to begin at.
        ranges_max: of neighbouring messages.

    Attributes:
        ranges: their positions, rising.
        targets: messages by the queue that they would go to.
        count: of these messages.
        homeless: messages whose queue is gone, or is the one that they are in; they stay.
        looked_at: messages so far.
        left: about how many more there are.
        following: the position to go on from; None at the end.
    """

    def __init__(self, queues: set[str], limit: int, first: int = 0, ranges_max: int = RANGES_MAX) -> None:
        self._queues = queues
        self._limit = limit
        self._ranges_max = ranges_max
        self.ranges: list[tuple[int, int]] = []
        self.targets: dict[str, int] = {}
        self.count = self.homeless = self.looked_at = self.left = 0
        self.following: int | None = first
        self.on_look: Callable[[], None] = lambda: None

    @property
    def is_full(self) -> bool:
        """Whether no more are selected."""
        return self.count >= self._limit or len(self.ranges) >= self._ranges_max

    async def search(self, channel: "Channel", queue: str, filters: "SearchFilters", seconds: float = EVER) -> None:
        """Have the broker search the queue, until it is full, at the end, or the time is over."""
        until = time.monotonic() + seconds
        while self.following is not None and not self.is_full:
            room = min(RANGES_MAX, self._ranges_max - len(self.ranges))
            self.take(await channel.deaths_search(queue, filters, self.following, room))
            self.on_look()
            if time.monotonic() >= until:
                break

    def take(self, page: DeathsPage) -> None:
        """Select those that a page of the search has found."""
        self.looked_at += page.looked_at
        self.left, self.following = page.left, page.next
        parts = sorted([(first, end, group.queue) for group in page.groups for first, end in group.ranges])
        for first, end, target in parts:
            if target not in self._queues:
                self.homeless += end - first
                continue
            taken = min(end, first + self._limit - self.count)
            self._add(first, taken, target)
            if self.count >= self._limit and (taken < end or (first, end, target) != parts[-1]):
                self.following = taken
                break

    def _add(self, first: int, end: int, target: str) -> None:
        self.targets[target] = self.targets.get(target, 0) + end - first
        self.count += end - first
        if self.ranges and self.ranges[-1][1] == first:
            self.ranges[-1] = self.ranges[-1][0], end
        else:
            self.ranges.append((first, end))
