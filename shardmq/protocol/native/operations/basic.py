"""Publishing, consuming, delivering, settling, confirms, returns."""

from typing import Annotated

from msgspec import Meta

from shardmq.limits import DELAY_MS_MAX, PREFETCH_MAX, RUN_RECORDS_MAX
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


class BasicPublish(Operation, frozen=True):
    """A run of `count` records to one exchange with one key. Never answered by Ok: confirmed by BasicConfirm or
    refused by BasicRefused, in any order.

    `flags`: 1 persistent, 2 mandatory (what no queue takes comes back by BasicReturn, before the confirm). With
    `delay_ms` they join their queues so much later. `producer` and `sequence` make resending harmless: message i is
    number `sequence + i` of that producer, and a queue takes each number once; 0 is none. Sequences of a producer rise.

    With a `transaction`, the number that TransactionBegin gave, they are staged there for the attempt that `producer`
    then names: confirmed when they are on disk, in no queue before the transaction is committed.
    """

    request: Annotated[int, Meta(ge=1, le=2**63 - 1)]  # ranges of requests in answers begin at 1
    channel: Channel
    exchange: Name
    routing_key: Name
    flags: Annotated[int, Meta(ge=0, le=3)]
    count: Annotated[int, Meta(ge=1, le=RUN_RECORDS_MAX)]
    records: bytes
    delay_ms: Annotated[int, Meta(ge=0, le=DELAY_MS_MAX)] = 0
    producer: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    sequence: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    transaction: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0


class BasicReturn(Operation, frozen=True):
    """Mandatory messages of publish `request` that no queue took (code 312). The publish is confirmed behind it."""

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
    """Every message of these publishes is in every queue it was routed to, on disk where it is to be durable."""

    channel: Channel
    requests: TagRanges


class BasicRefused(Operation, frozen=True):
    """These publishes were not taken, or not by all queues they were routed to; but for the first `taken` messages of
    the one publish it then is about.
    """

    channel: Channel
    requests: TagRanges
    code: int
    text: str
    taken: int = 0


class BasicConsume(ClientRequest, frozen=True):
    """Ok: `{"consumer"}`, its tag, made up by the server when "" was given. `prefetch` 0 is no limit.

    `arguments` may have `x-priority` (int) and `x-consumer-timeout` (ms). An `exclusive` one is alone on its queue,
    or refused (403).
    """

    after_loss = AfterLoss.ASK_AGAIN

    queue: Name
    consumer: Name = ""
    auto_ack: bool = False
    prefetch: Annotated[int, Meta(ge=0, le=PREFETCH_MAX)] = 0
    arguments: Arguments = {}
    exclusive: bool = False


class BasicCancel(ClientRequest, frozen=True):
    """No more deliveries after the Ok. What is unacked stays so until it is acked or the channel closes."""

    after_loss = AfterLoss.DONE

    consumer: Name


class BasicCancelled(Operation, frozen=True):
    """From the server: the consumer gets nothing more. Its queue is deleted where `code` is 0; else `text` says why."""

    channel: Channel
    consumer: Name
    code: int = 0
    text: str = ""


class BasicDeliver(Operation, frozen=True):
    """`count` messages for a consumer; message i has delivery tag `tag + i` and id (`origin`, `serial + i`).
    `deliveries`: how often each was delivered in vain before, in queues with x-delivery-limit.
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


class BasicGet(ClientRequest, frozen=True):
    """Ok: nil when the queue is empty, else the fields of a BasicDeliver (consumer "") and `messages` still ready."""

    queue: Name
    auto_ack: bool = False


class BasicAck(Operation, frozen=True):
    """These deliveries are done with."""

    channel: Channel
    tags: TagRanges


class BasicNack(Operation, frozen=True):
    """These deliveries are not: back to their place in the queue with `requeue`, after `delay_ms`; else dead-lettered
    or dropped.
    """

    channel: Channel
    tags: TagRanges
    requeue: bool = True
    delay_ms: Annotated[int, Meta(ge=0, le=DELAY_MS_MAX)] = 0


class BasicRenew(Operation, frozen=True):
    """These deliveries are still being worked on: their acknowledgement timeout begins anew."""

    channel: Channel
    tags: TagRanges


class BasicRecover(ClientRequest, frozen=True):
    """Everything unacked on the channel returns to its place and is delivered again. Answered by Ok."""

    after_loss = AfterLoss.DONE


class BasicQos(ClientRequest, frozen=True):
    """A consumer's prefetch, changed while it runs. Answered by Ok."""

    after_loss = AfterLoss.ASK_AGAIN

    consumer: Name
    prefetch: Annotated[int, Meta(ge=0, le=PREFETCH_MAX)]
