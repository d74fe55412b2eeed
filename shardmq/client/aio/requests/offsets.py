"""Topics by the offsets of their messages."""

from abc import ABC, abstractmethod
from typing import TypeVar, Unpack

from shardmq.client.api.defaults import PULL_COUNT
from shardmq.client.api.topics import Pulled, PullOptions, Start
from shardmq.client.core.requests import offsets
from shardmq.client.core.requests.request import Request

T = TypeVar("T")


class OffsetRequests(ABC):
    """Requests about topics by offsets: part of a channel.

    Each may raise AccessRefused where the user may not do that, NotFound where there is no such topic or partition, and
    the errors that `Channel` names. A stream is a topic whose only partition is 0.
    """

    _timeout: float

    @abstractmethod
    async def _ask_for(self, request: Request[T], seconds: float) -> T:
        """Ask, and wait for the answer for so many seconds."""

    async def pull(
        self, topic: str, partition: int, start: Start, count: int = PULL_COUNT, **options: Unpack[PullOptions]
    ) -> Pulled:
        """Read messages of a partition from an offset on, and leave all as it is.

        Args:
            topic: whose.
            partition: its number, from 0.
            start: the offset of the first message, "earliest", "latest", or a time: the first that came then or later.
            count: how many messages at most; fewer come where there are no more, or where they are large.
            options: `tags`: a tag, or a list of them, of which each message is to have one; `has_untagged=True`: beside
                them messages without a tag; `bytes_max`: about how many bytes at most (1 MiB); `wait_ms`: how long to
                wait where there is no message yet (0 to 60,000).

        Returns:
            The messages, each with its `offset`; the offset to read on from (`next`), and the range that is kept.

        Raises:
            OffsetOutOfRange: that offset was dropped by retention, or is past the next one; the error has the range.
            PreconditionFailed: it is a queue whose messages have no offsets.
        """
        request = offsets.topic_pull(topic, partition, start, count, options)
        return await self._ask_for(request, self._timeout + options.get("wait_ms", 0) / 1000)
