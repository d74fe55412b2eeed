"""Looking at queues, and setting their messages aside: part of Channel."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TypeVar

from shardmq.client.api.defaults import PEEK_COUNT, READ_COUNT, SEARCH_COUNT
from shardmq.client.api.message import Message
from shardmq.client.api.results import DeathsPage, QueuePlace, QueueSlice, Reserved, SearchPage
from shardmq.client.core.requests import reads
from shardmq.client.core.requests.request import Request
from shardmq.limits import RANGES_MAX
from shardmq.search.filters import SearchFilters

T = TypeVar("T")


class ReadRequests(ABC):
    """Requests that look at a queue and leave all as it is, or reserve its messages: part of a channel.

    Each may raise AccessRefused where the user may not do that, and the errors that `Channel` names.
    """

    @abstractmethod
    async def _ask(self, request: Request[T]) -> T:
        """Ask, and wait for the answer."""

    async def queue_peek(self, queue: str, offset: int = 0, count: int = PEEK_COUNT) -> list[Message]:
        """Look at ready messages and leave all as it is; they cannot be acked.

        Args:
            queue: whose.
            offset: messages behind the head of the queue.
            count: how many; fewer come where there are no more, or where they are large.
        """
        return await self._ask(reads.queue_peek(queue, offset, count))

    async def queue_slices(self, queue: str, count: int, reservation: str = "") -> list[QueueSlice]:
        """Cut what is ready in a queue into slices of about one size, for as many readers.

        Args:
            queue: whose.
            count: how many parts; fewer come where there are few messages.
            reservation: cut what is reserved under that name instead.

        Returns:
            The parts, in the queue's order: numbers of messages that may be read as often as one likes.
        """
        return await self._ask(reads.queue_slices(queue, count, reservation))

    async def queue_places(self, queue: str) -> list[QueuePlace]:
        """Return where a queue is, or each partition of a topic: by which host it is led, in a broker on several.

        Every gateway serves all of them; who reads much may do so by that of the host that leads.

        Args:
            queue: a queue, a stream or a topic.

        Raises:
            NotFound: there is none.
        """
        return await self._ask(reads.queue_places(queue))

    async def queue_read(
        self, queue: str, first: int, end: int, count: int = READ_COUNT, reservation: str = ""
    ) -> tuple[list[Message], int | None]:
        """Look at the messages numbered `first` up to `end`, and leave all as it is; they cannot be acked.

        Args:
            queue: whose.
            first: number of the first message, as a `QueueSlice` has it.
            end: number behind the last one.
            count: how many; fewer come where they are large.
            reservation: look at what is reserved under that name; what is ready, where it is "".

        Returns:
            Those of them that are still there, each with its `position`; and the number to read on from, None at the
            end.
        """
        return await self._ask(reads.queue_read(queue, first, end, count, reservation))

    async def messages_search(
        self,
        queue: str,
        filters: SearchFilters | None = None,
        first: int = 0,
        count: int = SEARCH_COUNT,
        partition: int = 0,
    ) -> SearchPage:
        """Find messages by filters, on the broker, and leave all as it is; they cannot be acked.

        A page comes after part of a second, with what was found until then; `next` says where to search on. Nothing is
        kept for a search: who does not go on has ended it.

        Args:
            queue: whose messages: a queue's that are ready, or those that a stream or topic keeps.
            filters: which; None for all.
            first: the position to begin at, in a stream the offset.
            count: how many to find, 1000 at most.
            partition: of a topic.

        Raises:
            InvalidRequest: a filter cannot be read, or its regular expression takes too long.
            NotFound: there is no such queue or topic, or partition.
        """
        return await self._ask(reads.messages_search(queue, filters, first, count, partition))

    async def deaths_search(
        self, queue: str, filters: SearchFilters | None = None, first: int = 0, ranges_max: int = RANGES_MAX
    ) -> DeathsPage:
        """Find the dead letters in a queue, on the broker: how they died and where they are; all is left as it is.

        A page comes as those of `messages_search`.

        Args:
            queue: whose ready messages.
            filters: which; None for all that died.
            first: the position to begin at.
            ranges_max: ranges of neighbouring messages, in all groups together; the page ends there.

        Raises:
            InvalidRequest: a filter cannot be read, or its regular expression takes too long.
            NotFound: there is no such queue.
        """
        return await self._ask(reads.deaths_search(queue, filters, first, ranges_max))

    async def queue_reserve(
        self,
        queue: str,
        reservation: str,
        messages_max: int = 0,
        lease_ms: int = 0,
        ranges: Iterable[tuple[int, int]] | None = None,
        again: bool = False,
    ) -> Reserved:
        """Set ready messages aside under a name: nobody gets them until that ends, readers of the name see them.

        A name that is there keeps what it has, and its time begins anew.

        Args:
            queue: whose.
            reservation: the name.
            messages_max: how many at most, from the head of the queue; 0 for all there are.
            lease_ms: after which they are back at their place; 0 for an hour.
            ranges: set those of these aside that are ready, (first, end) each, instead of the first; all others count
                as delivered once. With an empty list the name is there, and holds nothing.
            again: use the name anew where all that it had was acknowledged; nothing is reserved where nothing is ready.
        """
        return await self._ask(reads.queue_reserve(queue, reservation, messages_max, lease_ms, ranges, again))

    async def reservation_end(
        self, queue: str, reservation: str, acknowledge: bool, ranges: Iterable[tuple[int, int]] = ()
    ) -> int:
        """End a reservation.

        Args:
            queue: whose messages.
            reservation: its name.
            acknowledge: True: they are done with, as if they were acked; False: they return to their place.
            ranges: acknowledge these only, (first, end) each, as slices have them, and leave the rest reserved.

        Returns:
            How many messages that concerned.

        Raises:
            NotFound: acknowledge, and there is no such reservation: its time was over, say, and its messages are back.
        """
        return await self._ask(reads.reservation_end(queue, reservation, acknowledge, ranges))
