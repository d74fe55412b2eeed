"""What a transactional channel holds until it commits."""

from typing import ClassVar, Final

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.bus.messages.shard import Ack, Nack
from shardmq.errors import PreconditionFailed, RequestError
from shardmq.gateway.amqp.outbox import Outbox
from shardmq.gateway.handlers.atomic_commit import BufferedPublish, ChannelCommit, Settlements
from shardmq.gateway.links.consumer import Consumer, ConsumerLink, HeldDelivery
from shardmq.gateway.links.publishes.publish_window import JOINED_BYTES
from shardmq.gateway.session.channel import Channel
from shardmq.gateway.session.delivery_tags import DeliveryTags
from shardmq.gateway.state.routes import Route
from shardmq.limits import RECORD_BATCH_RECORDS_MAX
from shardmq.message.record import unpack_raw
from shardmq.message.record_batch import MANDATORY, RecordBatch

HELD_BYTES_MAX: Final = 64 << 20
"""What one open transaction may hold, and one of the largest messages in any case; it is one message of the bus when it
is committed."""

ALL_HELD_BYTES_MAX: Final = 256 << 20
"""What all of a gateway may hold together. Clients that wait for memory could not commit, which alone would free it."""

MESSAGE_OVERHEAD_BYTES: Final = 256
"""What a message costs that is held, beside its records."""

SETTLED, REQUEUED, REJECTED = "settled", "requeued", "rejected"

Range = tuple[int, int]


class TransactionBuffer:
    """What a transactional channel has published and settled since its last commit.

    Args:
        channel: the session's.
        outbox: the connection's; what no queue takes returns by it.
    """

    __slots__ = ("_bytes", "_channel", "_has_settled", "_open_bytes", "_outbox", "_publishes", "_records", "_settled")
    all_held_bytes: ClassVar[int] = 0

    def __init__(self, channel: Channel, outbox: Outbox) -> None:
        self._channel = channel
        self._outbox = outbox
        self._publishes: list[BufferedPublish] = []  # the last one's records are filled in when it is closed
        self._records: list[bytes] = []  # of the last one
        self._open_bytes = 0  # of these
        self._bytes = 0
        self._has_settled = False
        self._settled: dict[str, DeliveryTags[HeldDelivery]] = {
            kind: DeliveryTags() for kind in (SETTLED, REQUEUED, REJECTED)
        }
        channel.consumers.all_tags += self._settled.values()

    def send(self, _first: int, batch: RecordBatch, route: Route) -> None:
        """Hold messages until they are committed. Mandatory ones (a flag) come back then where no queue takes them.

        Args:
            _first: the first one's number; commits confirm nothing.
            batch: the messages.
            route: where they go.

        Raises:
            PreconditionFailed: it is too much.
        """
        count, records = batch.count, batch.records
        self._hold(len(records) + count * MESSAGE_OVERHEAD_BYTES)
        is_mandatory = batch.flags & MANDATORY != 0
        batch.flags &= ~MANDATORY
        if not route and not is_mandatory:
            self._channel.publisher.unroutable += count
            return
        if self._records:
            last = self._publishes[-1]
            head = last.batch
            if (
                last.route is route
                and head.routing_key == batch.routing_key
                and head.exchange == batch.exchange
                and head.flags == batch.flags
                and last.is_mandatory is is_mandatory
                and head.priority == batch.priority
                and head.ttl_ms == batch.ttl_ms
                and head.count + count <= RECORD_BATCH_RECORDS_MAX
                and self._open_bytes < JOINED_BYTES
            ):
                self._open_bytes += len(records)
                self._records.append(records)
                head.count += count
                return
            self._close_batch()
        self._publishes.append(BufferedPublish(batch, route, is_mandatory))
        self._records.append(records)
        self._open_bytes = len(records)

    def ack(self, first: int, last: int) -> None:
        """Acknowledge deliveries `first` to `last` when it is committed.

        Raises:
            ChannelError: one of them is not outstanding.
        """
        self._settle(SETTLED, first, last)

    def nack(self, first: int, last: int, requeue: bool) -> None:
        """Reject deliveries `first` to `last` when it is committed: back to their place, or dead-lettered or dropped.

        Raises:
            ChannelError: one of them is not outstanding.
        """
        self._settle(REQUEUED if requeue else REJECTED, first, last)

    def _settle(self, kind: str, first: int, last: int) -> None:
        self._has_settled = True
        settled, tag = self._settled[kind], first
        for held, start, end in self._channel.tags.settle(first, last):
            settled.restore(tag, held, start, end)
            tag += end - start

    def _hold(self, size: int) -> None:
        held, everything = self._bytes + size, TransactionBuffer.all_held_bytes + size
        largest = self._outbox.message_bytes_max + (1 << 20)
        most, most_of_all = max(HELD_BYTES_MAX, largest), max(ALL_HELD_BYTES_MAX, 2 * largest)
        if held > most:
            raise PreconditionFailed(
                f"transaction too large: it holds {most} bytes, which is the limit; commit earlier"
            )
        if everything > most_of_all:
            raise PreconditionFailed(
                f"open transactions hold {most_of_all} bytes here, which is the limit; "
                "commit earlier, or try again later"
            )
        self._bytes, TransactionBuffer.all_held_bytes = held, everything

    def _close_batch(self) -> None:
        """Put the records of the last batch together; what comes next begins another."""
        if self._records:
            self._publishes[-1].batch.records = b"".join(self._records)
            self._records = []

    def rollback(self) -> None:
        """Forget publishes; deliveries are unacked again, under the tags they had."""
        self.drop()
        tags = self._channel.tags
        for settled in self._settled.values():
            for span in settled.take_all():
                tags.restore(*span)

    def drop(self) -> None:
        """Forget publishes."""
        TransactionBuffer.all_held_bytes -= self._bytes
        self._bytes = 0
        self._publishes, self._records = [], []

    def commit(self, reply: Reply) -> None:
        """Commit it; the outcome is None, or the error that refused all of it.

        Raises:
            PreconditionFailed: something that was settled in it has returned to its queue.
        """
        self._close_batch()
        channel = self._channel
        taken = self._take_settled() if self._has_settled else []
        settlements = _settlements(taken)
        publishes, self._publishes = self._publishes, []
        size, self._bytes = self._bytes, 0

        def ended(outcome: Outcome) -> None:
            TransactionBuffer.all_held_bytes -= size
            if isinstance(outcome, RequestError):
                reply(PreconditionFailed(f"not committed: {outcome.text}"))
                return
            count_committed(channel, publishes, taken)
            for _, (consumer, life), start, end in taken:
                if life == consumer.link.life:
                    consumer.hold(start - end)
            if channel.is_open:
                channel.consumers.after_settling()
                for publish in outcome:
                    channel.publisher.returned += publish.batch.count
                    channel.publisher.unroutable += publish.batch.count
                    self._return(publish)
            reply(None)

        ChannelCommit(channel.client, publishes, settlements, ended, lambda: channel.is_open).begin()
        channel.client.state.changed()

    def _take_settled(self) -> list[tuple[str, HeldDelivery, int, int]]:
        self._has_settled = False
        return [(kind, *each) for kind, settled in self._settled.items() for each in settled.settle_all()]

    def _return(self, publish: BufferedPublish) -> None:
        batch = publish.batch
        for properties, body in unpack_raw(batch.records, batch.count):
            self._outbox.send_content_return(self._channel.number, batch.exchange, batch.routing_key, properties, body)


