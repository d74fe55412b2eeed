"""To and from shards."""

from typing import ClassVar

import msgspec

from shardmq.bus.messages.base import Answer, BusMessage, Call, Inspect, Refusal, Request
from shardmq.bus.messages.columns import Acks, Deliveries, MayForward, Publishes
from shardmq.bus.messages.dead_letters import DeadLetter, DeadLetterAccepted, DeadLetterRefused, Gone
from shardmq.bus.messages.deliveries import CommonDelivery, CommonForgotten, DeliveredPart
from shardmq.bus.messages.groups import (
    CommitOffset,
    Declined,
    DropGroup,
    GroupReading,
    InspectPartition,
    ResetGroup,
    StageOffset,
    Starved,
)
from shardmq.bus.messages.reads import ReadRequest
from shardmq.bus.messages.statistics import QueueStatistics, RankQueues, ShardStatistics
from shardmq.bus.messages.stores import Copying, Expel, Identity, Recorded, StoreRequest
from shardmq.bus.messages.streams import Reading
from shardmq.bus.messages.transactions import PreparationProgress, TransactionRequest
from shardmq.errors import ReplyCode
from shardmq.message.record_batch import RecordBatch
from shardmq.topology.entities import Queue


class Permit(BusMessage, frozen=True, tag=56):
    """A consumer may get one message of so many bytes beyond its window, in the pass in which this comes."""

    consumer: int
    size: int


class Wanted(BusMessage, frozen=True, tag=48):
    """The next message for a consumer does not fit into its window, and waits for a Permit of `size` bytes."""

    consumer: int
    size: int


class Spent(BusMessage, frozen=True, tag=49):
    """A Permit of `size` bytes has ended.

    `used` bytes of what comes from here on do not count for the window: 0 where the message is another's, or gone.
    """

    consumer: int
    size: int
    used: int


class OutOfService(BusMessage, frozen=True, tag=71):
    """Tells that stored data of a queue is damaged, and in `text` what.

    To the coordinator, of durable queues: they cannot be deleted until the store is repaired. To gateways, of all.
    Sent in every new session, and when damage is found.
    """

    queue: int
    text: str


class Publish(BusMessage, frozen=True, tag=20):
    """Append a record batch to queues of this shard. Both sides count the publishes of a session from 1, for Confirmed.

    Attributes:
        queues: ids of the queues.
        batch: the records.
        producer: who published, for deduplication; 0 for nobody. In a transaction, the attempt.
        sequence: the producer's number of the first message; a queue or an attempt takes each number once.
        delay_ms: the batch joins its queues so much later.
        transaction: number of the transaction for which the batch is staged; it joins its queues when that is
            committed. 0 for none.
        unawaited: whether nobody waits for its confirm, which may come with what is said next.
        forwarded: number of the consumer that has it already; TELL to be told when one may (`MayForward`), else 0.
        forwarded_as: the number by which that knows its first message, beside FORWARDED.
    """

    queues: tuple[int, ...]
    batch: RecordBatch
    producer: int = 0
    sequence: int = 0
    delay_ms: int = 0
    transaction: int = 0
    unawaited: bool = False
    forwarded: int = 0
    forwarded_as: int = 0


class Consume(Request[int | None], frozen=True, tag=21):
    """Start a consumer. Answer: the offset where it, or its group, begins to read a stream; nil for other queues.

    Attributes:
        consumer: its number.
        queue: id of the queue.
        prefetch: how many unacked messages it may have; 0 for no limit.
        auto_ack: whether messages are settled when they are sent.
        window: how many bytes may be under way to it.
        priority: consumers with a higher one are served first.
        exclusive: whether it is the queue's only consumer; refused (403) where there is another.
        timeout_ms: a message that is unsettled so long after its delivery returns to the queue; 0 for the queue's own
            consumer timeout.
        settled_late: with `auto_ack`, whether the gateway settles messages when it has handed them to the client.
        overhead: bytes of the window that each message takes beside its record and the names it was published with;
            where 0, only the record counts.
        reading: what it reads of a stream; None for other queues.
        group: whose messages it gets of a stream, as a member; None for a consumer of its own.
    """

    consumer: int
    queue: int
    prefetch: int
    auto_ack: bool
    window: int
    priority: int = 0
    exclusive: bool = False
    timeout_ms: int = 0
    settled_late: bool = False
    overhead: int = 0
    reading: Reading | None = None
    group: GroupReading | None = None


class Cancel(Request[None], frozen=True, tag=22):
    """Deliver no more to a consumer. Its unacked messages stay unacked until settled or released."""

    consumer: int


class Release(BusMessage, frozen=True, tag=23):
    """A consumer (or basic.get client) is gone. Its unacked messages return to their places.

    With `is_unseen` they return as they were: its client has seen none of them.
    """

    consumer: int
    is_unseen: bool = False


class Ack(BusMessage, frozen=True, tag=24):
    """Settle these messages as acked."""

    consumer: int
    ranges: list[tuple[int, int]]


class Nack(BusMessage, frozen=True, tag=25):
    """Return these messages to their places after `delay_ms`; without `requeue`, dead-letter or drop them.

    With `is_unseen` they return as they were, at once: the client has seen none of them, though it may have others.
    With `is_unhandled` its program has not: a group's delivery limit does not count their return.
    """

    consumer: int
    ranges: list[tuple[int, int]]
    requeue: bool
    delay_ms: int = 0
    is_unseen: bool = False
    is_unhandled: bool = False


class Credit(BusMessage, frozen=True, tag=26):
    """So many bytes have been written to a consumer's socket, and as many more may come."""

    consumer: int
    window: int


