"""A task is cancelled wherever it waits: it ends, and leaves nothing behind that nobody knows of."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from shardmq import aio
from shardmq.message.record import pack
from shardmq.protocol.native.operations.basic import BasicPublish
from shardmq.protocol.native.operations.connection import ConnectionBlocked, ConnectionUnblocked
from shardmq.protocol.native.operations.transaction import TransactionBegin, TransactionCommit, TransactionSeal
from tests.client.peers import Conversation, Script

Peer = Callable[[Script], str]

PATIENCE_SECONDS = 60.0


def run(main: Callable[[], object]) -> None:
    """Run a coroutine function to its end."""
    asyncio.run(asyncio.wait_for(main(), PATIENCE_SECONDS))  # type: ignore[arg-type]


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