def count_committed(
    channel: Channel, publishes: list[BufferedPublish], taken: list[tuple[str, HeldDelivery, int, int]]
) -> None:
    """Count what was committed: publishes by their exchanges, and what was settled."""
    client, tags = channel.client, channel.tags
    for publish in publishes:
        queues = sum([len(numbers) for _, numbers in publish.route])
        client.state.traffic.exchange(client.vhost, publish.batch.exchange).count(publish.batch.count, queues)
    for kind, _, start, end in taken:
        if kind == SETTLED:
            tags.acked += end - start
        elif kind == REJECTED:
            tags.rejected += end - start


def _settlements(taken: list[tuple[str, HeldDelivery, int, int]]) -> dict[ConsumerLink, Settlements]:
    """What each shard is to be told.

    Raises:
        PreconditionFailed: some of it is not held any more.
    """
    by_consumer: dict[tuple[str, Consumer], list[Range]] = {}
    for kind, (consumer, life), start, end in taken:
        if life != consumer.link.life:
            raise PreconditionFailed(
                "not committed: a delivery that was settled in it has returned to its queue; its "
                "shard was away, or it was not settled in time"
            )
        by_consumer.setdefault((kind, consumer), []).append((start, end))
    settlements: dict[ConsumerLink, Settlements] = {}
    for (kind, consumer), ranges in by_consumer.items():
        settled, returned = settlements.setdefault(consumer.link, Settlements([], []))
        if kind == SETTLED:
            settled.append(Ack(consumer.number, ranges))
        else:
            returned.append(Nack(consumer.number, ranges, kind == REQUEUED))
    return settlements