class Qos(Request[None], frozen=True, tag=27):
    """Change a consumer's prefetch; below 0 it gets nothing. `settled_late` is Consume's, and stays in effect."""

    consumer: int
    prefetch: int
    settled_late: bool = False


class Got(BusMessage, frozen=True, tag=43):
    """The message that a Get asked for, and how many are ready behind it."""

    request: int
    first: int
    redelivered: bool
    batch: RecordBatch
    ready: int
    deliveries: int = 0


class Get(Request[Got | int | None], frozen=True, tag=28):
    """Get one message. Answered by Got, or by nil where there is none.

    A message of more than `room` bytes stays in the queue, and the Answer is its size in bytes.
    """

    consumer: int
    queue: int
    auto_ack: bool
    room: int = 1 << 62


class Purge(Request[int], frozen=True, tag=29):
    """Remove the ready messages. Answer: how many."""

    queue: int


class Counts(Request[tuple[int, int]], frozen=True, tag=30):
    """Count a queue; `is_declared` after a declaration, which is a use. Answer: (ready messages, consumers)."""

    queue: int
    is_declared: bool = False


class AssignQueue(Request[None], frozen=True, tag=31):
    """The shard owns these queues. Answered once it takes messages for them, but `is_change` ends no prepared deletion.

    They may come before the coordinator has them on disk: see Recorded. Here they are before anything for them is.
    """

    queues: list[Queue]
    is_change: bool = False


class DropQueue(Request[int], frozen=True, tag=32):
    """Delete a queue. Answer: how many ready messages it had; 0 where it does not exist."""

    queue: int


class Renew(BusMessage, frozen=True, tag=33):
    """Start the consumer timeout of these messages again: the consumer is still working on them."""

    consumer: int
    ranges: list[tuple[int, int]]


class PrepareDelete(Request[None], frozen=True, tag=35):
    """Prepare to delete a queue, if it has no consumers (`if_unused`) and no ready messages (`if_empty`).

    Answered by nil, and from then on the queue takes no messages until it is dropped or assigned again; but a topic's
    partition does. Refused (406) where it is in use or not empty.
    """

    queue: int
    if_unused: bool
    if_empty: bool


class AtomicCommit(Request[None], frozen=True, tag=55):
    """Carry out publishes and settlements together in one commit, or none of them. Answered by nil once on disk.

    Refused where a queue is not here (404), where a queue does not take all its messages, or where a message to settle
    is not unacked by its consumer any more (406). Consumers whose queue is gone are passed over. The publishes are not
    counted for Confirmed, and have no producer, no delay and no transaction. It is never sent again, because the sender
    cannot know whether it was carried out.
    """

    may_repeat: ClassVar[bool] = False
    publishes: list[Publish]
    settled: list[Ack]
    returned: list[Nack]


class Confirmed(BusMessage, frozen=True, tag=40):
    """All publishes of this session up to number `upto` are stored, except those refused before."""

    upto: int


class PublishRefusal(BusMessage, frozen=True, tag=41):
    """Publish `number` was refused, except its first `taken` messages. Sent before the Confirmed that covers it."""

    number: int
    code: int
    text: str
    taken: int = 0


class Delivered(BusMessage, frozen=True, tag=42):
    """Messages for a consumer, with the sequence numbers from `first` on.

    `deliveries` is how often each was delivered and returned before, where the queue counts that (x-delivery-limit).
    """

    consumer: int
    first: int
    redelivered: bool
    batch: RecordBatch
    deliveries: int = 0


class Cancelled(BusMessage, frozen=True, tag=44):
    """The consumer gets no more: its queue is deleted, or, with a `text`, for the reason that this and `code` tell."""

    consumer: int
    text: str = ""
    code: int = ReplyCode.RESOURCE_ERROR


class Unused(BusMessage, frozen=True, tag=46):
    """Tells the coordinator that a queue's last consumer is gone (auto-delete), or that it is expired (x-expires).

    The coordinator deletes the queue if the shard still finds it unused then (PrepareDelete with `if_unused`).
    """

    queue: int


class Alarm(BusMessage, frozen=True, tag=47):
    """Tells gateways that the shard runs short of a resource ("memory", "disk"), or no longer does.

    Sent in every new session while the alarm is on.
    """

    resource: str
    is_on: bool
    text: str


class Gateways(BusMessage, frozen=True, tag=57):
    """Tells gateways how many of them are connected. Sent in every new session, and to all when that changes."""

    count: int


ShardRequest = (
    Consume
    | StoreRequest
    | Cancel
    | Qos
    | Get
    | Purge
    | Counts
    | Inspect
    | AssignQueue
    | DropQueue
    | PrepareDelete
    | TransactionRequest
    | ReadRequest
    | AtomicCommit
    | CommitOffset
    | StageOffset
    | ResetGroup
    | DropGroup
    | InspectPartition
    | RankQueues
    | QueueStatistics
    | ShardStatistics
)

ToShard = (
    Publish
    | Publishes
    | Release
    | Ack
    | Acks
    | Nack
    | Credit
    | Renew
    | Permit
    | Declined
    | Gone
    | DeadLetterAccepted
    | DeadLetterRefused
    | Expel
    | Recorded
    | Call[ShardRequest]
)

ShardEvent = (
    OutOfService
    | Confirmed
    | PublishRefusal
    | Delivered
    | Deliveries
    | MayForward
    | CommonDelivery
    | CommonForgotten
    | DeliveredPart
    | Got
    | Cancelled
    | DeadLetter
    | Unused
    | Alarm
    | Gateways
    | Refusal
    | Wanted
    | Starved
    | Spent
    | Identity
    | Copying
    | PreparationProgress
)
"""Every message of shards except answers with a result."""

FromShard = ShardEvent | Answer[msgspec.Raw]
