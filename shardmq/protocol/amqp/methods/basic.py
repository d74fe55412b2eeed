"""Class basic."""

from typing import ClassVar

from shardmq.protocol.amqp.methods.fields import Arguments, Bit, Long, LongLong, Method, Short, ShortStr


class BasicQos(Method, frozen=True):
    id: ClassVar = (60, 10)
    name: ClassVar = "basic.qos"
    prefetch_size: Long
    prefetch_count: Short
    is_global: Bit = False


class BasicQosOk(Method, frozen=True):
    id: ClassVar = (60, 11)
    name: ClassVar = "basic.qos-ok"


class BasicConsume(Method, frozen=True):
    id: ClassVar = (60, 20)
    name: ClassVar = "basic.consume"
    ticket: Short
    queue: ShortStr
    consumer_tag: ShortStr = ""
    no_local: Bit = False
    no_ack: Bit = False
    exclusive: Bit = False
    nowait: Bit = False
    arguments: Arguments = {}


class BasicConsumeOk(Method, frozen=True):
    id: ClassVar = (60, 21)
    name: ClassVar = "basic.consume-ok"
    consumer_tag: ShortStr


class BasicCancel(Method, frozen=True):
    id: ClassVar = (60, 30)
    name: ClassVar = "basic.cancel"
    consumer_tag: ShortStr
    nowait: Bit = False


class BasicCancelOk(Method, frozen=True):
    id: ClassVar = (60, 31)
    name: ClassVar = "basic.cancel-ok"
    consumer_tag: ShortStr


class BasicPublish(Method, frozen=True):
    id: ClassVar = (60, 40)
    name: ClassVar = "basic.publish"
    ticket: Short
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    mandatory: Bit = False
    immediate: Bit = False


class BasicReturn(Method, frozen=True):
    id: ClassVar = (60, 50)
    name: ClassVar = "basic.return"
    reply_code: Short
    reply_text: ShortStr
    exchange: ShortStr
    routing_key: ShortStr


class BasicDeliver(Method, frozen=True):
    id: ClassVar = (60, 60)
    name: ClassVar = "basic.deliver"
    consumer_tag: ShortStr
    delivery_tag: LongLong
    redelivered: Bit
    exchange: ShortStr
    routing_key: ShortStr


class BasicGet(Method, frozen=True):
    id: ClassVar = (60, 70)
    name: ClassVar = "basic.get"
    ticket: Short
    queue: ShortStr
    no_ack: Bit = False


class BasicGetOk(Method, frozen=True):
    id: ClassVar = (60, 71)
    name: ClassVar = "basic.get-ok"
    delivery_tag: LongLong
    redelivered: Bit
    exchange: ShortStr
    routing_key: ShortStr
    message_count: Long


class BasicGetEmpty(Method, frozen=True):
    id: ClassVar = (60, 72)
    name: ClassVar = "basic.get-empty"
    cluster_id: ShortStr = ""


class BasicAck(Method, frozen=True):
    id: ClassVar = (60, 80)
    name: ClassVar = "basic.ack"
    delivery_tag: LongLong
    multiple: Bit = False


class BasicReject(Method, frozen=True):
    id: ClassVar = (60, 90)
    name: ClassVar = "basic.reject"
    delivery_tag: LongLong
    requeue: Bit = True


class BasicRecoverAsync(Method, frozen=True):
    id: ClassVar = (60, 100)
    name: ClassVar = "basic.recover-async"
    requeue: Bit = False


class BasicRecover(Method, frozen=True):
    id: ClassVar = (60, 110)
    name: ClassVar = "basic.recover"
    requeue: Bit = False


class BasicRecoverOk(Method, frozen=True):
    id: ClassVar = (60, 111)
    name: ClassVar = "basic.recover-ok"


class BasicNack(Method, frozen=True):
    id: ClassVar = (60, 120)
    name: ClassVar = "basic.nack"
    delivery_tag: LongLong
    multiple: Bit = False
    requeue: Bit = True
