"""A queue with all that belongs to it here: consumers, producers, delays, expiry."""

from typing import Final

from msgspec.structs import replace

from shardmq.runtime.clock import SteadyClock
from shardmq.runtime.statistics.rates import Sample
from shardmq.shards.consumers.readers import Readers
from shardmq.shards.consumers.round_robin import RoundRobin
from shardmq.shards.queues.configured_queue import ConfiguredQueue
from shardmq.shards.queues.dead_letter_outbox import DeadLetterOutbox
from shardmq.shards.queues.delivery import SUBQUEUE_BITS
from shardmq.shards.queues.plain_queue import PlainQueue
from shardmq.shards.queues.queue import Queue
from shardmq.shards.state.deduplication import ProducerSequences
from shardmq.shards.state.schedule import Entry
from shardmq.shards.storage.recovery import NOTHING_STORED, RecoveredQueue
from shardmq.shards.storage.write_buffer import WriteBuffer
from shardmq.shards.topics.partition import Partition
from shardmq.topology.arguments import is_stream
from shardmq.topology.entities import Queue as Declared


class HostedQueue:
    """A queue, and what belongs to it here.

    Args:
        queue: itself.
        now_ms: what time it is.
        behind: gets its id where its readers have more to look through than one pass does.

    Attributes:
        queue: itself.
        consumers: its consumers.
        readers: the same, where it is a partition; None where it is not.
        producers: who published to it, if they said so.
        delayed: messages of it that wait for a time.
        fired_ms: when the timer was due that fired last; new ones are due later than any that fired.
        timers_look: the next look at its timers; None where there is none to come.
        expiry_look: the same at its head, which may expire.
        use_look: the same at how long it was not used (x-expires).
        used_ms: when it was last used, as `x-expires` understands it.
        is_kept: whether it must not go by itself before a consumer has come (auto-delete).
        refuses: whether it may be too full to take a message (x-overflow reject-publish).
        drops_head: whether its oldest messages give way to new ones (x-max-length, x-max-length-bytes).
        is_condemned: whether it takes nothing more in: it is about to be deleted, if the coordinator agrees.
        is_leaving: whether nobody can use it any more: it is to be deleted, whatever happens.
        is_durable: whether it survives a restart.
        is_gone: whether it is deleted, or out of service.
        sample: the newest look at its counters; None where nothing has happened to it yet.
    """

    __slots__ = (
        "delayed",
        "expiry_look",
        "fired_ms",
        "drops_head",
        "is_condemned",
        "is_durable",
        "is_gone",
        "is_kept",
        "is_leaving",
        "producers",
        "queue",
        "readers",
        "refuses",
        "sample",
        "consumers",
        "timers_look",
        "use_look",
        "used_ms",
    )

    def __init__(self, queue: Queue, now_ms: int, behind: dict[int, None]) -> None:
        self.queue = queue
        self.readers = Readers(queue, behind) if isinstance(queue, Partition) else None
        self.consumers: Readers | RoundRobin
        if self.readers is not None:
            self.consumers = self.readers
        else:
            self.consumers = RoundRobin(queue, queue.arguments.single_active_consumer)
        self.producers: ProducerSequences | None = None
        self.delayed = self.fired_ms = 0
        self.timers_look: Entry | None = None
        self.expiry_look: Entry | None = None
        self.use_look: Entry | None = None
        self.used_ms = now_ms
        self.is_durable = queue.declared.durable
        self.is_kept = True
        self.sample: Sample | None = None
        self.is_condemned = self.is_leaving = self.is_gone = False
        self._note_limits()

    def _note_limits(self) -> None:
        arguments = self.queue.arguments
        self.refuses = arguments.overflow != "drop-head"
        self.drops_head = not (self.refuses or isinstance(self.queue, Partition)) and (
            arguments.max_length is not None or arguments.max_length_bytes is not None
        )

    def configure(self, declared: Declared, buffer: WriteBuffer, clock: SteadyClock) -> None:
        """Take in the arguments that policies give the queue now; it may be another object from then on.

        Raises:
            RowDamaged: a segment that had to be read is not what was written.
        """
        queue = self.queue
        if isinstance(queue, PlainQueue) and _is_configured(declared):
            queue.seal()
            self.queue = ConfiguredQueue(declared, buffer, clock, part=queue)
        elif isinstance(queue, ConfiguredQueue):
            queue.configure(declared)
            if not _is_configured(declared):
                self.queue = queue.plain() or queue
        elif isinstance(queue, PlainQueue | Partition):
            queue.configure(declared)
        if self.readers is None and self.queue is not queue:
            assert isinstance(self.consumers, RoundRobin)
            self.consumers.serve_from(self.queue)
        self._note_limits()

    @property
    def title(self) -> str:
        """As errors call it."""
        return f"queue '{self.queue.declared.name}' in vhost '{self.queue.declared.vhost}'"

    def outbox(self, group: str = "") -> DeadLetterOutbox | None:
        """Return the dead letters of the queue, or of a group that reads it; None where there are none."""
        if not group:
            return self.queue.outbox
        cursor = self.readers.groups.get(group) if self.readers is not None else None
        return cursor.deliveries.letters if cursor is not None and cursor.deliveries is not None else None

    def letters_go_to(self, group: str) -> tuple[str | None, str | None]:
        """Return the dead-letter exchange and key of a group that reads it, or that a policy gave the queue.

        None are those that the queue was declared with.
        """
        if not group and self.queue.declared.policy:
            return self.queue.arguments.dead_letter_exchange, self.queue.arguments.dead_letter_routing_key
        cursor = self.readers.groups.get(group) if group and self.readers is not None else None
        settings = cursor.settings if cursor is not None else None
        return (
            (settings.dead_letter_exchange, settings.dead_letter_routing_key) if settings is not None else (None, None)
        )

    def close_group(self, group: str) -> None:
        """Let a group without members rest, where nothing is to come of what they had."""
        cursor = self.readers.groups.get(group) if self.readers is not None else None
        if cursor is not None:
            cursor.close()

    def mark_exactly(self) -> None:
        """Write down exactly what was delivered, at a clean stop."""
        self.queue.mark_exactly()
        if self.readers is not None:
            for group in self.readers.groups.values():
                group.mark_exactly()

    def is_unused(self, now_ms: int) -> bool:
        """Whether it is to be deleted: auto-delete, or nobody used it for its time."""
        if len(self.consumers):
            return False
        if self.queue.declared.auto_delete and not self.is_kept:
            return True
        expires_ms = self.queue.arguments.expires_ms
        return expires_ms is not None and not self.queue.reserved and self.used_ms + expires_ms <= now_ms


