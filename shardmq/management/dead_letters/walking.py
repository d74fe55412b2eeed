"""Ready messages of queues, looked at portion by portion without a trace, within bounds."""

import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from shardmq.client.api.message import Message
from shardmq.errors import NotFound, RequestError

if TYPE_CHECKING:
    from shardmq.client.aio.channel import Channel

Row = dict[str, Any]

PORTION: Final = 200
"""Messages read at once."""

LOOKED_AT_MAX: Final = 20_000
"""Messages of one queue looked at for one answer, from its head."""

ALL_LOOKED_AT_MAX: Final = 100_000
"""Messages of all queues looked at for one answer."""

SECONDS_MAX: Final = 20.0
"""For one answer about all queues; what was found until then is told."""

LAST: Final = 2**63 - 1


async def portions(
    channel: "Channel", queue: str, reservation: str = "", looked_at_max: int = LOOKED_AT_MAX
) -> AsyncIterator[list[Message]]:
    """Messages of one queue that are ready, or reserved under a name; 0 is for all there are."""
    following: int | None = 0
    looked_at = 0
    while following is not None and (looked_at < looked_at_max or not looked_at_max):
        messages, following = await channel.queue_read(queue, following, LAST, PORTION, reservation)
        looked_at += len(messages)
        yield messages


class Walk:
    """A look at many queues of a virtual host.

    Args:
        channel: in that virtual host, of the caller.
        queues: a row with the name of each.

    Attributes:
        looked_at: messages so far.
        is_partial: whether there were more messages than are looked at for one answer.
        missed: the queues that could not be looked at, each with the reason.
    """

    def __init__(self, channel: "Channel", queues: list[Row]) -> None:
        self._channel = channel
        self._queues = queues
        self._until = time.monotonic() + SECONDS_MAX
        self._leaves = False
        self.looked_at = 0
        self.is_partial = False
        self.missed: list[Row] = []

    def leave(self) -> None:
        """Look at no more of the queue at hand; go on with the next one."""
        self._leaves = True

    async def portions(self) -> AsyncIterator[tuple[str, list[Message]]]:
        """Messages, with the name of their queue."""
        for row in self._queues:
            if self.looked_at >= ALL_LOOKED_AT_MAX or time.monotonic() >= self._until:
                self.is_partial = True
                return
            name = row["name"]
            try:
                async for messages in self._queue(name):
                    yield name, messages
            except NotFound:
                continue  # it was deleted meanwhile
            except RequestError as fault:
                self.missed.append({"queue": name, "reason": fault.text})

    async def _queue(self, name: str) -> AsyncIterator[list[Message]]:
        following: int | None = 0
        of_queue = 0
        self._leaves = False
        while following is not None and not self._leaves:
            is_much = of_queue >= LOOKED_AT_MAX or self.looked_at >= ALL_LOOKED_AT_MAX
            if is_much or time.monotonic() >= self._until:
                self.is_partial = True
                return
            messages, following = await self._channel.queue_read(name, following, LAST, PORTION)
            of_queue += len(messages)
            self.looked_at += len(messages)
            yield messages
