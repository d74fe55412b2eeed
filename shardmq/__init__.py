"""shardmq: a sharded message broker.

    with shardmq.connect("shardmq://guest:guest@127.0.0.1:5672/") as connection:
        channel = connection.channel()
        channel.queue_declare("work", durable=True)
        channel.basic_publish("", "work", b"...")
        for message in channel.consume("work"):
            message.ack()

The same verbs as coroutines are in `shardmq.aio`; what can go wrong is in `shardmq.errors`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardmq import aio, errors
    from shardmq.client.channel import Channel
    from shardmq.client.connection import Connection, connect
    from shardmq.client.deliveries import Batch, Message
    from shardmq.client.meter import Metrics
    from shardmq.client.publisher import Publisher
    from shardmq.client.recovery import Recovered, Recovery
    from shardmq.client.results import QueueDeclared, QueueSlice, Reserved, Sealed
    from shardmq.client.returns import ReturnedMessage
    from shardmq.client.transaction import Transaction
    from shardmq.records import Properties

__all__ = [
    "Batch",
    "Channel",
    "Connection",
    "Message",
    "Metrics",
    "Properties",
    "Publisher",
    "QueueDeclared",
    "QueueSlice",
    "Recovered",
    "Recovery",
    "Reserved",
    "ReturnedMessage",
    "Sealed",
    "Transaction",
    "aio",
    "connect",
    "errors",
]

_ROOMS = ("aio", "errors")
_HOMES = {
    "Batch": "shardmq.client.deliveries",
    "Channel": "shardmq.client.channel",
    "Connection": "shardmq.client.connection",
    "Message": "shardmq.client.deliveries",
    "Metrics": "shardmq.client.meter",
    "Properties": "shardmq.records",
    "Publisher": "shardmq.client.publisher",
    "QueueDeclared": "shardmq.client.results",
    "QueueSlice": "shardmq.client.results",
    "Recovered": "shardmq.client.recovery",
    "Recovery": "shardmq.client.recovery",
    "Reserved": "shardmq.client.results",
    "ReturnedMessage": "shardmq.client.returns",
    "Sealed": "shardmq.client.results",
    "Transaction": "shardmq.client.transaction",
    "connect": "shardmq.client.connection",
}


def __getattr__(name: str) -> object:
    # The broker's own processes import this package too; the client is loaded when somebody asks for it.
    if name in _ROOMS:
        return import_module(f"shardmq.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'shardmq' has no attribute '{name}'")
    found: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
