"""`shardmq consume`: messages of a queue to stdout."""

import sys
from typing import TYPE_CHECKING, Final

import click

from shardmq.cmd.messages.format import described, write_body
from shardmq.cmd.terminal.connection import JSON, URL, connected, print_json
from shardmq.limits import PREFETCH_MAX

if TYPE_CHECKING:
    from shardmq.client.api.message import Message

PREFETCH: Final = 1000
EXIT_TOO_FEW: Final = 1


@click.command(short_help="Print the messages of a queue.")
@click.argument("queue")
@click.option("--count", "-n", type=click.IntRange(1), help="Stop after so many messages; fewer is a failure.")
@click.option(
    "--ack/--no-ack",
    default=True,
    show_default=True,
    help="Whether they are done with, or go back to their place in the queue at the end.",
)
@click.option("--follow", is_flag=True, help="Wait for more, until Ctrl-C.")
@click.option(
    "--wait",
    type=click.FloatRange(0.01),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Without --follow: stop when nothing has come for so long.",
)
@click.option(
    "--prefetch",
    type=click.IntRange(0, PREFETCH_MAX),
    help=f"Messages held unacked at most, 0 for no limit.  [default: {PREFETCH}, --count where that is less]",
)
@click.option("--exclusive", is_flag=True, help="Be the only consumer of the queue, or fail.")
@click.option("--priority", type=int, help="Consumers with a higher one are served first.")
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
    url: str,
    as_json: bool,
) -> int:
    """Print the messages of QUEUE: bodies, a line each; with --json everything about them.

    A message is acked after it has been written.
    """
    if prefetch is None:
        prefetch = min(count or PREFETCH, PREFETCH) if ack else 0  # not acked, they would fill any prefetch for ever
    arguments = {} if priority is None else {"x-priority": priority}
    consumed = 0
    with connected(url) as connection:
        channel = connection.channel()
        patience = None if follow else wait
        for batch in channel.consume_batches(
            queue, prefetch, inactivity_timeout=patience, exclusive=exclusive, arguments=arguments
        ):
            messages = batch.messages if count is None else batch.messages[: count - consumed]
            for message in messages:
                write(message, as_json)
            sys.stdout.buffer.flush()
            if ack and len(messages) == len(batch):
                batch.ack()
            elif ack:
                for message in messages:
                    message.ack()
            consumed += len(messages)
            if consumed == count:
                break
    if count is not None and consumed < count:
        click.secho(f"Error: {consumed} of {count} messages came within {wait:g} s", fg="red", err=True)
        return EXIT_TOO_FEW
    return 0


def write(message: "Message", as_json: bool) -> None:
    """One message to stdout."""
    if as_json:
        print_json(described(message))
    else:
        write_body(message)
