"""`shardmq consume`: messages of a queue to stdout."""

import sys
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from shardmq.cmd.messages.format import described, write_body
from shardmq.cmd.messages.stdout_reader import StdoutReader
from shardmq.cmd.terminal.completion import completing
from shardmq.cmd.terminal.connection import connected
from shardmq.cmd.terminal.numbers import Number, WholeNumber
from shardmq.cmd.terminal.options import JSON, URL
from shardmq.cmd.terminal.output import CommandFailed
from shardmq.cmd.terminal.values import WHERE_HELP, read_where
from shardmq.errors import ShardmqError
from shardmq.limits import PREFETCH_MAX

if TYPE_CHECKING:
    from shardmq.client.api.message import Batch, Message

PREFETCH: Final = 1000
RABBITMQS_WORDS: Final = {"earliest": "first", "latest": "next"}


@click.command(short_help="Print the messages of a queue.")
@click.argument("queue", shell_complete=completing("queues"))
@click.option("--count", "-n", type=WholeNumber(1), help="Stop after so many messages; fewer is a failure.")
@click.option(
    "--ack/--no-ack",
    default=True,
    show_default=True,
    help="Whether they are done with, or go back to their place in the queue at the end.",
)
@click.option("--follow", is_flag=True, help="Wait for more, until Ctrl-C.")
@click.option(
    "--wait",
    type=Number(0.01),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Without --follow: stop when nothing has come for so long.",
)
@click.option(
    "--prefetch",
    type=WholeNumber(0, PREFETCH_MAX),
    help=f"Messages held unacked at most, 0 for no limit.  [default: {PREFETCH}, --count where that is less]",
)
@click.option("--exclusive", is_flag=True, help="Be the only consumer of the queue, or fail.")
@click.option("--priority", type=WholeNumber(), help="Consumers with a higher one are served first.")
@click.option("--from", "start", metavar="WHERE", help=f"Of a stream, or where a new group begins. {WHERE_HELP}")
@click.option("--tag", "tags", multiple=True, help="Of a stream: messages with this tag; may be repeated.")
@click.option("--group", help="Of a topic or stream: as a member of this consumer group, whose offsets are kept.")
@click.option("--shared", is_flag=True, help="With --group: its members get messages in turn.")
@URL
@JSON
def consume(
    *,
    queue: str,
    count: int | None,
    ack: bool,
    follow: bool,
    wait: float,
    prefetch: int | None,
    exclusive: bool,
    priority: int | None,
    start: str | None,
    tags: tuple[str, ...],
    group: str | None,
    shared: bool,
    url: str,
    as_json: bool,
) -> None:
    """Print the messages of QUEUE: bodies, a line each; with --json everything about them.

    A message is acked when its line is written; in a pipe, when the reader has taken it. When the reader goes away, as
    `head` does, everything else stays in the queue.
    """
    if prefetch is None:
        prefetch = min(count or PREFETCH, PREFETCH) if ack else 0  # not acked, they would fill any prefetch for ever
    if shared and group is None:
        raise click.UsageError("--shared says what kind of group it is: name it with --group")
    arguments = _arguments(priority, start, tags, group, shared)
    reader = StdoutReader()
    consumed = 0
    with connected(url) as connection:
        if follow:
            reader.watch(connection.close)
        batches = connection.channel().consume_batches(
            queue, prefetch, inactivity_timeout=None if follow else wait, exclusive=exclusive, arguments=arguments
        )
        try:
            for batch in batches:
                messages = batch.messages if count is None else batch.messages[: count - consumed]
                with reader.working():
                    print_and_ack(batch, messages, reader, as_json, ack)
                consumed += len(messages)
                if consumed == count:
                    break
        except ShardmqError as fault:
            if reader.is_gone:  # that is why the connection was closed
                raise BrokenPipeError from fault
            raise
    if count is not None and consumed < count:
        raise CommandFailed(f"queue '{queue}' gave {consumed:,} of {count:,} messages within {wait:g} s")


def _arguments(
    priority: int | None, start: str | None, tags: tuple[str, ...], group: str | None, is_shared: bool
) -> dict[str, Any]:
    """The consumer's arguments, as RabbitMQ calls them; those of groups are shardmq's."""
    offset = None if start is None else read_where(start, "--from")
    arguments = {
        "x-priority": priority,
        "x-stream-offset": RABBITMQS_WORDS.get(start or "", offset),
        "x-stream-filter": list(tags) or None,
        "x-group": group,
        "x-group-type": "shared" if is_shared else None,
    }
    return {name: value for name, value in arguments.items() if value is not None}


def print_and_ack(batch: "Batch", messages: "list[Message]", reader: StdoutReader, as_json: bool, ack: bool) -> None:
    """Print messages, and ack those that are written.

    Args:
        batch: what they came in.
        messages: those of it that are wanted, its first ones.
        reader: of stdout; one that reads from a pipe is waited for after each message.
        as_json: whether everything about them is printed.
        ack: whether they are acked.

    Raises:
        BrokenPipeError: the reader is gone; what it has not taken is not acked.
    """
    for message in messages:
        write(message, as_json)
        if reader.is_pipe:
            reader.flush()
            if ack:
                message.ack()
    reader.flush()
    if not ack or reader.is_pipe:
        return
    if len(messages) == len(batch):
        batch.ack()
    else:
        for message in messages:
            message.ack()


def write(message: "Message", as_json: bool) -> None:
    """Write one message to stdout."""
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode(described(message)) + b"\n")
    else:
        write_body(message)
