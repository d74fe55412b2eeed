"""Classes exchange and queue."""

from shardmq.protocol.amqp.methods.fields import Arguments, Bit, Long, MessageCount, Method, Short, ShortStr, method


@method(40, 10, synchronous=True)
class ExchangeDeclare(Method, frozen=True):
    """Create an exchange, or check that it is there."""

    ticket: Short
    exchange: ShortStr
    type: ShortStr = "direct"
    passive: Bit = False
    durable: Bit = False
    auto_delete: Bit = False
    internal: Bit = False
    nowait: Bit = False
    arguments: Arguments = {}


@method(40, 11)
class ExchangeDeclareOk(Method, frozen=True):
    """The exchange is there."""


@method(40, 20, synchronous=True)
class ExchangeDelete(Method, frozen=True):
    """Delete an exchange and its bindings."""

    ticket: Short
    exchange: ShortStr
    if_unused: Bit = False
    nowait: Bit = False


@method(40, 21)
class ExchangeDeleteOk(Method, frozen=True):
    """The exchange is deleted."""


@method(40, 30, synchronous=True)
class ExchangeBind(Method, frozen=True):
    """Bind an exchange to another (extension of RabbitMQ)."""

    ticket: Short
    destination: ShortStr
    source: ShortStr
    routing_key: ShortStr = ""
    nowait: Bit = False
    arguments: Arguments = {}


@method(40, 31)
class ExchangeBindOk(Method, frozen=True):
    """The binding is there."""


@method(40, 40, synchronous=True)
class ExchangeUnbind(Method, frozen=True):
    """Delete a binding between exchanges (extension of RabbitMQ)."""

    ticket: Short
    destination: ShortStr
    source: ShortStr
    routing_key: ShortStr = ""
    nowait: Bit = False
    arguments: Arguments = {}


@method(40, 51)
class ExchangeUnbindOk(Method, frozen=True):
    """The binding is deleted. Its number is 51, and not 41, in the specification, too."""


@method(50, 10, synchronous=True)
class QueueDeclare(Method, frozen=True):
    """Create a queue, or check that it is there; an empty name asks the server for one."""

    ticket: Short
    queue: ShortStr = ""
    passive: Bit = False
    durable: Bit = False
    exclusive: Bit = False
    auto_delete: Bit = False
    nowait: Bit = False
    arguments: Arguments = {}


@method(50, 11)
class QueueDeclareOk(Method, frozen=True):
    """The queue is there, with so many ready messages and consumers."""

    queue: ShortStr
    message_count: MessageCount
    consumer_count: Long


@method(50, 20, synchronous=True)
class QueueBind(Method, frozen=True):
    """Bind a queue to an exchange."""

    ticket: Short
    queue: ShortStr
    exchange: ShortStr
    routing_key: ShortStr = ""
    nowait: Bit = False
    arguments: Arguments = {}


@method(50, 21)
class QueueBindOk(Method, frozen=True):
    """The binding is there."""


@method(50, 30, synchronous=True)
class QueuePurge(Method, frozen=True):
    """Delete the ready messages of a queue."""

    ticket: Short
    queue: ShortStr
    nowait: Bit = False


@method(50, 31)
class QueuePurgeOk(Method, frozen=True):
    """So many messages are deleted."""

    message_count: MessageCount


@method(50, 40, synchronous=True)
class QueueDelete(Method, frozen=True):
    """Delete a queue with its messages and bindings."""

    ticket: Short
    queue: ShortStr
    if_unused: Bit = False
    if_empty: Bit = False
    nowait: Bit = False


@method(50, 41)
class QueueDeleteOk(Method, frozen=True):
    """The queue is deleted, with so many messages."""

    message_count: MessageCount


@method(50, 50, synchronous=True)
class QueueUnbind(Method, frozen=True):
    """Delete a binding of a queue."""

    ticket: Short
    queue: ShortStr
    exchange: ShortStr
    routing_key: ShortStr = ""
    arguments: Arguments = {}


@method(50, 51)
class QueueUnbindOk(Method, frozen=True):
    """The binding is deleted."""