_MESSAGE_ARGUMENTS: Final = (
    "x-message-ttl",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-delivery-limit",
    "x-dead-letter-exchange",
    "x-consumer-timeout-action",
    "x-retry-delays",
)
"""Arguments that change what becomes of messages. The others are about consumers and the queue itself."""


_TAKING_AWAY: Final = (
    "x-message-ttl",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-age",
    "x-delivery-limit",
    "x-expires",
)
"""Arguments for which messages, or the queue, go."""


def until_told(declared: Declared) -> Declared:
    """Return what a stored queue is at a start, until the coordinator has said what policies give it now.

    They may have changed while the shard was away, and what they take away does not come back: their limits wait. Those
    that a queue was declared with hold, but in a stream, where a policy may have widened them.
    """
    waiting = [name for name in _TAKING_AWAY if name in declared.policy]
    if not waiting:
        return declared
    own = {} if is_stream(declared.arguments) else declared.arguments
    return replace(declared, policy={**declared.policy, **{name: own.get(name) for name in waiting}})


def make_queue(
    declared: Declared, buffer: WriteBuffer, clock: SteadyClock, stored: RecoveredQueue = NOTHING_STORED
) -> Queue:
    """Make the queue of a declaration.

    Args:
        declared: what it is; its arguments were checked.
        buffer: where its changes are written down.
        clock: what times to live are measured by.
        stored: what a start found of it.
    """
    if is_stream(declared.arguments):
        return Partition(declared, buffer, clock, stored)
    is_more = any(segment.first >> SUBQUEUE_BITS for segment in stored.segments) or any(stored.marks)
    if any(name in declared.arguments for name in _MESSAGE_ARGUMENTS) or is_more:
        return ConfiguredQueue(declared, buffer, clock, stored)
    plain = PlainQueue(declared, buffer, clock, stored)
    return ConfiguredQueue(declared, buffer, clock, part=plain) if _is_configured(declared) else plain


def _is_configured(declared: Declared) -> bool:
    """Whether a queue has arguments, its own or a policy's, that change what becomes of its messages."""
    return any(name in declared.effective for name in _MESSAGE_ARGUMENTS)
