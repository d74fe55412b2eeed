"""What a shard does with a queue, whatever kind of queue it is."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from shardmq.message.record_batch import RecordBatch
from shardmq.shards.queues.dead_letter_outbox import DeadLetterOutbox
from shardmq.shards.queues.delivery import ALL_BATCHES, Delivery
from shardmq.shards.queues.subqueue import Subqueue
from shardmq.shards.segments.segment import Ranges, Segment
from shardmq.shards.segments.steps import Steps
from shardmq.topology.arguments import QueueArguments
from shardmq.topology.entities import Queue as Declared


class Queue(Protocol):
    """One queue: messages that are ready, unacked, delayed, reserved or dying, and its arguments.

    Ranges given to it are of messages that are unacked, unless it is said otherwise.

    Attributes:
        id: its number.
        declared: what it is.
        arguments: its arguments, read.
        outbox: the dead letters on their way out; None where those who die are just dropped.
        reserved: how many messages are reserved (reservations.py).
    """

    id: int
    declared: Declared
    arguments: QueueArguments
    outbox: DeadLetterOutbox | None
    reserved: int

    @property
    def subqueues(self) -> Sequence[Subqueue]:
        """Where they lie: the subqueues consumers are served from, in that order, which is that of their numbers."""
        ...

    @property
    def ready(self) -> int:
        """Messages that wait for a consumer."""
        ...

    @property
    def valid(self) -> int:
        """Messages not done with."""
        ...

    @property
    def unacked(self) -> int:
        """Messages handed out, and not done with."""
        ...

    @property
    def next_expiry_ms(self) -> int | None:
        """When `expire` has something to do, ms since 1970; None when nothing that is ready will expire."""
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
        """Whether it would take all of these batches, one behind the other; `credit` as in `append`."""
        ...

    def take(self, limit: int, room: int, alone: bool) -> list[Delivery]:
        """Hand out ready messages, in order; they are unacked from here on.

        Args:
            limit: so many at most.
            room: bytes they may take together.
            alone: whether a first message larger than `room` may go nevertheless, by itself.
        """
        ...

    def stored_bytes(self) -> int:
        """Bytes of the message that would be handed out next, where it is not in memory and its size is known all the
        same; else 0.
        """
        ...

    def head_bytes(self) -> int:
        """Bytes of the message that would be handed out next; 0 where none is ready."""
        ...

    def peek(self, offset: int, count: int) -> list[Delivery]:
        """Look at ready messages, from the one `offset` behind the head on; nothing changes. Bounded in bytes."""
        ...

    def settle(self, ranges: Ranges) -> None:
        """They are done with."""
        ...

    def requeue(self, ranges: Ranges) -> None:
        """They are ready again, at their place; unless that was once too often."""
        ...

    def reject(self, ranges: Ranges) -> None:
        """Nobody wants them: they are dead letters, or dropped."""
        ...

    def time_out(self, ranges: Ranges) -> None:
        """They were not settled in time: ready again or dead letters, as declared."""
        ...

    def delay_return(self, ranges: Ranges) -> Ranges:
        """They are neither ready nor unacked until `unpark`; returns those that are (others were back too often)."""
        ...

    def end_delay(self, ranges: Ranges) -> None:
        """Those of these that are delayed are ready again, at their place."""
        ...

    def reserve(self, count: int) -> Ranges:
        """The first ready messages, `count` at most, are reserved: neither ready nor unacked; returns them."""
        ...

    def release(self, ranges: Ranges) -> None:
        """Reserved messages are ready again, at their place, however often that was."""
        ...

    def settle_reserved(self, ranges: Ranges) -> None:
        """Reserved messages are done with."""
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

    def purge(self) -> tuple[int, Steps]:
        """Remove what is ready: nobody sees it from here on, and it is gone when all steps were taken.

        Returns:
            How many messages that is, and the steps, of a segment each at most.
        """
        ...

    def extent(self, number: int) -> tuple[int, int]:
        """Of the segment a message is in: its end, and about how many bytes a message of it has."""
        ...

    def expire(self, now_ms: int, batches_max: int = ALL_BATCHES) -> None:
        """Remove what has waited for too long, at the head; not what came in this pass. So many batches at most."""
        ...

    def catch_up(self) -> None:
        """Consumers have had their chance at what came in this pass: remove what has expired or is too much."""
        ...

    def trim(self) -> None:
        """Remove what is over the length limit; `seal` does it, once consumers have had their chance."""
        ...

    def seal(self) -> None:
        """The pass ends: called for every queue something was done with."""
        ...

    def mark_exactly(self) -> None:
        """A clean stop: write down what was never handed out, so that nothing is called redelivered that is not."""
        ...

    def retire(self) -> list[Segment]:
        """It is deleted; returns its segments, which are to be ended. Nothing else is asked of it after that."""
        ...

    def table(self, consumers: int) -> dict[str, Any]:
        """Its counts, as `shardmq status` shows them."""
        ...
