"""What a shard does with a queue, whatever kind of queue it is."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from shardmq.message.record_batch import RecordBatch
from shardmq.shards.queues.dead_letter_outbox import DeadLetterOutbox
from shardmq.shards.queues.delivery import ALL_BATCHES, Delivery
from shardmq.shards.queues.subqueue import Subqueue
from shardmq.shards.queues.tally import Tally
from shardmq.shards.segments.segment import Ranges, Segment
from shardmq.shards.segments.steps import Steps
from shardmq.topology.arguments import QueueArguments
from shardmq.topology.entities import Queue as Declared


class Queue(Protocol):
    """A queue: messages that are ready, unacked, delayed, reserved or dying, and its arguments.

    Ranges given to it are of messages that are unacked, unless it is said otherwise.

    Attributes:
        id: its number.
        declared: what it is.
        arguments: its arguments, read.
        outbox: the dead letters on their way out; None where those who die are just dropped.
        reserved: how many messages are reserved (reservations.py).
        tally: what was counted beside its messages.
    """

    id: int
    declared: Declared
    arguments: QueueArguments
    outbox: DeadLetterOutbox | None
    reserved: int
    tally: Tally

    @property
    def subqueues(self) -> Sequence[Subqueue]:
        """Return the subqueues that consumers are served from, in that order, which is that of their numbers."""
        ...

    @property
    def ready(self) -> int:
        """Return how many messages wait for a consumer."""
        ...

    @property
    def valid(self) -> int:
        """Return how many messages are not settled."""
        ...

    @property
    def unacked(self) -> int:
        """Return how many messages are delivered and not settled."""
        ...

    @property
    def next_expiry_ms(self) -> int | None:
        """Return when `expire` has something to do, ms since 1970; None when nothing that is ready will expire."""
        ...

    def append(self, batch: RecordBatch, credit: int = 0, /) -> int:
        """Put a batch at the end.

        Args:
            batch: the messages.
            credit: how many messages consumers would take at once; a full queue takes so many more.

        Returns:
            How many messages were taken: the first of the batch. The others are refused.
        """
        ...

    def has_room(self, batches: Sequence[RecordBatch], credit: int) -> bool:
        """Tell whether the queue would take all of these batches, one behind the other; `credit` as in `append`."""
        ...

    def take(self, limit: int, room: int, alone: bool) -> list[Delivery]:
        """Deliver ready messages, in order; they are unacked from here on.

        Args:
            limit: so many at most.
            room: bytes they may take together.
            alone: whether a first message larger than `room` may go nevertheless, by itself.
        """
        ...

    def stored_bytes(self) -> int:
        """Return the bytes of the message that would be delivered next, where it is not in memory; else 0.

        Where the size is not known without reading, that is 0, too.
        """
        ...

    def head_bytes(self) -> int:
        """Return the bytes of the message that would be delivered next; 0 where none is ready."""
        ...

    def peek(self, offset: int, count: int) -> list[Delivery]:
        """Look at ready messages, from the one `offset` behind the head on; nothing changes. Bounded in bytes."""
        ...

    def between(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield ready messages numbered [start, end), range by range in order; nothing may change meanwhile."""
        ...

    def settle(self, ranges: Ranges) -> None:
        """Settle unacked messages: they are gone."""
        ...

    def requeue(self, ranges: Ranges) -> None:
        """Make unacked messages ready again, at their place, unless the delivery limit is passed."""
        ...

    def reject(self, ranges: Ranges) -> None:
        """Dead-letter unacked messages, or drop them where there is no dead-letter exchange."""
        ...

    def time_out(self, ranges: Ranges) -> None:
        """Requeue or dead-letter messages whose consumer timeout is over, as x-consumer-timeout-action says."""
        ...

    def delay_return(self, ranges: Ranges) -> Ranges:
        """Hold unacked messages until `end_delay`; return those held. Others have passed the delivery limit."""
        ...

    def end_delay(self, ranges: Ranges) -> None:
        """Make those of these messages that are delayed ready again, at their place."""
        ...

    def reserve(self, count: int) -> Ranges:
        """Reserve the first ready messages, `count` at most; return their numbers. They are held."""
        ...

    def release(self, ranges: Ranges) -> None:
        """Make reserved messages ready again, at their place; no delivery limit counts that."""
        ...

    def settle_reserved(self, ranges: Ranges) -> None:
        """Settle reserved messages: they are gone."""
        ...

    def show(self, ranges: Ranges, fresh_from: Mapping[int, int]) -> list[Delivery]:
        """Look at ready or reserved messages, in rising order; nothing changes, what is in memory included.

        Args:
            ranges: which.
            fresh_from: by subqueue, the number from which on none of its messages was delivered; where it is left out,
                the subqueue's cursor.

        Returns:
            As many from the first on as `peek` would show, one at least.
        """
        ...

    def put_back(self, ranges: Ranges, fresh_from: int) -> None:
        """Make unacked messages ready again that nobody has seen since they were taken: it counts for no delivery.

        Args:
            ranges: some of those that a consumer holds, or all, in rising order.
            fresh_from: from this number on, they were fresh when they were taken.
        """
        ...

    def purge(self) -> tuple[int, Steps]:
        """Remove what is ready: nobody sees it from here on, and it is gone when all steps were taken.

        Returns:
            How many messages that is, and the steps, of a segment each at most.
        """
        ...

    def extent(self, number: int) -> tuple[int, int]:
        """Return the end of the segment a message is in, and about how many bytes a message of it has."""
        ...

    def expire(self, now_ms: int, batches_max: int = ALL_BATCHES) -> None:
        """Remove expired messages at the head, `batches_max` batches at most; not what came in this pass."""
        ...

    def catch_up(self) -> None:
        """Remove what has expired or is over the length limit, once consumers have had their chance at it."""
        ...

    def trim(self) -> None:
        """Remove what is over the length limit; `seal` does it, once consumers have had their chance."""
        ...

    def seal(self) -> None:
        """End a pass; called for every queue that something happened to."""
        ...

    def mark_exactly(self) -> None:
        """Write down exactly what was delivered, at a clean stop, so that nothing is marked redelivered that is not."""
        ...

    def retire(self) -> list[Segment]:
        """Delete the queue; return its segments, which are to be ended. Nothing else is asked of it after that."""
        ...

    @property
    def segments(self) -> int:
        """Return how many segments hold its messages."""
        ...

    def counts(self) -> tuple[int, ...]:
        """Return what was counted since start, as `tally.COUNTS` names it."""
        ...

    def table(self, consumers: int) -> dict[str, Any]:
        """Return the counts that `shardmq status` shows."""
        ...
