"""Classes exchange and queue."""

from typing import ClassVar

from shardmq.protocol.amqp.methods.fields import Arguments, Bit, Long, Method, Short, ShortStr


class ExchangeDeclare(Method, frozen=True):
    id: ClassVar = (40, 10)
    name: ClassVar = "exchange.declare"
    ticket: Short
    exchange: ShortStr
    type: ShortStr = "direct"
    passive: Bit = False
    durable: Bit = False
    auto_delete: Bit = False
    internal: Bit = False
    nowait: Bit = False
    arguments: Arguments = {}


class ExchangeDeclareOk(Method, frozen=True):
    id: ClassVar = (40, 11)
    name: ClassVar = "exchange.declare-ok"


class ExchangeDelete(Method, frozen=True):
    id: ClassVar = (40, 20)
    name: ClassVar = "exchange.delete"
    ticket: Short
    exchange: ShortStr
    if_unused: Bit = False
    nowait: Bit = False


class ExchangeDeleteOk(Method, frozen=True):
    id: ClassVar = (40, 21)
    name: ClassVar = "exchange.delete-ok"


class ExchangeBind(Method, frozen=True):
    id: ClassVar = (40, 30)
    name: ClassVar = "exchange.bind"
    ticket: Short
    destination: ShortStr
    source: ShortStr
    routing_key: ShortStr = ""
    nowait: Bit = False
    arguments: Arguments = {}


class ExchangeBindOk(Method, frozen=True):
    id: ClassVar = (40, 31)
    name: ClassVar = "exchange.bind-ok"


class ExchangeUnbind(Method, frozen=True):
    id: ClassVar = (40, 40)
    name: ClassVar = "exchange.unbind"
    ticket: Short
    destination: ShortStr
    source: ShortStr
    routing_key: ShortStr = ""
    nowait: Bit = False
    arguments: Arguments = {}


class ExchangeUnbindOk(Method, frozen=True):
    id: ClassVar = (40, 51)
    name: ClassVar = "exchange.unbind-ok"


class QueueDeclare(Method, frozen=True):
    id: ClassVar = (50, 10)
    name: ClassVar = "queue.declare"
    ticket: Short
    queue: ShortStr = ""
    passive: Bit = False
    durable: Bit = False
    exclusive: Bit = False
    auto_delete: Bit = False
    nowait: Bit = False
    arguments: Arguments = {}


class QueueDeclareOk(Method, frozen=True):
    id: ClassVar = (50, 11)
    name: ClassVar = "queue.declare-ok"
    queue: ShortStr
    message_count: Long
    consumer_count: Long


class QueueBind(Method, frozen=True):
    id: ClassVar = (50, 20)
    name: ClassVar = "queue.bind"
    ticket: Short
    queue: ShortStr
    exchange: ShortStr
    routing_key: ShortStr = ""
    nowait: Bit = False
    arguments: Arguments = {}


class QueueBindOk(Method, frozen=True):
    id: ClassVar = (50, 21)
    name: ClassVar = "queue.bind-ok"


class QueuePurge(Method, frozen=True):
    id: ClassVar = (50, 30)
    name: ClassVar = "queue.purge"
    ticket: Short
    queue: ShortStr
    nowait: Bit = False


class QueuePurgeOk(Method, frozen=True):
    id: ClassVar = (50, 31)
    name: ClassVar = "queue.purge-ok"
    message_count: Long


class QueueDelete(Method, frozen=True):
    id: ClassVar = (50, 40)
    name: ClassVar = "queue.delete"
    ticket: Short
    queue: ShortStr
    if_unused: Bit = False
    if_empty: Bit = False
    nowait: Bit = False


class QueueDeleteOk(Method, frozen=True):
    id: ClassVar = (50, 41)
    name: ClassVar = "queue.delete-ok"
    message_count: Long


class QueueUnbind(Method, frozen=True):
    id: ClassVar = (50, 50)
    name: ClassVar = "queue.unbind"
    ticket: Short
    queue: ShortStr
    exchange: ShortStr
    routing_key: ShortStr = ""
    arguments: Arguments = {}


class QueueUnbindOk(Method, frozen=True):
    id: ClassVar = (50, 51)
    name: ClassVar = "queue.unbind-ok"
