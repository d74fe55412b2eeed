"""aio-pika: robust connections, iterators, confirms, returns, transactions and its patterns over asyncio."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage, AbstractRobustConnection
from aio_pika.exceptions import ChannelNotFoundEntity, ChannelPreconditionFailed, DeliveryError, PublishError
from aio_pika.patterns import RPC, Master
from pamqp.commands import Basic
from pamqp.common import Arguments

import shardmq
from tests.e2e.traffic import counts, until

SECONDS = 30.0

T = TypeVar("T")


def run(scenario: Callable[[AbstractRobustConnection], Awaitable[T]], url: str) -> T:
    """Run one scenario over a connection of its own."""

    async def running() -> T:
        connection = await aio_pika.connect_robust(url, timeout=SECONDS)
        async with connection:
            return await asyncio.wait_for(scenario(connection), SECONDS)

    return asyncio.run(running())


async def get(queue: aio_pika.abc.AbstractQueue) -> AbstractIncomingMessage:
    """Get a message that may be still on its way."""
    while (message := await queue.get(fail=False, timeout=SECONDS)) is None:
        pass
    return message


def test_iterators_hand_out_what_was_confirmed(url: str) -> None:
    async def scenario(connection: AbstractRobustConnection) -> list[bytes]:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=5)
        queue = await channel.declare_queue("", exclusive=True)
        for number in range(50):
            body = str(number).encode()
            confirmed = await channel.default_exchange.publish(
                aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT), queue.name, timeout=SECONDS
            )
            assert isinstance(confirmed, Basic.Ack)
        bodies: list[bytes] = []
        async with queue.iterator() as messages:
            async for message in messages:
                async with message.process():
                    bodies.append(message.body)
                if len(bodies) == 50:
                    break
        return bodies

    assert run(scenario, url) == [str(number).encode() for number in range(50)]


def test_properties_and_headers_come_back_as_they_were(url: str) -> None:
    sent = aio_pika.Message(
        b"{}",
        headers={"a": 1, "b": [True, None, 1.5, {"c": "d"}], "e": "ü"},
        content_type="application/json",
        content_encoding="utf-8",
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        priority=3,
        correlation_id="c",
        reply_to="r",
        expiration=60,
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        user_id="guest",
        app_id="a",
    )

    async def scenario(connection: AbstractRobustConnection) -> AbstractIncomingMessage:
        channel = await connection.channel()
        queue = await channel.declare_queue("", exclusive=True)
        await channel.default_exchange.publish(sent, queue.name)
        message = await get(queue)
        await message.ack()
        return message

    came = run(scenario, url)
    assert came.body == sent.body
    assert came.properties == sent.properties
    assert came.headers == sent.headers
    assert came.redelivered is False


def test_what_no_queue_takes_is_an_error_of_the_publish(url: str) -> None:
    async def scenario(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel(on_return_raises=True)
        with pytest.raises(PublishError, match="NO_ROUTE"):
            await channel.default_exchange.publish(aio_pika.Message(b"back"), "nowhere")

    run(scenario, url)


def test_a_refused_publish_is_an_error_of_that_publish(url: str) -> None:
    async def scenario(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel()
        arguments: Arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
        queue = await channel.declare_queue("", exclusive=True, arguments=arguments)
        await channel.default_exchange.publish(aio_pika.Message(b"1"), queue.name)
        with pytest.raises(DeliveryError):
            await channel.default_exchange.publish(aio_pika.Message(b"2"), queue.name)

    run(scenario, url)


def test_rejected_messages_go_to_the_dead_letter_exchange_with_their_history(url: str) -> None:
    async def scenario(connection: AbstractRobustConnection) -> AbstractIncomingMessage:
        channel = await connection.channel()
        dead = await channel.declare_queue("", exclusive=True)
        arguments: Arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead.name}
        queue = await channel.declare_queue("aio.rejecting", exclusive=True, arguments=arguments)
        await channel.default_exchange.publish(aio_pika.Message(b"bad", headers={"mine": 1}), queue.name)
        await (await get(queue)).reject(requeue=False)
        message = await get(dead)
        await message.ack()
        return message

    message = run(scenario, url)
    assert message.headers["mine"] == 1
    history = message.headers["x-death"]
    assert isinstance(history, list)
    (death,) = history
    assert isinstance(death, dict)
    assert (death["queue"], death["reason"], death["count"]) == ("aio.rejecting", "rejected", 1)
    assert message.headers["x-first-death-queue"] == "aio.rejecting"


def test_a_transaction_shows_all_or_nothing(url: str) -> None:
    async def scenario(connection: AbstractRobustConnection) -> list[bytes]:
        channel = await connection.channel(publisher_confirms=False)
        queue = await channel.declare_queue("", exclusive=True)
        async with channel.transaction():
            await channel.default_exchange.publish(aio_pika.Message(b"1"), queue.name)
            await channel.default_exchange.publish(aio_pika.Message(b"2"), queue.name)
        transaction = channel.transaction()
        await transaction.select()
        await channel.default_exchange.publish(aio_pika.Message(b"never"), queue.name)
        await transaction.rollback()
        other = await connection.channel()
        theirs = await other.get_queue(queue.name)
        bodies = []
        while message := await theirs.get(fail=False, timeout=SECONDS):
            bodies.append(message.body)
            await message.ack()
        return bodies

    assert run(scenario, url) == [b"1", b"2"]


def test_errors_have_the_types_their_codes_mean(url: str) -> None:
    async def scenario(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel()
        with pytest.raises(ChannelNotFoundEntity, match=r"no queue 'aio.none' in vhost '/'"):
            await channel.get_queue("aio.none", ensure=True)
        await channel.reopen()
        await channel.declare_queue("aio.once", exclusive=True, arguments={"x-max-length": 5})
        with pytest.raises(ChannelPreconditionFailed, match=r"inequivalent arg 'x-max-length' for queue 'aio.once'"):
            await channel.declare_queue("aio.once", exclusive=True, arguments={"x-max-length": 6})

    run(scenario, url)


def test_remote_procedure_calls_answer_raise_and_expire(url: str) -> None:
    async def multiply(*, x: int, y: int) -> int:
        return x * y

    async def failing() -> None:
        raise ValueError("on the other side")

    async def scenario(connection: AbstractRobustConnection) -> None:
        async with connection.channel() as channel:
            rpc = await RPC.create(channel)
            await rpc.register("multiply", multiply, auto_delete=True)
            await rpc.register("failing", failing, auto_delete=True)
            answers = await asyncio.gather(*(rpc.proxy.multiply(x=number, y=2) for number in range(20)))
            assert answers == [number * 2 for number in range(20)]
            with pytest.raises(ValueError, match="on the other side"):
                await rpc.call("failing")
            queue = await channel.declare_queue("aio.slow", auto_delete=True, arguments=dead_letters)
            with pytest.raises(asyncio.TimeoutError):
                await rpc.call(queue.name, expiration=1)
            await queue.delete(if_empty=False)
            await rpc.close()

    dead_letters: Arguments = {"x-dead-letter-exchange": RPC.DLX_NAME}
    run(scenario, url)


def test_a_master_hands_tasks_to_workers(url: str) -> None:
    done: asyncio.Queue[int] = asyncio.Queue()

    async def work(*, number: int) -> None:
        done.put_nowait(number)

    async def scenario(connection: AbstractRobustConnection) -> list[int]:
        async with connection.channel() as channel:
            await channel.set_qos(prefetch_count=2)
            master = Master(channel)
            worker = await master.create_worker("aio.tasks", work, auto_delete=True)
            for number in range(20):
                await master.proxy.__getattr__("aio.tasks")(number=number)
            finished = [await done.get() for _ in range(20)]
            await worker.close()
            return finished

    assert sorted(run(scenario, url)) == list(range(20))


def test_a_robust_connection_comes_back_and_consumes_on(url: str, native: shardmq.Connection) -> None:
    def expel_all_others() -> None:
        for row in native.topology("connections"):
            if row["protocol"].startswith("AMQP"):
                native.connection_expel(row["name"], "for the test")

    async def scenario(connection: AbstractRobustConnection) -> list[bytes]:
        channel = await connection.channel()
        queue = await channel.declare_queue("aio.robust", durable=True)
        came: asyncio.Queue[bytes] = asyncio.Queue()

        async def on_message(message: AbstractIncomingMessage) -> None:
            async with message.process():
                came.put_nowait(message.body)

        await queue.consume(on_message)
        await channel.default_exchange.publish(aio_pika.Message(b"before"), queue.name)
        bodies = [await came.get()]
        back = asyncio.Event()
        connection.reconnect_callbacks.add(lambda *_: back.set())
        await asyncio.to_thread(until, lambda: counts(native, queue.name)["valid"] == 0, "it is acknowledged")
        await asyncio.to_thread(expel_all_others)
        await back.wait()
        await channel.default_exchange.publish(aio_pika.Message(b"after"), queue.name)
        bodies.append(await came.get())
        await queue.delete(if_unused=False, if_empty=False)
        return bodies

    assert run(scenario, url) == [b"before", b"after"]
