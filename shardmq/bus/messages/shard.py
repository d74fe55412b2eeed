"""To and from shards."""

from typing import ClassVar

import msgspec

from shardmq.bus.messages.base import Answer, BusMessage, Call, Inspect, Refusal, Request
from shardmq.bus.messages.reads import EndReservation, Peek, Read, Reserve, Slices
from shardmq.bus.messages.stores import Copy, Copying, Enroll, Expel, Hold, Identity
from shardmq.message.record_batch import RecordBatch
from shardmq.topology.entities import Queue


class Gone(BusMessage, frozen=True, tag=70):
    """Dead letters of a producer with these numbers, in rising order, are never published again: the queues need not
    tell them from one another. Not answered.
    """

    queues: tuple[int, ...]
    producer: int
    ranges: list[tuple[int, int]]


class Permit(BusMessage, frozen=True, tag=56):
    """There is room for messages of so many bytes beyond a consumer's window, in the pass in which this comes."""

    consumer: int
    size: int


class Wanted(BusMessage, frozen=True, tag=48):
    """The next message for a consumer does not fit into its window: it waits for a Permit of its size, in bytes."""

    consumer: int
    size: int


class Spent(BusMessage, frozen=True, tag=49):
    """A Permit of `size` bytes is over: as many bytes of what is delivered from here on are not of the window as were
    `used`, none where another consumer has the message by now, or it is gone.
    """

    consumer: int
    size: int
    used: int


class OutOfService(BusMessage, frozen=True, tag=71):
    """To the coordinator: something stored of this durable queue is damaged, as `text` says; it cannot be deleted until
    that is repaired. Told on every new session, and when it is found.
    """

    queue: int
    text: str


class Publish(BusMessage, frozen=True, tag=20):
    """Append a run to queues of this shard. Both sides count the publishes of a session from 1, for Confirmed.

    `producer` is who published, 0 for nobody in particular; message i is then its message number `sequence + i`, and a
    queue takes each number once. With `delay_ms` the run joins its queues so much later.

    With a `transaction` (its number) nothing joins any queue before that is committed: it is staged, for the attempt
    that `producer` then is, which takes each number once as well.
    """

    queues: tuple[int, ...]
    batch: RecordBatch
    producer: int = 0
    sequence: int = 0
    delay_ms: int = 0
    transaction: int = 0


class Consume(Request[None], frozen=True, tag=21):
    """Start a consumer. `prefetch` 0 is no limit; `window` is how many bytes may be under way to it.

    Those with a higher `priority` are served first; an `exclusive` one is alone, or refused (403). What is not settled
    `timeout_ms` after it was delivered returns (0: the queue's own time, if it has one). With `auto_ack` messages are
    done with as they go out; with `settled_late` too, when the gateway has handed them to the client, and settles them.
    Each message takes `overhead` bytes of the window beside its record, and the names it was published with; nothing
    beside its record where that is 0.
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


class Cancel(Request[None], frozen=True, tag=22):
    """Deliver no more to a consumer; what it holds stays held until settled, returned or released."""

    consumer: int


class Release(BusMessage, frozen=True, tag=23):
    """A consumer (or basic.get client) is gone: what it holds goes back to its place."""

    consumer: int


class Ack(BusMessage, frozen=True, tag=24):
    """Acked: these messages are done with."""

    consumer: int
    ranges: list[tuple[int, int]]


class Nack(BusMessage, frozen=True, tag=25):
    """Not acked: back to their place, after `delay_ms`; or, without `requeue`, dead-lettered or dropped."""

    consumer: int
    ranges: list[tuple[int, int]]
    requeue: bool
    delay_ms: int = 0


class Credit(BusMessage, frozen=True, tag=26):
    """Bytes that have reached a consumer's socket: as many more may come."""

    consumer: int
    window: int


class Qos(Request[None], frozen=True, tag=27):
    """A consumer's prefetch, changed; below 0 it gets nothing until it is changed again. `settled_late` is as in
    Consume, and stays.
    """

    consumer: int
    prefetch: int
    settled_late: bool = False


class Got(BusMessage, frozen=True, tag=43):
    """The message a Get asked for, and how many are ready behind it."""

    request: int
    first: int
    redelivered: bool
    batch: RecordBatch
    ready: int
    deliveries: int = 0


class Get(Request[Got | int | None], frozen=True, tag=28):
    """One message, if there is one: Got, or an Answer of nil; of its size in bytes where that is over `room`, and it
    stays where it is.
    """

    consumer: int
    queue: int
    auto_ack: bool
    room: int = 1 << 62


class Purge(Request[int], frozen=True, tag=29):
    """Remove what is ready. Answer: how many."""

    queue: int


class Counts(Request[tuple[int, int]], frozen=True, tag=30):
    """Answer: (ready messages, consumers) of a queue; is_declared where somebody has just declared it."""

    queue: int
    is_declared: bool = False


class AssignQueue(Request[None], frozen=True, tag=31):
    """These queues are yours; those you have already stay as they are. Answered once they are on disk."""

    queues: list[Queue]


class DropQueue(Request[int], frozen=True, tag=32):
    """This queue is deleted. Answer: how many ready messages went with it; 0 if it is not there."""

    queue: int


class Renew(BusMessage, frozen=True, tag=33):
    """Still being worked on: the time until they must be settled begins anew."""

    consumer: int
    ranges: list[tuple[int, int]]


