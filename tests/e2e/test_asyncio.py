"""What the other files of this folder show with threads, with asyncio: the same words mean the same."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import shardmq
from shardmq import errors
from shardmq.client.aio.channel import Channel
from shardmq.client.aio.connection import Connection
from shardmq.cmd.run.broker import Broker

from .traffic import PATIENCE_SECONDS, numbers

Scene = Callable[[Connection, Channel], Awaitable[None]]
Play = Callable[[Scene], None]


@pytest.fixture
def play(broker: Broker) -> Play:
    """Runs a coroutine with a connection and a channel of its own."""

    async def run(scene: Scene) -> None:
        async with await shardmq.aio.connect(broker.url) as connection:
            await asyncio.wait_for(scene(connection, await connection.channel()), PATIENCE_SECONDS)

    return lambda scene: asyncio.run(run(scene))


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    while not (answer := await condition()):
        await asyncio.sleep(0.01)
    return answer


async def declare(channel: Channel, queue: str, dead: str | None = None, **arguments: Any) -> None:
    """A durable queue; arguments as x_max_length=3; what dies in it goes to the queue `dead`."""
    terms = {name.replace("_", "-"): value for name, value in arguments.items()}
    if dead is not None:
        terms |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    await channel.queue_declare(queue, durable=True, arguments=terms)


async def get(channel: Channel, queue: str) -> shardmq.Message:
    message = await until(lambda: channel.basic_get(queue))
    assert isinstance(message, shardmq.Message)
    return message


async def bodies(channel: Channel, queue: str) -> list[bytes]:
    found = []
    while (message := await channel.basic_get(queue, auto_ack=True)) is not None:
        found.append(message.body)
    return found


@contextlib.asynccontextmanager
async def consuming(channel: Channel, queue: str, **settings: Any) -> AsyncIterator[AsyncIterator[shardmq.Message]]:
    """The messages of a consumer that ends with the block."""
    messages = channel.consume(queue, **settings)
    async with contextlib.aclosing(messages):
        yield messages


def test_exchanges_of_every_kind_and_bindings_between_them(play: Play) -> None:
    async def scene(_: Connection, channel: Channel) -> None:
        for queue in ("headed", "rest"):
            await declare(channel, queue)
        await channel.exchange_declare("unrouted", "fanout", auto_delete=True)
        await channel.exchange_declare("heads", "headers", arguments={"alternate-exchange": "unrouted"}, internal=True)
        await channel.exchange_declare("front", "topic")
        await channel.exchange_bind("heads", "front", "a.#")
        await channel.queue_bind("headed", "heads", "", {"x-match": "any", "color": "red", "size": 3})
        await channel.queue_bind("rest", "unrouted")
        await channel.basic_publish("front", "a.b", b"red", shardmq.Properties(headers={"color": "red"}))
        await channel.basic_publish("front", "a.b", b"blue", shardmq.Properties(headers={"color": "blue"}))
        copies = {"CC": ["headed"], "BCC": ["rest"]}
        await channel.basic_publish("", "nobody", b"copy", shardmq.Properties(headers=copies))
        assert await bodies(channel, "headed") == [b"red", b"copy"]
        assert await bodies(channel, "rest") == [b"blue", b"copy"]
        with pytest.raises(errors.AccessRefused, match="internal"):
            await channel.basic_publish("heads", "", b"")
        with pytest.raises(errors.PreconditionFailed, match="in use"):
            await channel.exchange_delete("heads", if_unused=True)
        await channel.queue_unbind("rest", "unrouted")
        with pytest.raises(errors.NotFound):
            await channel.exchange_declare("unrouted", passive=True)
        await channel.exchange_unbind("heads", "front", "a.#")
        with pytest.raises(errors.Unroutable):
            await channel.basic_publish("front", "a.b", b"", mandatory=True)

    play(scene)


def test_an_exclusive_queue_the_server_named_is_its_connections_alone(broker: Broker, play: Play) -> None:
    async def scene(connection: Connection, channel: Channel) -> None:
        name = (await channel.queue_declare(exclusive=True)).queue
        assert name.startswith("amq.gen-")
        async with await shardmq.aio.connect(broker.url) as other:
            strange = await other.channel()
            for refused in (
                strange.queue_declare(name, passive=True),
                strange.basic_get(name),
                strange.queue_purge(name),
                strange.queue_delete(name),
                strange.basic_consume(name, lambda _: None),
            ):
                with pytest.raises(errors.ResourceLocked):
                    await refused
        assert await channel.queue_declare(name, passive=True) == shardmq.QueueDeclared(name, 0, 0)
        assert connection.is_open

    play(scene)


def test_priorities_bounds_and_delivery_limits(play: Play) -> None:
    async def scene(_: Connection, channel: Channel) -> None:
        await declare(channel, "limited.dead")
        await declare(
            channel,
            "limited",
            "limited.dead",
            x_max_priority=5,
            x_delivery_limit=1,
            x_max_length=2,
            x_overflow="reject-publish",
        )
        for priority in (1, 4):
            await channel.basic_publish("", "limited", b"%d" % priority, shardmq.Properties(priority=priority))
        with pytest.raises(errors.PublishRefused, match="full"):
            await channel.basic_publish("", "limited", b"no room")
        for expected in (None, 1):
            message = await get(channel, "limited")
            assert message.body == b"4"
            assert (message.properties.headers or {}).get("x-delivery-count") == expected
            message.nack(delay_ms=10 if expected is None else 0)
            await until(lambda: is_back(channel))
        letter = await get(channel, "limited.dead")
        letter.ack()
        [death] = (letter.properties.headers or {})["x-death"]
        assert (death["queue"], death["reason"], death["count"]) == ("limited", "delivery_limit", 1)
        assert await bodies(channel, "limited") == [b"1"]

    async def is_back(channel: Channel) -> bool:
        ready = [(await channel.queue_declare(name, passive=True)).messages for name in ("limited", "limited.dead")]
        return sum(ready) == 2

    play(scene)


def test_delays_expiry_and_renewal(play: Play) -> None:
    async def scene(connection: Connection, channel: Channel) -> None:
        await declare(channel, "timed.dead")
        await declare(channel, "timed", "timed.dead", x_consumer_timeout=2000)
        await channel.basic_publish("", "timed", b"expires", shardmq.Properties(expiration="10"))
        assert (await get(channel, "timed.dead")).body == b"expires"
        async with consuming(channel, "timed", prefetch=2) as messages:
            await channel.basic_publish("", "timed", b"later", delay_ms=1000)
            await channel.basic_publish("", "timed", b"now")
            overdue, renewed = await anext(messages), await anext(messages)
            assert (overdue.body, renewed.body) == (b"now", b"later")
            again = asyncio.ensure_future(anext(messages))
            while not again.done():
                renewed.renew()
                await asyncio.sleep(0.02)
            assert ((await again).body, (await again).redelivered) == (b"now", True)
            overdue.ack()  # too late, and no harm done
            renewed.ack()
            (await again).ack()
        await until(lambda: is_empty(connection))

    async def is_empty(connection: Connection) -> bool:
        [table] = [table for table in (await connection.status())["queues"] if table["name"] == "timed"]
        return bool(table["valid"] == 0)

    play(scene)


def test_whose_turn_it_is_and_what_comes_back(play: Play) -> None:
    async def scene(connection: Connection, channel: Channel) -> None:
        await declare(channel, "turns")
        second = await connection.channel()
        async with (
            consuming(channel, "turns", prefetch=5, priority=-1) as modest,
            consuming(second, "turns", prefetch=2, priority=7) as eager,
        ):
            first = asyncio.ensure_future(anext(modest))
            tables = [asyncio.ensure_future(anext(eager))]
            await until(lambda: has_consumers(channel, 2))
            async with (await connection.channel()).publisher() as publisher:
                await publisher.publish_many("", "turns", numbers(0, 5))
            assert (await tables[0]).body == b"0"
            assert (await first).body == b"2"
            await second.basic_recover()
            assert [(m.body, m.redelivered) for m in [await anext(eager), await anext(eager)]] == [
                (b"0", True),
                (b"1", True),
            ]
        await declare(channel, "alone")
        await channel.basic_consume("alone", lambda _: None, exclusive=True)
        with pytest.raises(errors.AccessRefused, match="exclusive"):
            await channel.basic_consume("alone", lambda _: None)

    async def has_consumers(channel: Channel, number: int) -> bool:
        return (await channel.queue_declare("turns", passive=True)).consumers == number

    play(scene)


def test_a_consumer_hears_that_its_queue_is_gone(play: Play) -> None:
    async def scene(_: Connection, channel: Channel) -> None:
        await declare(channel, "doomed")
        async with consuming(channel, "doomed") as messages:
            waiting = asyncio.ensure_future(anext(messages))
            await until(lambda: is_consumed(channel))
            await channel.queue_delete("doomed")
            with pytest.raises(errors.NotFound, match="was deleted"):
                await waiting
        assert channel.is_open

    async def is_consumed(channel: Channel) -> bool:
        return (await channel.queue_declare("doomed", passive=True)).consumers == 1

    play(scene)


def test_virtual_hosts_users_and_permissions(broker: Broker, play: Play) -> None:
    async def scene(connection: Connection, _: Channel) -> None:
        await connection.vhost_put("aio")
        await connection.user_put("ann", password="secret")
        await connection.permission_put("ann", "aio", "^mine", "^mine", "")
        async with await shardmq.aio.connect(f"shardmq://ann:secret@127.0.0.1:{broker.port}/aio") as hers:
            channel = await hers.channel()
            await channel.queue_declare("mine")
            for refused in (channel.queue_declare("theirs"), channel.basic_get("mine"), hers.vhost_delete("aio")):
                with pytest.raises(errors.AccessRefused):
                    await refused
        await connection.user_delete("ann")
        await connection.vhost_delete("aio")

    play(scene)


@pytest.mark.parametrize("tag", [0, -1, 2**63])
def test_a_delivery_tag_that_no_message_has_is_refused_and_costs_nothing(play: Play, tag: int) -> None:
    async def scene(_: Connection, channel: Channel) -> None:
        for settle in (channel.basic_ack, channel.basic_nack, channel.basic_renew):
            with pytest.raises(errors.PreconditionFailed, match="unknown delivery tag"):
                settle(tag)
        assert (await channel.queue_declare()).messages == 0

    play(scene)


def test_a_name_over_255_bytes_is_refused_and_the_channel_lives_on(play: Play) -> None:
    async def scene(_: Connection, channel: Channel) -> None:
        long = "x" * 256
        for refused in (
            lambda: channel.queue_declare(long),
            lambda: channel.exchange_declare(long),
            lambda: channel.queue_bind("q", "amq.topic", long),
            lambda: channel.basic_publish("", long, b""),
            lambda: channel.basic_get(long),
        ):
            with pytest.raises(errors.InvalidRequest, match="255"):
                await refused()
        assert channel.is_open

    play(scene)
