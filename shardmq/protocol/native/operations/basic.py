"""Publishing, consuming, delivering, settling, confirms, returns."""

from typing import Annotated, Final

from msgspec import Meta

from shardmq.limits import DELAY_MS_MAX, PREFETCH_MAX, RECORD_BATCH_RECORDS_MAX
from shardmq.message.record_batch import KEYED, MANDATORY, PERSISTENT
from shardmq.protocol.native.operations.fields import (
    AfterLoss,
    Arguments,
    Channel,
    ClientRequest,
    Name,
    Operation,
    Tag,
    TagRanges,
)

FLAGS: Final = PERSISTENT | MANDATORY | KEYED
"""What a publish may say of its messages."""


class BasicPublish(Operation, frozen=True):
    """Publish `count` records to one exchange with one routing key.

    The answer is not Ok, but one BasicConfirm or BasicRefused, in any order. `flags` are 1 persistent, 2 mandatory: a
    message that no queue takes comes back by BasicReturn, before the confirm, and 32 keyed: each record has a routing
    key of its own, and the publish none, and takes KEYED_NUMBERS numbers for each. With `delay_ms`, messages join their
    queues so much later. `producer` and `sequence` make it harmless to publish again: message i is number `sequence +
    i` of that producer, and a queue takes each number once. In each queue, a producer's numbers rise; 0 is none.

    `growth` is the newest that the client had heard of when it sent the messages first, from the answer to
    ConnectionOpen or TopicsGrown: topics have no more partitions for them than they had then. 0 is for all there are.

    With a `transaction`, the number from TransactionBegin, messages are staged for the attempt that `producer` names
    then. They are confirmed when they are on disk, and in no queue before the transaction is committed.
    """

    request: Annotated[int, Meta(ge=1, le=2**63 - 1)]  # ranges of requests in confirms begin at 1
    channel: Channel
    exchange: Name
    routing_key: Name
    flags: Annotated[int, Meta(ge=0, le=FLAGS)]
    count: Annotated[int, Meta(ge=1, le=RECORD_BATCH_RECORDS_MAX)]
    records: bytes
    delay_ms: Annotated[int, Meta(ge=0, le=DELAY_MS_MAX)] = 0
    producer: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    sequence: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    transaction: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    growth: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0

    def __post_init__(self) -> None:
        if self.flags & ~FLAGS:
            raise ValueError(f"flags {self.flags} of a publish: there are 1, 2 and 32")


class BasicReturn(Operation, frozen=True):
    """Mandatory messages of a publish that no queue took (code 312); the confirm follows."""

    channel: Channel
    request: int
    code: int
    text: str
    exchange: str
    routing_key: str
    flags: int
    count: int
    records: bytes


class BasicConfirm(Operation, frozen=True):
    """All messages of these publishes are in the queues they were routed to, on disk where they are durable."""

    channel: Channel
    requests: TagRanges


class BasicRefused(Operation, frozen=True):
    """Messages of these publishes are not stored, or not certain to be.

    For a single publish, its first `taken` messages are in their queues.
    """

    channel: Channel
    requests: TagRanges
    code: int
    text: str
    taken: int = 0


class BasicConsume(ClientRequest, frozen=True):
    """Start a consumer. The answer is Ok: `{"consumer"}`, its tag, which the server chooses for "".

    `prefetch` 0 is no limit. `arguments` may have `x-priority` (int) and `x-consumer-timeout` (ms). An `exclusive`
    consumer is the only one of its queue, or refused (403).
    """

    after_loss = AfterLoss.ASK_AGAIN

    queue: Name
    consumer: Name = ""
    auto_ack: bool = False
    prefetch: Annotated[int, Meta(ge=0, le=PREFETCH_MAX)] = 0
    arguments: Arguments = {}
    exclusive: bool = False


class BasicCancel(ClientRequest, frozen=True):
    """End a consumer. The answer is Ok, after its last delivery. Its unacked deliveries stay until they are settled."""

    after_loss = AfterLoss.DONE

    consumer: Name


class BasicCancelled(Operation, frozen=True):
    """The consumer gets no more deliveries: its queue is deleted if `code` is 0, otherwise `text` says why."""

    channel: Channel
    consumer: Name
    code: int = 0
    text: str = ""


class BasicDeliver(Operation, frozen=True):
    """Messages for a consumer; message i has the delivery tag `tag + i` and the id (`origin`, `serial + i`).

    `deliveries` is how often each was delivered in vain before, in queues with x-delivery-limit. Message i has the
    offset `offset + i` in its stream; other queues have none. `partition` is the number of the partition that the
    message was read from, for consumers of groups.
    """

    channel: Channel
    consumer: Name
    tag: Tag
    redelivered: bool
    exchange: Name
    routing_key: Name
    flags: int
    timestamp_ms: int
    origin: int
    serial: int
    count: int
    records: bytes
    deliveries: int = 0
    offset: int | None = None
    partition: int | None = None


class BasicGet(ClientRequest, frozen=True):
    """Take one message. The answer is Ok: nil, or the fields of a BasicDeliver (consumer "") and `messages` ready."""

    queue: Name
    auto_ack: bool = False


class BasicAck(Operation, frozen=True):
    """Acknowledge deliveries."""

    channel: Channel
    tags: TagRanges


class BasicNack(Operation, frozen=True):
    """Requeue deliveries with `requeue`, after `delay_ms`; dead-letter or drop them without."""

    channel: Channel
    tags: TagRanges
    requeue: bool = True
    delay_ms: Annotated[int, Meta(ge=0, le=DELAY_MS_MAX)] = 0


class BasicPutBack(Operation, frozen=True):
    """Requeue deliveries that the program has not seen: a group's delivery limit does not count it."""

    channel: Channel
    tags: TagRanges


class BasicRenew(Operation, frozen=True):
    """Start the acknowledgement timeout of deliveries anew."""

    channel: Channel
    tags: TagRanges


class BasicRecover(ClientRequest, frozen=True):
    """Requeue all unacked deliveries of the channel. The answer is Ok."""

    after_loss = AfterLoss.DONE


class BasicQos(ClientRequest, frozen=True):
    """Change the prefetch of a running consumer. The answer is Ok."""

    after_loss = AfterLoss.ASK_AGAIN

    consumer: Name
    prefetch: Annotated[int, Meta(ge=0, le=PREFETCH_MAX)]
