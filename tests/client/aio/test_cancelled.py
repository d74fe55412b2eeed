"""A task is cancelled wherever it waits: it ends, and leaves nothing behind that nobody knows of."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from shardmq import aio
from shardmq.cmd.run.broker import Broker
from shardmq.message.record import pack, pack_many
from shardmq.protocol.native.operations.basic import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicDeliver,
    BasicNack,
    BasicPublish,
)
from shardmq.protocol.native.operations.connection import ConnectionBlocked, ConnectionUnblocked
from shardmq.protocol.native.operations.groups import GroupAssigned
from shardmq.protocol.native.operations.topology import QueueDeclare
from shardmq.protocol.native.operations.transaction import TransactionBegin, TransactionCommit, TransactionSeal
from tests.client.peers import Conversation, Script

Peer = Callable[[Script], str]

PATIENCE_SECONDS = 60.0


def run(main: Callable[[], object]) -> None:
    """Run a coroutine function to its end."""
    asyncio.run(asyncio.wait_for(main(), PATIENCE_SECONDS))  # type: ignore[arg-type]


async def cancel_as_it_is_answered(connection: aio.Connection, step: Awaitable[object]) -> None:
    """Cancel a task in the pass of the event loop in which the answer has come to what it asks."""
    task = asyncio.ensure_future(step)

    def watch(was_asked: bool) -> None:
        is_asked = bool(connection._core.state.pending)
        if was_asked and not is_asked:
            task.cancel()
        else:
            asyncio.get_running_loop().call_soon(watch, is_asked or was_asked)

    watch(False)
    with pytest.raises(asyncio.CancelledError):
        await task


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again until the answer is true."""
    while not await condition():
        await asyncio.sleep(0.01)


BEGINNINGS: dict[str, Callable[[aio.Channel, str], Awaitable[object]]] = {
    "get": lambda channel, queue: channel.basic_get(queue),
    "iterate": lambda channel, queue: anext(channel.consume(queue)),
    "iterate over batches": lambda channel, queue: anext(channel.consume_batches(queue)),
    "handle": lambda channel, queue: channel.basic_consume(queue, lambda message: message.nack()),
}


@pytest.mark.parametrize("begin", BEGINNINGS.values(), ids=BEGINNINGS)
def test_what_comes_for_a_task_that_was_cancelled_as_it_was_answered_goes_back(
    broker: Broker, begin: Callable[[aio.Channel, str], Awaitable[object]]
) -> None:
    async def main() -> None:
        async with aio.connect(broker.url) as connection:
            channel, asking = await connection.channel(), await connection.channel()
            queue = (await channel.queue_declare(exclusive=True)).queue
            for _ in range(5):
                await channel.basic_publish("", queue, b"x")
            await cancel_as_it_is_answered(connection, begin(channel, queue))

            async def is_as_before() -> bool:
                found = await asking.queue_declare(queue, passive=True)
                return (found.messages, found.consumers) == (5, 0)

            await until(is_as_before)
            assert connection._core.state.undelivered == 0
            message = await channel.basic_get(queue)
            assert message is not None
            message.ack()

    run(main)


def test_a_member_of_a_group_that_was_cancelled_as_it_joined_leaves_the_group(broker: Broker) -> None:
    async def main() -> None:
        async with aio.connect(broker.url) as connection:
            channel = await connection.channel()
            await channel.topic_declare("left at once", 2)
            for number in range(10):
                await channel.basic_publish("left at once", str(number), b"x")

            async def join() -> None:
                await channel.group_consumer("left at once", "g", start="earliest")

            await cancel_as_it_is_answered(connection, join())
            async with channel.group_consumer("left at once", "g", start="earliest") as consumer:
                for _ in range(10):
                    await anext(consumer)
            assert connection._core.state.undelivered == 0
            await channel.topic_delete("left at once")

    run(main)


def test_a_channel_whose_task_was_cancelled_as_it_was_opened_is_closed(broker: Broker) -> None:
    async def main() -> None:
        async with aio.connect(broker.url) as connection:

            async def open_one() -> None:
                await connection.channel()

            await cancel_as_it_is_answered(connection, open_one())

            async def is_free() -> bool:
                return not connection._core.state.by_number

            await until(is_free)
            assert (await connection.channel()).number == 1

    run(main)


