"""Methods as raw clients say them, without what nobody looks at any more (tickets)."""

from collections.abc import Iterator
from functools import partial

from shardmq.protocol.amqp.methods.basic import BasicConsume, BasicDeliver, BasicGet, BasicPublish
from shardmq.protocol.amqp.methods.connection import AccessRequest, AccessRequestOk
from shardmq.protocol.amqp.methods.fields import Method
from shardmq.protocol.amqp.methods.topology import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
)
from tests.gateway.amqp.rawclient import RawClient, Said

declare_exchange = partial(ExchangeDeclare, 0)
delete_exchange = partial(ExchangeDelete, 0)
bind_exchange = partial(ExchangeBind, 0)
unbind_exchange = partial(ExchangeUnbind, 0)
declare_queue = partial(QueueDeclare, 0)
bind_queue = partial(QueueBind, 0)
unbind_queue = partial(QueueUnbind, 0)
purge_queue = partial(QueuePurge, 0)
delete_queue = partial(QueueDelete, 0)
consume = partial(BasicConsume, 0)
get = partial(BasicGet, 0)
publish = partial(BasicPublish, 0)


def answers(client: RawClient, *methods: Method) -> list[Method]:
    """What the broker says to these, up to the answer to a question that comes behind them."""
    client.send(1, *methods, AccessRequest(""))
    said = [client.hear().method]
    while not isinstance(said[-1], AccessRequestOk):
        said.append(client.hear().method)
    return said[:-1]


def deliveries(client: RawClient, count: int) -> Iterator[tuple[str, int, bool, bytes]]:
    """The next deliveries: consumer, tag, whether it is redelivered, body."""
    for _ in range(count):
        said = client.hear()
        yield delivery(said)


def delivery(said: Said) -> tuple[str, int, bool, bytes]:
    """A delivery: consumer, tag, whether it is redelivered, body."""
    assert isinstance(said.method, BasicDeliver), said.method
    return said.method.consumer_tag, said.method.delivery_tag, said.method.redelivered, said.body


def fill(client: RawClient, queue: str, *bodies: bytes) -> str:
    """Declare a queue and put messages into it, all of which are ready then; returns its name. "" is one of its own."""
    declared = client.ask(declare_queue(queue, exclusive=not queue), QueueDeclareOk)
    client.publish(publish("", declared.queue), *bodies)
    while declared.message_count < len(bodies):
        declared = client.ask(declare_queue(declared.queue, passive=True), QueueDeclareOk)
    return declared.queue


def settled(client: RawClient, *queues: str) -> list[tuple[str, int, bool, bytes]]:
    """All deliveries on their way from these queues, once nothing more comes of what was said before: what a shard
    sends for something it is told comes before its answer to the second question behind that.
    """
    came = []
    for queue in queues * 2:
        client.send(1, declare_queue(queue, passive=True))
        while not isinstance((said := client.hear()).method, QueueDeclareOk):
            came.append(delivery(said))
    return came
