"""Messages under a reservation, portion by portion; and dead letters of many queues, within bounds."""

import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from shardmq.client.api.message import Message
from shardmq.client.api.results import DeathsPage
from shardmq.errors import NotFound, RequestError
from shardmq.management.dead_letters.finding import Row
from shardmq.search.filters import SearchFilters

if TYPE_CHECKING:
    from shardmq.client.aio.channel import Channel

PORTION: Final = 200
"""Messages read at once."""

LOOKED_AT_MAX: Final = 200_000
"""Messages of one queue looked at for an answer about all queues, from its head."""

SECONDS_MAX: Final = 20.0
"""For one answer; what was found until then is told."""

LAST: Final = 2**63 - 1


async def portions(channel: "Channel", queue: str, reservation: str) -> AsyncIterator[list[Message]]:
    """Messages of one queue that are reserved under a name."""
    following: int | None = 0
    while following is not None:
        messages, following = await channel.queue_read(queue, following, LAST, PORTION, reservation)
        yield messages


class Walk:
    """A search through some queues of a virtual host.

    Args:
        channel: in that virtual host, of the caller.
        queues: a row with the name of each.
        seconds: for all of them.
        looked_at_max: messages of each, from its head.

    Attributes:
        looked_at: messages so far.
        is_partial: whether there were more messages than are looked at for one answer.
        missed: the queues that could not be looked at, each with the reason.
    """

    def __init__(
        self,
        channel: "Channel",
        queues: list[Row],
        seconds: float = SECONDS_MAX,
        looked_at_max: float = LOOKED_AT_MAX,
    ) -> None:
        self._channel = channel
        self._queues = queues
        self._until = time.monotonic() + seconds
        self._looked_at_max = looked_at_max
        self.looked_at = 0
        self.is_partial = False
        self.missed: list[Row] = []

    async def queues(self) -> AsyncIterator[str]:
        """The queues, while there is time."""
        for row in self._queues:
            if time.monotonic() >= self._until:
                self.is_partial = True
                return
            yield row["name"]

    async def look(self, queue: str, filters: SearchFilters) -> DeathsPage:
        """Find the first dead letter on the first page of a queue; it does not count as looked at."""
        try:
            return await self._channel.deaths_search(queue, filters, ranges_max=1)
        except RequestError as fault:
            self._miss(queue, fault)
            return DeathsPage([], 0, None, 0)

    async def pages(self, queue: str, filters: SearchFilters) -> AsyncIterator[DeathsPage]:
        """What a search of one queue finds."""
        following: int | None = 0
        of_queue = 0
        while following is not None:
            if of_queue >= self._looked_at_max or time.monotonic() >= self._until:
                self.is_partial = True
                return
            try:
                page = await self._channel.deaths_search(queue, filters, following)
            except RequestError as fault:
                self._miss(queue, fault)
                return
            of_queue += page.looked_at
            self.looked_at += page.looked_at
            following = page.next
            yield page

    def _miss(self, queue: str, fault: RequestError) -> None:
        if not isinstance(fault, NotFound):  # else it was deleted meanwhile
            self.missed.append({"queue": queue, "reason": fault.text})
