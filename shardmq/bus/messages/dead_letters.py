"""Dead letters on their way from a shard to a gateway, which routes them on."""

from shardmq.bus.messages.base import BusMessage
from shardmq.message.record_batch import RecordBatch


class Gone(BusMessage, frozen=True, tag=70):
    """Dead letters of a producer with these numbers are never published again.

    The queues forget these numbers in their deduplication. Not answered.

    Attributes:
        queues: ids of the queues.
        producer: whose numbers they are.
        ranges: the numbers, in rising order.
    """

    queues: tuple[int, ...]
    producer: int
    ranges: list[tuple[int, int]]


class DeadLetterAccepted(BusMessage, frozen=True, tag=36):
    """Dead letters have arrived in all their queues, or have none to go to. They leave the queue they died in."""

    queue: int
    ranges: list[tuple[int, int]]
    group: str = ""


class DeadLetterRefused(BusMessage, frozen=True, tag=37):
    """Dead letters have not arrived in all their queues. The shard sends them again a little later."""

    queue: int
    ranges: list[tuple[int, int]]
    group: str = ""


class DeadLetter(BusMessage, frozen=True, tag=45):
    """Dead letters of a queue with a dead-letter exchange, for a gateway to route on.

    The gateway answers DeadLetterAccepted or DeadLetterRefused for every one. It publishes them as messages `first` and
    following of `producer`, so that each arrives once, however often it is sent.

    Attributes:
        queue: id of the queue in which they died.
        first: number of the first one.
        reason: rejected, expired, maxlen, delivery_limit or ack_timeout.
        batch: the records.
        deliveries: how often they were delivered and returned.
        producer: in whose name they are published.
        gone: numbers of that producer that are never sent again, which the gateway passes on in Gone.
        group: whose dead letters they are, of the groups that read a partition; "" for the queue's own. The answer
            names it, too.
        exchange: where a group's go; None for the queue's dead-letter exchange.
        routing_key: by which key a group's go; None for the one they were published with.
    """

    queue: int
    first: int
    reason: str
    batch: RecordBatch
    deliveries: int = 0
    producer: int = 0
    gone: list[tuple[int, int]] = []
    group: str = ""
    exchange: str | None = None
    routing_key: str | None = None
