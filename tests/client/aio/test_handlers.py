"""Handlers in tasks: what one of them raises costs no other message anything."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from shardmq import aio, errors
from shardmq.cmd.run.broker import Broker

PATIENCE_SECONDS = 60.0


class Stopped(BaseException):
    """What is no Exception, as the timeouts of some libraries."""


async def wait_for_what_is_cancelled() -> None:
    """Wait for a future that somebody cancels."""
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.cancel)
    await future


async def stop() -> None:
    """Raise what is no Exception."""
    raise Stopped


@pytest.mark.parametrize("concurrency", [1, None])
@pytest.mark.parametrize("fail", [wait_for_what_is_cancelled, stop])
def test_a_message_whose_handler_was_cancelled_is_dealt_with_as_one_that_raised(
    broker: Broker, caplog: pytest.LogCaptureFixture, concurrency: int | None, fail: Callable[[], Awaitable[None]]
) -> None:
    async def main() -> None:
        async with aio.connect(broker.url) as connection, connection.channel() as channel:
            queue = (await channel.queue_declare(exclusive=True)).queue
            done = asyncio.Event()

            async def handle(message: aio.Message) -> None:
                if message.body == b"fails":
                    await fail()
                message.ack()
                done.set()

            await channel.basic_consume(queue, handle, prefetch=2, on_error="reject", concurrency=concurrency)
            for _ in range(5):
                await channel.basic_publish("", queue, b"fails")
            await channel.basic_publish("", queue, b"last")
            await done.wait()
            await channel.close()
            other = await connection.channel()
            assert (await other.queue_declare(queue, passive=True)).messages == 0

    asyncio.run(asyncio.wait_for(main(), PATIENCE_SECONDS))
    assert caplog.text.count("a handler raised") == 5


def test_a_channel_closes_where_it_is_to_because_a_handler_was_cancelled(broker: Broker) -> None:
    async def main() -> None:
        async with aio.connect(broker.url) as connection:
            channel = await connection.channel()
            queue = (await channel.queue_declare(exclusive=True)).queue

            async def handle(_: aio.Message) -> None:
                await wait_for_what_is_cancelled()

            await channel.basic_consume(queue, handle, on_error="close")
            await channel.basic_publish("", queue, b"x")
            while channel.is_open:
                await asyncio.sleep(0.01)
            with pytest.raises(errors.ChannelError, match="CancelledError"):
                await channel.basic_publish("", queue, b"x")

    asyncio.run(asyncio.wait_for(main(), PATIENCE_SECONDS))
