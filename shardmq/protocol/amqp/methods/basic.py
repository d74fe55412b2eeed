"""Class basic."""

from shardmq.protocol.amqp.methods.fields import (
    Arguments,
    Bit,
    Long,
    LongLong,
    MessageCount,
    Method,
    Short,
    ShortStr,
    method,
)


@method(60, 10, synchronous=True)
class BasicQos(Method, frozen=True):
    """Set the prefetch of consumers that follow, or of the whole channel."""

    prefetch_size: Long
    prefetch_count: Short
    is_global: Bit = False


@method(60, 11)
class BasicQosOk(Method, frozen=True):
    """The prefetch is set."""


@method(60, 20, synchronous=True)
class BasicConsume(Method, frozen=True):
    """Start a consumer; an empty tag asks the server for one."""

    ticket: Short
    queue: ShortStr
    consumer_tag: ShortStr = ""
    no_local: Bit = False
    no_ack: Bit = False
    exclusive: Bit = False
    nowait: Bit = False
    arguments: Arguments = {}


@method(60, 21)
class BasicConsumeOk(Method, frozen=True):
    """The consumer is started."""

    consumer_tag: ShortStr


@method(60, 30, synchronous=True)
class BasicCancel(Method, frozen=True):
    """End a consumer; sent by the server, too, when its queue is gone."""

    consumer_tag: ShortStr
    nowait: Bit = False


@method(60, 31)
class BasicCancelOk(Method, frozen=True):
    """The consumer has ended."""

    consumer_tag: ShortStr


@method(60, 40)
class BasicPublish(Method, frozen=True):
    """Publish the message whose content follows."""

    ticket: Short
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    mandatory: Bit = False
    immediate: Bit = False


@method(60, 50)
class BasicReturn(Method, frozen=True):
    """A mandatory message that no queue took comes back; its content follows."""

    reply_code: Short
    reply_text: ShortStr
    exchange: ShortStr
    routing_key: ShortStr


@method(60, 60)
class BasicDeliver(Method, frozen=True):
    """A message for a consumer; its content follows."""

    consumer_tag: ShortStr
    delivery_tag: LongLong
    redelivered: Bit
    exchange: ShortStr
    routing_key: ShortStr


@method(60, 70, synchronous=True)
class BasicGet(Method, frozen=True):
    """Ask for one message."""

    ticket: Short
    queue: ShortStr
    no_ack: Bit = False


@method(60, 71)
class BasicGetOk(Method, frozen=True):
    """The message that was asked for; its content follows."""

    delivery_tag: LongLong
    redelivered: Bit
    exchange: ShortStr
    routing_key: ShortStr
    message_count: MessageCount


@method(60, 72)
class BasicGetEmpty(Method, frozen=True):
    """The queue has no ready message."""

    cluster_id: ShortStr = ""


@method(60, 80)
class BasicAck(Method, frozen=True):
    """A delivery is dealt with, or all up to it; from the server: a publish is confirmed."""

    delivery_tag: LongLong
    multiple: Bit = False


@method(60, 90)
class BasicReject(Method, frozen=True):
    """Give a delivery back, or dead-letter it."""

    delivery_tag: LongLong
    requeue: Bit = True


@method(60, 100)
class BasicRecoverAsync(Method, frozen=True):
    """As basic.recover, without an answer; deprecated."""

    requeue: Bit = False


@method(60, 110, synchronous=True)
class BasicRecover(Method, frozen=True):
    """Give back all unacked deliveries of the channel."""

    requeue: Bit = False


@method(60, 111)
class BasicRecoverOk(Method, frozen=True):
    """The deliveries are given back."""


@method(60, 120)
class BasicNack(Method, frozen=True):
    """As basic.reject, for one delivery or all up to it; from the server: a publish is refused."""

    delivery_tag: LongLong
    multiple: Bit = False
    requeue: Bit = True
