"""aio-pika on streams: readers from anywhere, iterators, filters, robust connections, super streams."""

import asyncio
import datetime
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage, AbstractQueue, AbstractRobustConnection
from aio_pika.exceptions import ChannelPreconditionFailed
from pamqp.common import Arguments

import shardmq

from .test_aio_pika import SECONDS, run

MESSAGES = 100
STREAM: Arguments = {"x-queue-type": "stream", "x-max-age": "7D"}


async def stream(connection: AbstractRobustConnection, name: str) -> AbstractQueue:
    """A stream with a hundred messages, every other one tagged "odd"."""
    channel = await connection.channel()
    queue = await channel.declare_queue(name, durable=True, arguments=STREAM)
    for number in range(MESSAGES):
        headers: Any = {"x-stream-filter-value": "odd" if number % 2 else "even"}
        await channel.default_exchange.publish(aio_pika.Message(b"%d" % number, headers=headers), name, timeout=SECONDS)
    return queue


def offset_of(message: AbstractIncomingMessage) -> int:
    offset = message.headers["x-stream-offset"]
    assert isinstance(offset, int)
    return offset


async def read(connection: AbstractRobustConnection, name: str, count: int, **arguments: Any) -> list[int]:
    """The offsets of the first messages that an iterator hands out."""
    told = {key.replace("_", "-"): value for key, value in arguments.items()}
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=10)
    queue = await channel.get_queue(name, ensure=False)
    offsets: list[int] = []
    async with queue.iterator(arguments=told) as messages:
        async for message in messages:
            offsets.append(offset_of(message))
            await message.ack()
            if len(offsets) == count:
                break
    await channel.close()
    return offsets


@pytest.mark.parametrize(
    ("begin", "first"),
    [
        ("first", 0),
        ("last", 99),
        (90, 90),
        (-5, 0),
        ("1h", 0),
        (datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), 0),
    ],
)
def test_iterators_begin_where_they_say(url: str, begin: Any, first: int) -> None:
    async def scenario(connection: AbstractRobustConnection) -> list[int]:
        queue = await stream(connection, "aio.stream")
        offsets = await read(connection, queue.name, MESSAGES - first, x_stream_offset=begin)
        await queue.delete(if_unused=False, if_empty=False)
        return offsets

    assert run(scenario, url) == list(range(first, MESSAGES))


def test_iterators_filter_by_tags(url: str) -> None:
    async def scenario(connection: AbstractRobustConnection) -> list[int]:
        queue = await stream(connection, "aio.filtered")
        offsets = await read(connection, queue.name, 50, x_stream_offset="first", x_stream_filter=["odd", "none"])
        await queue.delete(if_unused=False, if_empty=False)
        return offsets

    assert run(scenario, url) == list(range(1, MESSAGES, 2))


def test_a_group_goes_on_where_its_member_left_off(url: str) -> None:
    async def scenario(connection: AbstractRobustConnection) -> list[int]:
        queue = await stream(connection, "aio.grouped")
        member = {"x_group": "workers", "x_stream_offset": "first"}
        offsets = await read(connection, queue.name, 40, **member)
        offsets += await read(connection, queue.name, 60, **member)
        await queue.delete(if_unused=False, if_empty=False)
        return offsets

    assert run(scenario, url) == list(range(MESSAGES))


def test_what_streams_refuse_has_its_type(url: str) -> None:
    async def take(_: AbstractIncomingMessage) -> None:
        pass

    async def scenario(connection: AbstractRobustConnection) -> None:
        queue = await stream(connection, "aio.refusing")
        with pytest.raises(ChannelPreconditionFailed, match="consumer prefetch count is not set"):
            await queue.consume(take)
        other = await connection.channel()
        arguments: Any = {"x-queue-type": "stream", "x-overflow": "drop-head"}
        with pytest.raises(ChannelPreconditionFailed, match="of queue type rabbit_stream_queue"):
            await other.declare_queue("aio.odd", durable=True, arguments=arguments)
        await (await connection.channel()).queue_delete(queue.name)

    run(scenario, url)


def test_a_robust_connection_that_comes_back_reads_from_where_its_consumer_began(
    url: str, native: shardmq.Connection
) -> None:
    async def scenario(connection: AbstractRobustConnection) -> list[int]:
        queue = await stream(connection, "aio.robust.stream")
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=5)
        came: asyncio.Queue[int] = asyncio.Queue()

        async def on_message(message: AbstractIncomingMessage) -> None:
            async with message.process():
                came.put_nowait(offset_of(message))

        reading = await channel.declare_queue(queue.name, durable=True, arguments=STREAM)
        await reading.consume(on_message, arguments={"x-stream-offset": 95})
        offsets = [await came.get() for _ in range(5)]
        for row in await asyncio.to_thread(native.topology, "connections"):
            if row["protocol"].startswith("AMQP"):
                await asyncio.to_thread(native.connection_expel, row["name"], "for the test")
        offsets += [await came.get() for _ in range(5)]
        await queue.delete(if_unused=False, if_empty=False)
        return offsets

    assert run(scenario, url) == [*range(95, 100)] * 2


def test_a_super_stream_as_rabbitmq_makes_it_takes_messages_by_their_partition(
    url: str, native: shardmq.Connection
) -> None:
    async def scenario(connection: AbstractRobustConnection) -> list[list[int]]:
        channel = await connection.channel()
        exchange = await channel.declare_exchange("aio.super", durable=True, arguments={"x-super-stream": True})
        queues = []
        for partition in range(3):
            name = f"aio.super-{partition}"
            queue = await channel.declare_queue(name, durable=True, arguments=STREAM)
            await queue.bind(exchange, str(partition), arguments={"x-stream-partition-order": partition})
            queues.append(queue)
        for number in range(30):
            await exchange.publish(aio_pika.Message(b"%d" % number), str(number % 3), timeout=SECONDS)
        found = [await read(connection, queue.name, 10, x_stream_offset="first") for queue in queues]
        rows = await asyncio.to_thread(native.topology, "bindings")
        orders = {row["destination"]: row["arguments"] for row in rows if row["source"] == "aio.super"}
        assert orders == {f"aio.super-{order}": {"x-stream-partition-order": order} for order in range(3)}
        for queue in queues:
            await queue.delete(if_unused=False, if_empty=False)
        await exchange.delete()
        return found

    assert run(scenario, url) == [list(range(10))] * 3
