"""One channel, whatever the protocol: its two halves, acknowledgements, closing.

The front of a protocol (native/, amqp/) turns frames into calls here and is called back with what is to be sent.
"""

from shardmq.errors import ChannelError, ReplyCode
from shardmq.gateway.links.consumer import Consumer, HeldDelivery
from shardmq.gateway.session.channel_consumers import ChannelConsumers
from shardmq.gateway.session.channel_publisher import ChannelPublisher
from shardmq.gateway.session.client import Client
from shardmq.gateway.session.delivery_tags import DeliveryTags


class Channel:
    """One channel: a stream of requests carried out in order.

    Args:
        client: whose it is.
        number: the client's.

    Attributes:
        publisher: its publishes and confirms.
        consumers: its consumers and deliveries.
        tags: the delivery tags that are outstanding.
        reply_consumer: tag of its consumer of answers (`native/direct_reply`), None where it never had one.
    """

    __slots__ = ("client", "consumers", "number", "publisher", "reply_consumer", "tags")

    def __init__(self, client: Client, number: int) -> None:
        self.client = client
        self.number = number
        self.publisher = ChannelPublisher(client, number)
        self.consumers = ChannelConsumers(client, number)
        self.tags: DeliveryTags[HeldDelivery] = self.consumers.tags
        self.reply_consumer: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether the channel has not been closed."""
        return self.publisher.is_open

    def ack(self, first: int, last: int) -> None:
        """Acknowledge deliveries `first` to `last`.

        Raises:
            ChannelError: one of them is not outstanding.
        """
        settled = self.tags.settle(first, last)
        self.tags.acked += last + 1 - first
        for (consumer, life), start, end in settled:
            if life == consumer.link.life:  # else its shard died since, and delivers it again
                consumer.hold(start - end)
                consumer.link.settle(consumer, start, end)
            else:
                consumer.acks_lost = True
                self._heard_of(consumer)
        self.consumers.after_settling()
        self.client.state.changed()

    def nack(self, first: int, last: int, requeue: bool, delay_ms: int = 0) -> None:
        """Reject deliveries `first` to `last`: back to their place, after a while; or dead-lettered or dropped.

        Raises:
            ChannelError: one of them is not outstanding, or a delay where nothing returns.
        """
        if delay_ms and not requeue:
            raise ChannelError(
                f"a delay of {delay_ms} ms without requeue: what is rejected does not return; leave out one of them",
                ReplyCode.PRECONDITION_FAILED,
            )
        settled = self.tags.settle(first, last)
        if not requeue:
            self.tags.rejected += last + 1 - first
        self._requeue(settled, requeue, delay_ms)

    def put_back(self, first: int, last: int) -> None:
        """Requeue deliveries `first` to `last`, which the client's program has not seen.

        Raises:
            ChannelError: one of them is not outstanding.
        """
        self._requeue(self.tags.settle(first, last), requeue=True, is_unhandled=True)

    def renew(self, first: int, last: int) -> None:
        """Begin the consumer timeout of deliveries `first` to `last` anew: they are still being worked on.

        Raises:
            ChannelError: one of them is not outstanding.
        """
        for (consumer, life), start, end in self.tags.look(first, last):
            if life == consumer.link.life:
                consumer.link.renew(consumer, start, end)
            self._heard_of(consumer)
        self.client.state.changed()

    def recover(self) -> None:
        """Requeue everything unacked, to be delivered again."""
        self._requeue(self.tags.settle_all(), requeue=True)

    def _requeue(
        self,
        settled: list[tuple[HeldDelivery, int, int]],
        requeue: bool,
        delay_ms: int = 0,
        is_unhandled: bool = False,
    ) -> None:
        for (consumer, life), start, end in settled:
            if life == consumer.link.life:
                consumer.hold(start - end)
                consumer.link.nack(consumer, start, end, requeue, delay_ms, is_unhandled)
            elif not is_unhandled:
                self._heard_of(consumer)
        self.consumers.after_settling()
        self.client.state.changed()

    def _heard_of(self, consumer: Consumer) -> None:
        """Note that the client deals with what a consumer got, where nothing is settled by that."""
        if self.consumers.groups is not None:
            self.consumers.groups.heard_of(consumer)

    def counts(self, published: int) -> tuple[int, ...]:
        """What was done on it, as `traffic.CHANNEL_COUNTS` names it; `published` are messages that came."""
        publisher, tags = self.publisher, self.tags
        delivered = tags.next_tag - 1 - tags.gets
        no_ack = tags.unasked - tags.gets_unasked
        return (
            published,
            publisher.confirmed + publisher.more_confirmed,
            publisher.returned,
            publisher.unroutable - publisher.returned,
            delivered - no_ack,
            no_ack,
            tags.gets - tags.gets_unasked,
            tags.gets_unasked,
            tags.gets_empty,
            tags.acked,
            tags.redelivered,
            tags.rejected,
            published - publisher.before_confirms if publisher.is_confirming else 0,
        )

    def close(self) -> None:
        """Requeue what is unacked, and end consumers and confirms."""
        self.publisher.is_open = False
        self.consumers.close()
