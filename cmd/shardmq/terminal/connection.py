"""The connection of a command to a broker, and what is done over it."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from shardmq.cmd.terminal.output import print_done
from shardmq.cmd.terminal.values import counted

if TYPE_CHECKING:
    from shardmq.client.aio.connection import Connection as AsyncConnection
    from shardmq.client.sync.channel import Channel
    from shardmq.client.sync.connection import Connection
    from shardmq.cmd.terminal.rows import Row

Done = TypeVar("Done")

ANSWER_SECONDS: Final = 30.0
"""A broker that does not answer for so long has failed the command."""


def connected(url: str) -> "Connection":
    """A connection for one command: when it is lost, the command fails at once instead of waiting for recovery."""
    from shardmq.client.sync.connection import connect

    return connect(url, timeout=ANSWER_SECONDS, recovery=None)


def over(url: str, work: "Callable[[AsyncConnection], Coroutine[Any, Any, Done]]") -> Done:
    """Do something over a connection of its own, on an event loop."""
    import asyncio

    from shardmq.client.aio.connection import connect

    async def carried_out() -> Done:
        async with connect(url, timeout=ANSWER_SECONDS, recovery=None) as connection:
            return await work(connection)

    return asyncio.run(carried_out())


def rows_of(url: str, noun: str) -> "list[Row]":
    """All there is of a noun, which is in the plural, as "queues"."""
    with connected(url) as connection:
        return connection.topology(noun)


def carry_out(url: str, as_json: bool, sentence: str, action: "Callable[[Connection], int | None]") -> None:
    """Do one thing and say that it is done.

    Args:
        url: the broker.
        as_json: for machines.
        sentence: what was done, in the past tense; `{messages}` stands for what the action returned.
        action: gets the connection; returns a number of messages, or None where there is none to tell.
    """
    with connected(url) as connection:
        messages = action(connection)
    facts = {} if messages is None else {"messages": messages}
    print_done(sentence.replace("{messages}", counted(messages or 0, "message")), as_json, **facts)


def on_channel(action: "Callable[[Channel], int | None]") -> "Callable[[Connection], int | None]":
    """An action of a connection that needs a channel."""
    return lambda connection: action(connection.channel())
