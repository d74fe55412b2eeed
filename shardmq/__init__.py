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
    from shardmq.client.api.message import Batch, Message
    from shardmq.client.api.metrics import Metrics
    from shardmq.client.api.recovery import Recovered, Recovery
    from shardmq.client.api.results import (
        DeathGroup,
        DeathsPage,
        QueueDeclared,
        QueuePlace,
        QueueSlice,
        Reserved,
        Sealed,
        SearchPage,
    )
    from shardmq.client.api.returns import ReturnedMessage
    from shardmq.client.api.statistics import ListQuery
    from shardmq.client.api.topics import Pulled
    from shardmq.client.sync.channel import Channel
    from shardmq.client.sync.connection import Connection, connect
    from shardmq.client.sync.groups import GroupConsumer
    from shardmq.client.sync.publisher import Publisher
    from shardmq.client.sync.transaction import Transaction
    from shardmq.message.properties import Properties
    from shardmq.search.filters import DeathFilters, SearchFilters

__all__ = [
    "Batch",
    "Channel",
    "Connection",
    "DeathFilters",
    "DeathGroup",
    "DeathsPage",
    "GroupConsumer",
    "ListQuery",
    "Message",
    "Metrics",
    "Properties",
    "Publisher",
    "Pulled",
    "QueueDeclared",
    "QueuePlace",
    "QueueSlice",
    "Recovered",
    "Recovery",
    "Reserved",
    "ReturnedMessage",
    "Sealed",
    "SearchFilters",
    "SearchPage",
    "Transaction",
    "aio",
    "connect",
    "errors",
]

_SUBMODULES = ("aio", "errors")
_DEFINED_IN = {
    "Batch": "shardmq.client.api.message",
    "Channel": "shardmq.client.sync.channel",
    "Connection": "shardmq.client.sync.connection",
    "DeathFilters": "shardmq.search.filters",
    "DeathGroup": "shardmq.client.api.results",
    "DeathsPage": "shardmq.client.api.results",
    "GroupConsumer": "shardmq.client.sync.groups",
    "ListQuery": "shardmq.client.api.statistics",
    "Message": "shardmq.client.api.message",
    "Metrics": "shardmq.client.api.metrics",
    "Properties": "shardmq.message.properties",
    "Publisher": "shardmq.client.sync.publisher",
    "QueueDeclared": "shardmq.client.api.results",
    "QueuePlace": "shardmq.client.api.results",
    "QueueSlice": "shardmq.client.api.results",
    "Recovered": "shardmq.client.api.recovery",
    "Recovery": "shardmq.client.api.recovery",
    "Reserved": "shardmq.client.api.results",
    "ReturnedMessage": "shardmq.client.api.returns",
    "Pulled": "shardmq.client.api.topics",
    "Sealed": "shardmq.client.api.results",
    "SearchFilters": "shardmq.search.filters",
    "SearchPage": "shardmq.client.api.results",
    "Transaction": "shardmq.client.sync.transaction",
    "connect": "shardmq.client.sync.connection",
}


def __getattr__(name: str) -> object:
    # The broker's own processes import this package too; the client is loaded when somebody asks for it.
    if name in _SUBMODULES:
        return import_module(f"shardmq.{name}")
    if name not in _DEFINED_IN:
        raise AttributeError(f"module 'shardmq' has no attribute '{name}'")
    found: object = getattr(import_module(_DEFINED_IN[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
