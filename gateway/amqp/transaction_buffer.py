"""What a transactional channel holds until it commits."""

from typing import TYPE_CHECKING, ClassVar, Final

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.bus.messages.shard import Ack, Nack
from shardmq.errors import PreconditionFailed, RequestError
from shardmq.gateway.handlers.atomic_commit import BufferedPublish, ChannelCommit, Settlements
from shardmq.gateway.links.consumer import Consumer, ConsumerLink, HeldDelivery
from shardmq.gateway.links.publish_window import JOINED_BYTES
from shardmq.gateway.session.delivery_tags import DeliveryTags
from shardmq.limits import RUN_RECORDS_MAX
from shardmq.message.record import unpack_raw
from shardmq.message.record_batch import MANDATORY

if TYPE_CHECKING:
    from shardmq.gateway.amqp.channel import AmqpChannel
    from shardmq.gateway.state.routes import Route


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
    """What a transactional channel holds.

    Args:
        desk: of the channel.
    """

    __slots__ = ("_aside", "_bytes", "_desk", "_gathered", "_records", "_run_bytes")
    all_held_bytes: ClassVar[int] = 0

    def __init__(self, desk: "AmqpChannel") -> None:
        self._desk = desk
        self._gathered: list[BufferedPublish] = []  # the last one's records and count are filled in when it is closed
        self._records: list[bytes] = []  # of the last one
        self._run_bytes = 0
        self._bytes = 0
        self._aside: dict[str, DeliveryTags[HeldDelivery]] = {
            kind: DeliveryTags() for kind in (SETTLED, REQUEUED, REJECTED)
        }
        desk.channel.ledgers += self._aside.values()

    # --- what is held -----------------------------------------------------------------------------------------------

    def send(
        self,
        _first: int,
        exchange: str,
        key: str,
        flags: int,
        count: int,
        records: bytes,
        plan: "Route",
        priority: int = 0,
        ttl_ms: int | None = None,
    ) -> None:
        """As `Channel.send`, when it is committed. Mandatory ones (a flag) come back then where no queue takes them.

        Raises:
            PreconditionFailed: it is too much.
        """
        self._hold(len(records) + count * MESSAGE_OVERHEAD_BYTES)
        is_mandatory = flags & MANDATORY != 0
        flags &= ~MANDATORY
        if not plan and not is_mandatory:
            return
        if self._records:
            last = self._gathered[-1]
            if (
                last.plan is plan
                and last.routing_key == key
                and last.exchange == exchange
                and last.flags == flags
                and last.is_mandatory is is_mandatory
                and last.priority == priority
                and last.ttl_ms == ttl_ms
                and last.messages + count <= RUN_RECORDS_MAX
                and self._run_bytes < JOINED_BYTES
            ):
                self._run_bytes += len(records)
                self._records.append(records)
                self._gathered[-1] = last._replace(messages=last.messages + count)
                return
            self._close_run()
        self._gathered.append(BufferedPublish(exchange, key, flags, b"", count, plan, priority, ttl_ms, is_mandatory))
        self._records.append(records)
        self._run_bytes = len(records)

    def ack(self, first: int, last: int) -> None:
        """As `Channel.ack`, when it is committed.

        Raises:
            ChannelError: one of them is not outstanding.
        """
        self._set_aside(SETTLED, first, last)

    def nack(self, first: int, last: int, requeue: bool) -> None:
        """As `Channel.nack`, when it is committed.

        Raises:
            ChannelError: one of them is not outstanding.
        """
        self._set_aside(REQUEUED if requeue else REJECTED, first, last)

    def _set_aside(self, kind: str, first: int, last: int) -> None:
        aside, tag = self._aside[kind], first
        for holding, start, end in self._desk.channel.ledger.settle(first, last):
            aside.restore(tag, holding, start, end)
            tag += end - start

    def _hold(self, size: int) -> None:
        held, everything = self._bytes + size, TransactionBuffer.all_held_bytes + size
        largest = self._desk.connection.message_bytes_max + (1 << 20)
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

    def _close_run(self) -> None:
        """What was gathered is a run; what comes next begins another."""
        if self._records:
            self._gathered[-1] = self._gathered[-1]._replace(records=b"".join(self._records))
            self._records = []

    # --- the end ----------------------------------------------------------------------------------------------------

    def rollback(self) -> None:
        """Publishes are forgotten; deliveries are as they were, under the tags they had."""
        self.drop()
        ledger = self._desk.channel.ledger
        for aside in self._aside.values():
            for span in aside.take_all():
                ledger.restore(*span)

    def drop(self) -> None:
        """Publishes are forgotten."""
        TransactionBuffer.all_held_bytes -= self._bytes
        self._bytes = 0
        self._gathered, self._records = [], []

    def commit(self, reply: Reply) -> None:
        """Make all of it visible; the outcome is None, or why there is nothing of it to be seen.

        Raises:
            PreconditionFailed: something that was settled in it has returned to its queue.
        """
        self._close_run()
        channel = self._desk.channel
        taken = [(kind, *each) for kind, aside in self._aside.items() for each in aside.settle_all()]
        settlements = _settlements(taken)
        gathered, self._gathered = self._gathered, []
        size, self._bytes = self._bytes, 0

        def ended(outcome: Outcome) -> None:
            TransactionBuffer.all_held_bytes -= size
            if isinstance(outcome, RequestError):
                reply(PreconditionFailed(f"not committed: {outcome.text}"))
                return
            for _, (consumer, life), start, end in taken:
                if life == consumer.link.life:
                    consumer.unacked -= end - start
            if channel.is_open:
                channel.after_settling()
                for run in outcome:
                    self._send_back(run)
            reply(None)

        ChannelCommit(channel.session, gathered, settlements, ended, lambda: channel.is_open).begin()
        channel.session.hub.changed()

    def _send_back(self, run: BufferedPublish) -> None:
        for properties, body in unpack_raw(run.records, run.messages):
            self._desk.connection.send_return_of(self._desk.number, run.exchange, run.routing_key, properties, body)


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
