"""`shardmq queue move`: messages of a queue to another, or to an exchange. One is acked when its copy is confirmed."""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import click

from shardmq.cmd.terminal.completion import completing
from shardmq.cmd.terminal.connection import connected
from shardmq.cmd.terminal.numbers import WholeNumber
from shardmq.cmd.terminal.options import JSON, URL
from shardmq.cmd.terminal.output import print_json
from shardmq.cmd.terminal.values import counted
from shardmq.errors import ShardmqError

if TYPE_CHECKING:
    from shardmq.client.api.message import Message
    from shardmq.client.sync.channel import Channel

PREFETCH: Final = 1000
"""Messages on their way at once; so many may be there twice where a move is broken off."""

IDLE_SECONDS: Final = 2.0
"""A queue that gives nothing for so long has nothing left that others do not hold."""

Route = Callable[["Message"], tuple[str, str]]
"""Exchange and routing key a message goes to."""


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

    A message leaves SOURCE when its copy is confirmed; one that no queue takes stays, and ends the move.
    """
    if routing_key is not None and not to_exchange:
        raise click.UsageError("--routing-key goes together with --to-exchange")

    def route(message: "Message") -> tuple[str, str]:
        if not to_exchange:
            return "", destination
        return destination, message.routing_key if routing_key is None else routing_key

    with connected(url) as connection:
        channel = connection.channel()
        ready = channel.queue_declare(source, passive=True).messages
        if to_exchange and destination:
            channel.exchange_declare(destination, passive=True)
        elif not to_exchange:
            channel.queue_declare(destination, passive=True)
        total = ready if count is None else min(count, ready)
        with progress_bar("moving", total, as_json) as progress:
            moved = move_all(channel, source, route, total, progress)
    target = f"exchange '{destination}'" if to_exchange else f"queue '{destination}'"
    if as_json:
        print_json({"ok": True, "messages": moved})
    else:
        click.echo(f"Moved {counted(moved, 'message')} from queue '{source}' to {target}")


def move_all(channel: "Channel", source: str, route: Route, total: int, progress: Callable[[int], None]) -> int:
    """Move up to `total` messages; returns how many it were.

    Raises:
        ShardmqError: a message was not taken; the text says how many were moved before.
    """
    from shardmq.client.api.message import properties_of_copy

    moved = 0
    if not total:
        return 0
    batches = channel.consume_batches(source, prefetch=min(total, PREFETCH), inactivity_timeout=IDLE_SECONDS)
    with channel.publisher(window=PREFETCH) as publisher:
        for batch in batches:
            messages = batch.messages[: total - moved]
            try:
                for message in messages:
                    exchange, routing_key = route(message)
                    properties = properties_of_copy(message)
                    if moved == 0 and message is messages[0]:  # whatever is wrong shows at the first, harmlessly
                        channel.basic_publish(exchange, routing_key, message.body, properties, mandatory=True)
                    else:
                        publisher.publish(exchange, routing_key, message.body, properties, mandatory=True)
                publisher.flush()
            except ShardmqError as fault:
                raise fault.with_text(f"{fault.text}; {counted(moved, 'message')} moved before") from fault
            for message in messages:
                message.ack()
            moved += len(messages)
            progress(moved)
            if moved == total:
                break
    return moved


@contextlib.contextmanager
def progress_bar(doing: str, total: int, as_json: bool) -> Iterator[Callable[[int], None]]:
    """Shows how many are done, on stderr, where somebody watches and it takes a while."""
    import sys

    if as_json or total <= PREFETCH or not sys.stderr.isatty():
        yield lambda _moved: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    with Progress(doing, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(doing, total=total)
        yield lambda moved: bar.update(task, completed=moved)
