"""Messages that a gateway forwards to their consumer itself, on their way to the shard.

A queue that has nothing ready, and one consumer, hands out what is published next at once, and to that one. Where the
consumer is here, this gateway need not wait for the shard: it gives the consumer the messages that it posts, and tells
the shard whose they are, which stores them as held by it.

    publisher    gateway                          shard
        │ m1        │ publish m1                    │
        │ ────────► │ ────────────────────────────► │ delivers it; nothing is ready then
        │           │                  deliver m1   │
        │ consumer ◄│ ◄──────────────────────────── │
        │           │                  may forward  │
        │           │ ◄──────────────────────────── │
        │ m2        │ publish m2, forwarded         │
        │ ────────► │ ────────────────────────────► │ stores it, held by the consumer
        │ consumer ◄┤                               │

That ends with the next publish to the queue that cannot be forwarded (its consumer has no room, it has a producer's
number, a delay or a time to live, it goes to several queues), with messages that return to the queue, with a consumer
that comes or goes, and with any request to the shard, as what was published before a request comes before its effects.
It begins again when the shard has taken in what was published since, and says that nothing is ready.

The shard may find that it was wrong (something came that this gateway does not know of, as what a transaction commits):
then it hands out that first, where there is credit, and takes the permission back where not. No message is lost or
handed out twice for that, only overtaken. Where a policy has given the queue limits or priorities meanwhile, what is on
its way then is delivered again, and says so.
"""

from collections.abc import Sequence
from typing import Final

from shardmq.bus.messages.columns import FORWARDED, TELL, MayForward
from shardmq.gateway.links.consumer import Consumer
from shardmq.message.record_batch import RecordBatch

FORWARDED_BYTES_MAX: Final = 64 << 10
"""Larger batches go by the shard, which keeps account of what is under way to a client's socket."""


class Forwarding:
    """What may be forwarded of the queues of one shard.

    Attributes:
        may_begin: whether all publishes to the shard come from this gateway, and none is sent to it twice.
        is_crowded: whether so many messages come together that nothing is forwarded.
        alone: the consumer of each queue that has one alone and may get what is forwarded.
        published: how many publishes were posted in this session.
        passed_over: how many of those that might have been forwarded were not, ever.
        newest: of what was forwarded; None for nothing since somebody looked.
    """

    __slots__ = (
        "_behind",
        "_consumers",
        "_floor",
        "_next",
        "alone",
        "is_crowded",
        "may_begin",
        "newest",
        "passed_over",
        "published",
    )

    def __init__(self) -> None:
        self.may_begin = self.is_crowded = False
        self.alone: dict[int, Consumer] = {}
        self.published = self.passed_over = 0
        self.newest: RecordBatch | None = None
        self._consumers: dict[int, dict[Consumer, None]] = {}  # by queue
        self._next: dict[int, int] = {}  # of each queue that is forwarded from, the number of the next message
        self._behind: dict[int, int] = {}  # by queue: the shard is to take in this publish before one is forwarded
        self._floor = 0  # the same for all queues

    @property
    def is_any(self) -> bool:
        """Whether there is a queue that is forwarded from."""
        return bool(self._next)

    def joined(self, consumer: Consumer) -> None:
        """Note that a consumer starts."""
        self._consumers.setdefault(consumer.queue, {})[consumer] = None
        self._look(consumer.queue)

    def left(self, consumer: Consumer) -> None:
        """Note that a consumer gets nothing more."""
        if consumer in self._consumers.get(consumer.queue, {}):
            del self._consumers[consumer.queue][consumer]
            self._look(consumer.queue)

    def _look(self, queue: int) -> None:
        """Find out who is alone with a queue; what the shard has said of it until now does not count."""
        consumers = self._consumers[queue]
        self._next.pop(queue, None)
        self._behind.pop(queue, None)
        self.alone.pop(queue, None)
        self._floor = self.published + 1
        if not consumers:
            del self._consumers[queue]
        elif len(consumers) == 1:
            (consumer,) = consumers
            is_special = consumer.takes_replies or consumer.times_out or consumer.reading is not None
            if not is_special and consumer.group is None:
                self.alone[queue] = consumer

    def on_may_forward(self, message: MayForward, consumers: dict[int, Consumer]) -> None:
        """Forward from now on, where the shard has taken in all that it was to take in before; or do so no more.

        Args:
            message: which queues have nothing ready.
            consumers: those of this gateway, by their numbers.
        """
        upto = message.upto
        for number, first in zip(message.consumers, message.firsts, strict=True):
            consumer = consumers.get(number)
            if consumer is None or self.alone.get(consumer.queue) is not consumer:
                continue
            if not first:
                self.stop(consumer.queue)
            elif self.may_begin and upto >= self._floor and upto >= self._behind.get(consumer.queue, 0):
                self._next[consumer.queue] = max(first, consumer.forwarded_upto)

    def offer(self, queue: int, batch: RecordBatch) -> tuple[int, int]:
        """Give messages to the consumer of the queue for which they are about to be posted, where that may be.

        Returns:
            `forwarded` and `forwarded_as` of their publish.
        """
        consumer = self.alone.get(queue)
        if consumer is None:
            self.passed_over += 1
            return 0, 0
        first = self._next.get(queue)
        if first is not None:
            is_plain = batch.ttl_ms is None and len(batch.records) <= FORWARDED_BYTES_MAX
            if is_plain and consumer.receiver.take_forwarded(consumer, FORWARDED + first, batch):
                self.newest = batch
                self._next[queue] = consumer.forwarded_upto = first + batch.count
                return consumer.number, first
        self.pass_over((queue,))
        return (TELL, 0) if self.may_begin else (0, 0)

    def pass_over(self, queues: Sequence[int]) -> None:
        """Note that a publish to these queues, which is about to be posted, is not forwarded."""
        self.passed_over += 1
        for queue in queues:
            self.stop(queue)

    def stop(self, queue: int) -> None:
        """Forward nothing of a queue until the shard has taken in another publish, and has told so."""
        self._next.pop(queue, None)
        if queue in self.alone:
            self._behind[queue] = self.published + 1

    def stop_all(self) -> None:
        """Forward nothing until the shard has taken in another publish, and has told so."""
        self._next.clear()
        self._floor = self.published + 1

    def forget(self) -> None:
        """Begin anew: the session is over."""
        self._next.clear()
        self._behind.clear()
        self._floor = self.published = 0
        self.may_begin = False
