"""How publishes go to a shard, and the record batches that they grow into."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msgspec.structs import replace

from shardmq.bus.messages.shard import Publish
from shardmq.gateway.links.publishes.exchange_tally import ExchangeTally
from shardmq.gateway.links.publishes.fan_out import ConfirmTarget, Unconfirmed
from shardmq.message.keyed_records import packed_key, with_keys, with_packed_key
from shardmq.message.record_batch import RecordBatch

UNCOUNTED: Final = ExchangeTally()
"""The tally of plans that have none of their own."""

Place = int | tuple[int, int]
"""Where a record batch grows: at a queue, or at a queue and a priority."""


class SortingQueues(tuple[int, ...]):
    """Ids of queues of one shard which all order what they get by the same priorities, and take all of it."""

    __slots__ = ()


def place_of(queues: tuple[int, ...], queue: int, priority: int, producer: int) -> Place:
    """Where a batch for some queues, which is of one priority, grows at one of them.

    In a queue with priorities only messages of the same priority have an order. What a producer has numbered keeps its
    order nevertheless: its shard knows numbers as ranges.
    """
    return queue if producer or type(queues) is not SortingQueues else (queue, priority)


def header_of(batch: RecordBatch) -> tuple[object, ...]:
    """What batches have to have in common to become one, beside their queues."""
    return (
        batch.routing_key,
        batch.timestamp_ms,
        batch.origin,
        batch.exchange,
        batch.flags,
        batch.priority,
        batch.ttl_ms,
    )


class PublishPlan(NamedTuple):
    """How messages go that differ in their bodies alone: to one shard, with nothing special but a priority.

    Attributes:
        queues: there.
        exchange: they are published to.
        routing_key: they are published with.
        flags: as they are stored.
        priority: of each.
        place: where their batch grows at the first of the queues, if no producer has numbered them.
        header: what they have in common with the others of a batch, as long as serials are given out when it is posted.
        is_single: whether there is one queue, which does not order what it gets by priorities.
        common: the plan of those that differ in their keys, too; each record has its key then. None for that plan.
        behind: the key, as it lies behind a record.
        tally: of the exchange.
    """

    queues: tuple[int, ...]
    exchange: str
    routing_key: str
    flags: int
    priority: int
    place: Place
    header: tuple[object, ...]
    is_single: bool
    common: "PublishPlan | None" = None
    behind: bytes = b""
    tally: ExchangeTally = UNCOUNTED

    @staticmethod
    def of(
        queues: tuple[int, ...],
        exchange: str,
        routing_key: str,
        flags: int,
        priority: int = 0,
        common: "PublishPlan | None" = None,
    ) -> "PublishPlan":
        """The plan of messages that nobody has numbered; `common` is that of those with other keys."""
        place = place_of(queues, queues[0], priority, 0)
        header = header_of(RecordBatch(exchange, routing_key, flags, 0, 0, 0, 0, b"", priority))
        is_single = len(queues) == 1 and isinstance(place, int)
        behind = packed_key(routing_key)
        return PublishPlan(queues, exchange, routing_key, flags, priority, place, header, is_single, common, behind)


NumberedRecords = tuple[int, bytes, int, int]
"""Messages of a publish: how many, their records, who numbers them and the first one's number."""


def in_one_batch(
    growing: "SentBatch | PlannedBatch | None", plan: PublishPlan, record: bytes
) -> tuple[PublishPlan, bytes]:
    """How a message goes, and its record, where what grows at its place differs in keys alone: both with their keys.

    Args:
        growing: that; its records get their key.
        plan: how it would go alone.
        record: the message, a record of a gateway's own.
    """
    common = plan.common
    before = growing.plan if growing is not None else None
    if common is None or before is None or before is plan:
        return plan, record
    if before is not common:
        if before.common is not common or (isinstance(growing, SentBatch) and growing.next_sequence):
            return plan, record
        assert growing is not None
        growing.take_keys(common, before.routing_key)
    return common, with_packed_key(record, plan.behind)


