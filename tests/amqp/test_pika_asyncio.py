"""pika's asyncio adapter: callbacks all the way, wrapped into futures as its users do."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pika
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.channel import Channel
from pika.exceptions import ChannelClosedByBroker

SECONDS = 30.0

T = TypeVar("T")


async def answer_of(ask: Callable[[Callable[..., Any]], Any]) -> Any:
    """What a method's callback is called with."""
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    ask(answer.set_result)
    return await asyncio.wait_for(answer, SECONDS)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[AsyncioConnection]:
    closed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
    connection = await answer_of(
        lambda opened: AsyncioConnection(
            pika.URLParameters(url),
            on_open_callback=opened,
            on_close_callback=lambda _connection, reason: closed.set_result(reason),
        )
    )
    yield connection
    if connection.is_open:
        connection.close()
    await asyncio.wait_for(closed, SECONDS)


def run(scenario: Callable[[AsyncioConnection], Awaitable[T]], url: str) -> T:
    """Run one scenario over a connection of its own."""

    async def running() -> T:
        async with connected(url) as connection:
            return await scenario(connection)

    return asyncio.run(running())


async def open_channel(connection: AsyncioConnection) -> Channel:
    channel = await answer_of(lambda opened: connection.channel(on_open_callback=opened))
    assert isinstance(channel, Channel)
    return channel


async def own_queue(channel: Channel) -> str:
    declared = await answer_of(lambda done: channel.queue_declare("", exclusive=True, callback=done))
    name = declared.method.queue
    assert isinstance(name, str)
    return name


def test_confirms_come_for_every_publish_and_consumers_get_them_in_order(url: str) -> None:
    async def scenario(connection: AsyncioConnection) -> tuple[int, list[bytes]]:
        channel = await open_channel(connection)
        queue = await own_queue(channel)
        confirmed, consumed = asyncio.Event(), asyncio.Event()
        last = 0
        bodies: list[bytes] = []

        def on_confirm(frame: Any) -> None:
            nonlocal last
            assert isinstance(frame.method, pika.spec.Basic.Ack)
            assert frame.method.delivery_tag > last
            last = frame.method.delivery_tag
            if last == 500:
                confirmed.set()

        def on_message(_channel: Channel, method: Any, _properties: pika.BasicProperties, body: bytes) -> None:
            bodies.append(body)
            channel.basic_ack(method.delivery_tag)
            if len(bodies) == 500:
                consumed.set()

        await answer_of(lambda done: channel.confirm_delivery(on_confirm, callback=done))
        for number in range(500):
            channel.basic_publish("", queue, str(number).encode(), pika.BasicProperties(delivery_mode=2))
        await answer_of(lambda done: channel.basic_qos(prefetch_count=20, callback=done))
        tag = channel.basic_consume(queue, on_message)
        await asyncio.wait_for(asyncio.gather(confirmed.wait(), consumed.wait()), SECONDS)
        await answer_of(lambda done: channel.basic_cancel(tag, callback=done))
        return last, bodies

    last, bodies = run(scenario, url)
    assert last == 500
    assert bodies == [str(number).encode() for number in range(500)]


def test_returns_come_before_their_confirms(url: str) -> None:
    async def scenario(connection: AsyncioConnection) -> list[str]:
        channel = await open_channel(connection)
        came: list[str] = []
        confirmed = asyncio.Event()
        channel.add_on_return_callback(lambda _channel, method, _properties, _body: came.append(method.reply_text))

        def on_confirm(_frame: Any) -> None:
            came.append("confirmed")
            confirmed.set()

        await answer_of(lambda done: channel.confirm_delivery(on_confirm, callback=done))
        channel.basic_publish("", "nowhere", b"back", mandatory=True)
        await asyncio.wait_for(confirmed.wait(), SECONDS)
        return came

    assert run(scenario, url) == ["NO_ROUTE", "confirmed"]


def test_a_channels_mistake_closes_that_channel_alone(url: str) -> None:
    async def scenario(connection: AsyncioConnection) -> BaseException:
        channel, other = await open_channel(connection), await open_channel(connection)
        closed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        channel.add_on_close_callback(lambda _channel, reason: closed.set_result(reason))
        channel.basic_consume("no.such", lambda *_: None)
        reason = await asyncio.wait_for(closed, SECONDS)
        await own_queue(other)
        return reason

    reason = run(scenario, url)
    assert isinstance(reason, ChannelClosedByBroker)
    assert (reason.reply_code, reason.reply_text) == (404, "NOT_FOUND - no queue 'no.such' in vhost '/'")


def test_a_consumer_is_told_of_its_queues_end_on_the_loop(url: str) -> None:
    async def scenario(connection: AsyncioConnection) -> bool:
        channel = await open_channel(connection)
        queue = await own_queue(channel)
        tag = (await answer_of(lambda done: channel.basic_consume(queue, lambda *_: None, callback=done))).method
        cancelled: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        channel.add_on_cancel_callback(cancelled.set_result)
        channel.queue_delete(queue)
        frame = await asyncio.wait_for(cancelled, SECONDS)
        return bool(frame.method.consumer_tag == tag.consumer_tag)

    assert run(scenario, url)


def test_threads_hand_work_to_the_loop(url: str) -> None:
    async def scenario(connection: AsyncioConnection) -> bytes:
        channel = await open_channel(connection)
        queue = await own_queue(channel)
        came: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        channel.basic_consume(queue, lambda _channel, _method, _properties, body: came.set_result(body), auto_ack=True)

        def publish() -> None:
            channel.basic_publish("", queue, b"from a thread")

        await asyncio.to_thread(connection.ioloop.call_soon_threadsafe, publish)
        return await asyncio.wait_for(came, SECONDS)

    assert run(scenario, url) == b"from a thread"
