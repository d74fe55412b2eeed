"""shardmq for asyncio: the verbs of `shardmq`, as coroutines. Runs on asyncio's event loop and on uvloop.

async with shardmq.aio.connect("shardmq://guest:guest@127.0.0.1:5672/") as connection:
    channel = await connection.channel()
    await channel.queue_declare("work", durable=True)
    await channel.basic_publish("", "work", b"...")
    async for message in channel.consume("work"):
        message.ack()
"""

from shardmq.client.aio.channel import Channel
from shardmq.client.aio.connection import Connection, connect
from shardmq.client.aio.groups import GroupConsumer
from shardmq.client.aio.publisher import Publisher
from shardmq.client.aio.transaction import Transaction
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
    "connect",
]
