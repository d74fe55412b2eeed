"""`shardmq queue move`: messages of a queue to another, or to an exchange. Each arrives once."""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import click

from shardmq.cmd.terminal.completion import completing
from shardmq.cmd.terminal.connection import over
from shardmq.cmd.terminal.numbers import WholeNumber
from shardmq.cmd.terminal.options import JSON, URL
from shardmq.cmd.terminal.output import print_json, warn
from shardmq.cmd.terminal.values import counted

if TYPE_CHECKING:
    from shardmq.client.aio.connection import Connection
    from shardmq.client.api.message import Message
    from shardmq.management.moving import Copy

FEW: Final = 1000
"""Messages that are done at once, without a bar."""


@click.command()
@click.argument("source", shell_complete=completing("queues"))
@click.argument("destination", shell_complete=completing("queues"))
@click.option("--to-exchange", is_flag=True, help="DESTINATION is an exchange; messages keep their routing keys.")
@click.option("--routing-key", help="With --to-exchange: this key instead of their own.")
@click.option("--count", "-n", type=WholeNumber(1), help="Move so many at most.  [default: all that are ready now]")
@URL
@JSON
def move(
    *,
    source: str,
    destination: str,
    to_exchange: bool,
    routing_key: str | None,
    count: int | None,
    url: str,
    as_json: bool,
) -> None:
    """Move messages from queue SOURCE to queue DESTINATION, in order, with properties and ids.

    Each is in one of the two, whatever is killed meanwhile: what was under way then, 1,000 messages at most, is out of
    sight until the same user moves messages of SOURCE again, within an hour, and that ends it. A message that no queue
    takes stays, and ends the move.
    """
    if routing_key is not None and not to_exchange:
        raise click.UsageError("--routing-key goes together with --to-exchange")

    from shardmq.client.api.url import parse
    from shardmq.management.moving import Mover, copy_to

    def copy(message: "Message") -> "Copy":
        if not to_exchange:
            return copy_to("", destination, message)
        return copy_to(destination, message.routing_key if routing_key is None else routing_key, message)

    async def work(connection: "Connection") -> int:
        channel = await connection.channel()
        await channel.queue_declare(source, passive=True)
        if to_exchange and destination:
            await channel.exchange_declare(destination, passive=True)
        elif not to_exchange:
            await channel.queue_declare(destination, passive=True)
        mover = Mover(channel, source, parse(url).user)
        await mover.begin()
        if mover.finished:
            warn(f"{counted(mover.finished, 'message')} had gone before, in a move that was killed")
        ready = (await channel.queue_declare(source, passive=True)).messages
        total = ready if count is None else min(count, ready)
        with progress_bar("moving", total, as_json) as progress:
            return await mover.move_all(total, copy, progress)

    moved = over(url, work)
    target = f"exchange '{destination}'" if to_exchange else f"queue '{destination}'"
    if as_json:
        print_json({"ok": True, "messages": moved})
    else:
        click.echo(f"Moved {counted(moved, 'message')} from queue '{source}' to {target}")


@contextlib.contextmanager
def progress_bar(doing: str, total: int, as_json: bool) -> Iterator[Callable[[int], None]]:
    """Shows how many are done, on stderr, where somebody watches and it takes a while."""
    import sys

    if as_json or total <= FEW or not sys.stderr.isatty():
        yield lambda _moved: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    with Progress(doing, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(doing, total=total)
        yield lambda moved: bar.update(task, completed=moved)