class PrepareDelete(Request[None], frozen=True, tag=35):
    """This queue is about to be deleted, if it has no consumers (`if_unused`), no ready messages (`if_empty`): answered
    by nil, and nothing more is taken in for it until it is dropped or assigned again; or refused (406).
    """

    queue: int
    if_unused: bool
    if_empty: bool


class DeadLetterAccepted(BusMessage, frozen=True, tag=36):
    """Dead letters have arrived wherever they were to go, or there was nowhere to go to: they may leave the queue."""

    queue: int
    ranges: list[tuple[int, int]]


class DeadLetterRefused(BusMessage, frozen=True, tag=37):
    """Dead letters have not arrived, or not everywhere: to be sent again a little later."""

    queue: int
    ranges: list[tuple[int, int]]


class Seal(Request[tuple[int, int]], frozen=True, tag=38):
    """An attempt of a transaction is complete: it takes nothing more. Answer: (messages, bytes of their records) that
    it has here, which may be none. Sealing twice is as once.
    """

    transaction: int
    attempt: int


class Prepare(Request[list[int]], frozen=True, tag=39):
    """These attempts are to be committed. Answer: how many messages each has here, in order; -1 for one that is here
    and not sealed.
    """

    transaction: int
    attempts: list[int]


class FollowDecision(Request[None], frozen=True, tag=50):
    """A transaction is decided: what these attempts staged joins its queues, attempt by attempt; what others staged is
    removed, and so is all that comes for it from now on. Answered by nil when that is done and on disk, also where
    nothing was staged. Told again in every session until it was answered.
    """

    transaction: int
    attempts: list[int]


class AtomicCommit(Request[None], frozen=True, tag=55):
    """All of this or nothing, and in one commit: these publishes join their queues, these messages are done with, these
    return. Refused where a queue is not here (404), where one does not take all its messages, or where a consumer does
    not hold any more what is to be done with or to return (406); consumers whose queue is gone hold nothing, and are
    passed over. Answered by nil once it is on disk. The publishes are not counted for Confirmed, and have no producer,
    no delay and no transaction. Not to be sent again: nobody knows whether it was carried out.
    """

    may_repeat: ClassVar[bool] = False
    publishes: list[Publish]
    settled: list[Ack]
    returned: list[Nack]


class Confirmed(BusMessage, frozen=True, tag=40):
    """All publishes of this session up to number `upto` are where they should be, but for those refused before."""

    upto: int


class PublishRefusal(BusMessage, frozen=True, tag=41):
    """Publish `number` was not taken, but for its first `taken` messages. Sent before the Confirmed that passes it."""

    number: int
    code: int
    text: str
    taken: int = 0


class Delivered(BusMessage, frozen=True, tag=42):
    """Messages for a consumer: sequence numbers `first` to `first + run.count`.

    `deliveries`: how often each was delivered in vain before, where the queue counts that (x-delivery-limit).
    """

    consumer: int
    first: int
    redelivered: bool
    batch: RecordBatch
    deliveries: int = 0


class Cancelled(BusMessage, frozen=True, tag=44):
    """The consumer's queue is deleted; or out of service, as `text` then says."""

    consumer: int
    text: str = ""


class DeadLetter(BusMessage, frozen=True, tag=45):
    """Messages of a queue with a dead-letter exchange that died: a gateway routes them on, and answers DeadLettered or
    DeadLetterRefused for every one. `reason` is rejected, expired, maxlen, delivery_limit or ack_timeout.

    They are published as messages `first` and following of `producer`, so that each arrives once, however often it is
    handed over. `gone` are numbers of that producer which are never handed over again: see Gone.
    """

    queue: int
    first: int
    reason: str
    batch: RecordBatch
    deliveries: int = 0
    producer: int = 0
    gone: list[tuple[int, int]] = []


class Unused(BusMessage, frozen=True, tag=46):
    """To the coordinator: this queue's last consumer is gone (auto-delete), or nobody used it for its time (x-expires):
    it is to be deleted, unless that has changed when the shard is asked (Condemn with `if_unused`).
    """

    queue: int


class Alarm(BusMessage, frozen=True, tag=47):
    """To gateways: the machine runs short of something here ("memory", "disk"), or does so no longer. Told on every new
    session while it lasts.
    """

    resource: str
    is_on: bool
    text: str


ShardRequest = (
    Consume
    | Cancel
    | Qos
    | Get
    | Purge
    | Counts
    | Inspect
    | AssignQueue
    | DropQueue
    | Peek
    | PrepareDelete
    | Seal
    | Prepare
    | FollowDecision
    | Slices
    | Read
    | Reserve
    | EndReservation
    | AtomicCommit
    | Enroll
    | Hold
    | Copy
)

ToShard = (
    Publish
    | Release
    | Ack
    | Nack
    | Credit
    | Renew
    | Permit
    | Gone
    | DeadLetterAccepted
    | DeadLetterRefused
    | Expel
    | Call[ShardRequest]
)

ShardEvent = (
    OutOfService
    | Confirmed
    | PublishRefusal
    | Delivered
    | Got
    | Cancelled
    | DeadLetter
    | Unused
    | Alarm
    | Refusal
    | Wanted
    | Spent
    | Identity
    | Copying
)
"""All that shards say, but for answers with a result."""

FromShard = ShardEvent | Answer[msgspec.Raw]
