"""What becomes of deliveries, on its way to their shard: acks, in as few messages as say them; what returns."""

from collections.abc import Callable, Collection

from shardmq.bus.dialer import Dialer
from shardmq.bus.messages.base import BusMessage
from shardmq.bus.messages.columns import COLUMN_ENTRIES_MAX, Acks
from shardmq.bus.messages.shard import Ack, FromShard, Nack, Renew
from shardmq.gateway.links.consumer import Consumer
from shardmq.gateway.links.publishes.publish_window import PublishWindow


class Settlements:
    """The part of a link that tells its shard what becomes of deliveries.

    Args:
        dialer: the link to the shard.
        confirms: publishes on their way to it: what returns to a queue comes behind what was published before.

    Attributes:
        forwarding: what goes to consumers on its way to the shard.
        touched: consumers that settled something in this pass, in the order of what they settled first.
    """

    def __init__(self, dialer: Dialer[FromShard], confirms: PublishWindow) -> None:
        self.dialer = dialer
        self.confirms = confirms
        self.forwarding = confirms.forwarding
        self.touched: dict[Consumer, None] = {}

    def settle(self, consumer: Consumer, start: int, end: int) -> None:
        """Acknowledge messages [start, end)."""
        ranges = consumer.settled
        if ranges and ranges[-1][1] == start:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((start, end))
        self.touched[consumer] = None

    def nack(
        self, consumer: Consumer, start: int, end: int, requeue: bool, delay_ms: int = 0, is_unhandled: bool = False
    ) -> None:
        """Reject messages [start, end): back to their place, after a while; or dead-lettered or dropped."""
        ranges = [(start, end)]
        self._return(Nack(consumer.number, ranges, requeue, delay_ms, is_unhandled=is_unhandled), consumer.queue)

    def put_back(self, consumer: Consumer, ranges: list[tuple[int, int]]) -> None:
        """Have messages that the client has not seen return to their queue as they were.

        Args:
            consumer: that they were sent to.
            ranges: their numbers, in rising order.
        """
        self._return(Nack(consumer.number, ranges, requeue=True, is_unseen=True), consumer.queue)

    def _return(self, nack: Nack, queue: int) -> None:
        self.confirms.close_batches()
        self.forwarding.stop(queue)
        self.dialer.post(nack)

    def renew(self, consumer: Consumer, start: int, end: int) -> None:
        """Begin the consumer timeout of messages [start, end) anew."""
        self.dialer.post(Renew(consumer.number, [(start, end)]))

    def _post_settlements(self) -> None:
        post_acks(self.touched, self.dialer.post)
        self.touched.clear()


def post_acks(consumers: Collection[Consumer], post: Callable[[BusMessage], None]) -> None:
    """Post what consumers have settled, in their order; they have nothing settled then.

    Args:
        consumers: them.
        post: posts a message.
    """
    if len(consumers) == 1:
        (consumer,) = consumers
        post(Ack(consumer.number, consumer.settled))
        consumer.settled = []
        return
    acks = Acks([], [], [])
    for consumer in consumers:
        settled = consumer.settled
        if len(settled) == 1:
            start, end = settled[0]
            acks.consumers.append(consumer.number)
            acks.starts.append(start)
            acks.ends.append(end)
            settled.clear()
            if len(acks.ends) == COLUMN_ENTRIES_MAX:
                post(acks)
                acks = Acks([], [], [])
        else:
            if acks.consumers:
                post(acks)
                acks = Acks([], [], [])
            post(Ack(consumer.number, settled))
            consumer.settled = []
    if acks.consumers:
        post(acks)