@dataclass(slots=True, eq=False)
class SentBatch:
    """A record batch of publishes with the same route. It grows until it is posted, and then waits for its confirm.

    Attributes:
        publish: the first one, which takes the others along; its count and records are filled in when it is posted.
        places: where it grows, at each of its queues.
        header: what the others have in common with it, beside queues and sender.
        sender: producer, delay and transaction, which they have in common, too.
        records: of each publish.
        count: of messages so far.
        size: bytes so far.
        next_serial: the serial of the message that may join; 0 where serials are given out when it is posted.
        next_sequence: its number of its producer, where it has one.
        number: of the publish, as the shard confirms it; 0 while it grows.
        waiting: whoever published, in the order of the messages.
        plan: the plan of what may join without being looked at; None where it is not known, or the batch is full.
    """

    publish: Publish
    places: tuple[Place, ...]
    header: tuple[object, ...]
    sender: tuple[int, int, int]
    records: list[bytes]
    count: int
    size: int
    next_serial: int
    next_sequence: int
    number: int = 0
    waiting: list[Unconfirmed] = field(default_factory=list)
    plan: PublishPlan | None = None

    def confirm(self) -> None:
        """Confirm all publishes in it."""
        for entry in self.waiting:
            entry.confirm()

    def take_keys(self, common: PublishPlan, key: str) -> None:
        """Give each record its key: others are to join."""
        self.plan, self.header = common, common.header
        records = with_keys(b"".join(self.records), self.count, key)
        self.records = [records]
        batch = replace(self.publish.batch, routing_key="", flags=common.flags, count=self.count, records=records)
        self.publish = replace(self.publish, batch=batch)

    def join(self, publish: Publish, size: int) -> None:
        """Take a publish along that continues it, with records of `size` bytes."""
        batch = publish.batch
        self.plan = None  # what waits last may be of another kind from here on
        self.records.append(batch.records)
        self.count += batch.count
        self.size += size
        if batch.serial:
            self.next_serial += batch.count
        if publish.producer:
            self.next_sequence += batch.count


class PlannedBatch:
    """A batch for one queue of publishes of one message each, by one plan and for one target, while it grows.

    It is what most of many queues get in a pass, and takes a third of the time of a `SentBatch`.

    Args:
        plan: how all of them go.
        target: hears of them.
        request: number of the first one.
        record: its message.

    Attributes:
        requests: number of each.
        records: message of each.
        size: bytes of those.
    """

    __slots__ = ("plan", "records", "requests", "size", "target")

    def __init__(self, plan: PublishPlan, target: ConfirmTarget, request: int, record: bytes) -> None:
        self.plan = plan
        self.target = target
        self.requests = [request]
        self.records = [record]
        self.size = len(record)

    def take_keys(self, common: PublishPlan, key: str) -> None:  # noqa: ARG002  (it is in the plan)
        """Give each record its key: others are to join."""
        behind, self.plan = self.plan.behind, common
        self.records = [with_packed_key(record, behind) for record in self.records]

    @property
    def waiting(self) -> list[Unconfirmed]:
        """Whoever published, as in `SentBatch`."""
        requests = list(zip(self.requests, self.requests, strict=True))
        return [Unconfirmed(self.target, requests, 1, 0, self.size, None, 0, is_many=True)]

    def widened(self) -> SentBatch:
        """Make a batch of it that others may join, too; its messages are counted."""
        self.plan.tally.count(len(self.records), 1)
        return self.part()

    def whole(self) -> SentBatch:
        """Make a batch of it that nobody joins any more; its messages are counted."""
        self.plan.tally.count(len(self.records), 1)
        return self.part(not self.target.is_confirming)

    def part(self, unawaited: bool = False) -> SentBatch:
        """Make a batch of it that others may join, too, of messages that were counted.

        Args:
            unawaited: nobody waits for its confirm, and nobody joins it who does.
        """
        plan, count, records = self.plan, len(self.records), b"".join(self.records)
        batch = RecordBatch(plan.exchange, plan.routing_key, plan.flags, 0, 0, 0, count, records, plan.priority)
        return SentBatch(
            Publish(plan.queues, batch, unawaited=unawaited),
            (plan.place,),
            plan.header,
            (0, 0, 0),
            [records],
            count,
            self.size,
            0,
            0,
            0,
            self.waiting,
            plan,
        )


@dataclass(slots=True, eq=False)
class PlannedRun:
    """Planned batches that were posted as one message, and wait for their confirm.

    Attributes:
        batches: them, in order.
        number: of the last one, as the shard confirms it; the others' are those before it.
        size: bytes of their records.
        count: of their messages.
    """

    batches: list[PlannedBatch]
    number: int
    size: int
    count: int

    @property
    def waiting(self) -> list[Unconfirmed]:
        """Whoever published, as in `SentBatch`."""
        return [entry for batch in self.batches for entry in batch.waiting]

    def confirm(self) -> None:
        """Confirm all publishes in them; each target hears of neighbours together."""
        target = self.batches[0].target
        numbers: list[int] = []
        for batch in self.batches:
            if batch.target is not target:
                target.confirm(list(zip(numbers, numbers, strict=True)))
                target, numbers = batch.target, []
            numbers += batch.requests
        target.confirm(list(zip(numbers, numbers, strict=True)))

    def parts(self) -> list[SentBatch]:
        """Make a batch with its own number of each."""
        parts = [batch.part() for batch in self.batches]
        for number, part in enumerate(parts, self.number + 1 - len(parts)):
            part.number = number
        return parts
