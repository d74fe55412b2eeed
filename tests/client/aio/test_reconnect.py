"""A lost connection of an asyncio program: a recovery ends by itself, whatever comes of it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

import shardmq
from shardmq import errors
from shardmq.client.aio.reconnect import Line, Reconnect
from shardmq.client.api.url import Address
from tests.client.peers import Conversation, Script

Peer = Callable[[Script], str]

QUICK = shardmq.Recovery(first_seconds=0.05, max_seconds=0.5)
SLOW = shardmq.Recovery(first_seconds=1000, max_seconds=1000)


class FailingLoop(asyncio.SelectorEventLoop):
    """An event loop that connects once, and then fails as no socket does."""

    has_connected = False

    async def create_connection(self, *arguments: Any, **options: Any) -> Any:
        if self.has_connected:
            raise ZeroDivisionError("nobody has thought of that")
        self.has_connected = True
        return await super().create_connection(*arguments, **options)


def ignore(*_: object) -> None:
    """Nothing comes over a line that is never connected."""


@pytest.mark.parametrize("loop_factory", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_host_that_can_have_no_address_is_one_where_nobody_answers(loop_factory: Any) -> None:
    async def main() -> None:
        nowhere = Address("bad..host", 1, "", "", "/")
        with pytest.raises(errors.ConnectionLost, match=r"no broker answers at bad\.\.host:1"):
            await Reconnect([nowhere], None, None, 10.0, lambda: Line(ignore, ignore, ignore)).dial_first()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


def test_a_recovery_that_fails_by_something_else_ends_the_connection(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        ended = asyncio.Event()
        connection = await shardmq.aio.connect(peer(Conversation.open), recovery=QUICK)
        connection.on_lost(lambda _: None if connection.is_open else ended.set())
        channel = await connection.channel()
        with pytest.raises(errors.ConnectionLost, match="nobody has thought of that"):
            await channel.queue_declare("q")
        assert not connection.is_open
        assert not connection.is_recovering
        await ended.wait()
        await connection.close()

    with asyncio.Runner(loop_factory=FailingLoop) as runner:
        runner.run(asyncio.wait_for(main(), 60))
    assert "nobody has thought of that" in caplog.text


def test_a_recovery_that_is_cancelled_with_all_tasks_of_the_program_ends_the_connection(peer: Peer) -> None:
    async def main() -> None:
        connection = await shardmq.aio.connect(peer(Conversation.open), recovery=SLOW)
        lost = asyncio.Event()
        connection.on_lost(lambda _: lost.set())
        channel = await connection.channel()
        asking = asyncio.create_task(channel.queue_declare("q"))
        await lost.wait()
        tasks = asyncio.all_tasks() - {asyncio.current_task(), asking}
        for task in tasks:
            task.cancel()
        with pytest.raises(errors.ConnectionLost, match="recovery"):
            await asking
        assert not connection.is_open
        await connection.close()

    asyncio.run(main())
