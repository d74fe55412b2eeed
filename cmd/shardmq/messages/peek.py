"""`shardmq queue peek`: look at messages and leave them where they are."""

import click

from shardmq.cmd.messages.format import described, write_whole
from shardmq.cmd.terminal.completion import completing
from shardmq.cmd.terminal.connection import connected
from shardmq.cmd.terminal.numbers import WholeNumber
from shardmq.cmd.terminal.options import JSON, URL
from shardmq.cmd.terminal.output import print_json

ONE_LOOK = 1000
"""Messages asked for at once."""


@click.command()
@click.argument("name", shell_complete=completing("queues"))
@click.option("--count", "-n", type=WholeNumber(1), default=10, show_default=True, help="How many messages.")
@click.option("--offset", type=WholeNumber(0), default=0, show_default=True, help="So many are passed over first.")
@URL
@JSON
def peek(*, name: str, count: int, offset: int, url: str, as_json: bool) -> None:
    """Show the first messages of queue NAME, and leave all as it is: nobody gets them marked as redelivered."""
    shown = 0
    with connected(url) as connection:
        channel = connection.channel()
        while shown < count:
            messages = channel.queue_peek(name, offset=offset + shown, count=min(count - shown, ONE_LOOK))
            for place, message in enumerate(messages, offset + shown + 1):
                if as_json:
                    print_json(described(message))
                else:
                    write_whole(place, message)
            shown += len(messages)
            if not messages:
                break
    if not shown and not as_json:
        click.echo(f"queue '{name}' has no ready messages" + (f" behind {offset:,}" if offset else ""))