def silent_at_the_end(talk: Conversation) -> None:
    """Deliver three messages, and two when the consumer is to end; answer when all that was not seen is back."""
    talk.open()
    talk.answer(talk.next(BasicConsume), {"consumer": "c"})

    def deliver(tag: int, count: int) -> None:
        talk.send(BasicDeliver(1, "c", tag, False, "", "q", 1, 0, 1, 1, count, pack_many([b"x"] * count), 0, tag, 0))

    talk.send(GroupAssigned(1, "c", [(0, 1)]))
    deliver(1, 3)
    talk.next(BasicAck)
    cancel = talk.next(BasicCancel)
    back, declare, is_late = set[int](), None, False
    while back != {2, 3, 4, 5} or declare is None:
        said = talk.next()
        if isinstance(said, QueueDeclare):
            declare = said
        else:
            assert isinstance(said, BasicNack)
            back.update(*[range(first, last + 1) for first, last in said.tags])
        if not is_late:
            deliver(4, 2)
            is_late = True
    talk.answer(cancel)
    talk.answer(declare, {"queue": "q", "messages": 0, "consumers": 0})
    talk.read_to_end()


async def end_iterator(channel: aio.Channel) -> None:
    """Take one message of several, and leave."""
    messages = channel.consume("q")
    (await anext(messages)).ack()
    await messages.aclose()


async def end_member(channel: aio.Channel) -> None:
    """Take one message of several, and leave."""
    async with channel.group_consumer("q", "g") as consumer:
        (await anext(consumer)).ack()


@pytest.mark.parametrize("end", [end_iterator, end_member])
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_consumer_that_ends_without_an_answer_gives_back_what_it_has_and_what_still_comes(
    peer: Peer, end: Callable[[aio.Channel], Awaitable[None]], is_cancelled: bool
) -> None:
    async def main() -> None:
        async with aio.connect(peer(silent_at_the_end), recovery=None, timeout=1.0) as connection:
            channel = await connection.channel()
            if is_cancelled:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.3):
                        await end(channel)
            else:
                await end(channel)
            await channel.queue_declare("q")
            assert connection._core.state.undelivered == 0

    run(main)


def test_a_task_that_is_cancelled_while_its_transaction_becomes_visible_is_cancelled(peer: Peer) -> None:
    async def main() -> None:
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()

        def script(talk: Conversation) -> None:
            talk.open()
            talk.answer(talk.next(TransactionBegin), {"number": 7, "state": "open"})
            talk.answer(talk.next(TransactionSeal), {"messages": 0, "bytes": 0})
            talk.answer(talk.next(TransactionCommit), {"visible": False})
            talk.next(TransactionCommit)
            loop.call_soon_threadsafe(asked.set)
            talk.read_to_end()

        async def commit(channel: aio.Channel, begun: list[aio.Transaction]) -> None:
            async with channel.transaction("batch") as transaction:
                begun.append(transaction)

        async with aio.connect(peer(script), recovery=None) as connection:
            begun: list[aio.Transaction] = []
            task = asyncio.create_task(commit(await connection.channel(), begun))
            await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert begun[0].is_committed
            assert "was not aborted" in caught.value.__notes__[0]

    run(main)


def test_a_publish_that_is_cancelled_while_it_is_held_is_not_sent_later(peer: Peer) -> None:
    cancelled = threading.Event()

    def script(talk: Conversation) -> None:
        talk.open()
        talk.send(ConnectionBlocked("the disk is full"))
        assert cancelled.wait(PATIENCE_SECONDS)
        talk.send(ConnectionUnblocked())
        publish = talk.next(BasicPublish)
        assert publish.records == pack(None, b"later")
        talk.confirm(publish)
        talk.read_to_end()

    async def main() -> None:
        async with aio.connect(peer(script), recovery=None) as connection:
            channel = await connection.channel()
            blocked = asyncio.Event()
            connection.on_blocked(lambda _: blocked.set())
            await blocked.wait()
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await channel.basic_publish("", "q", b"never")
            cancelled.set()
            await channel.basic_publish("", "q", b"later")

    run(main)
