"""`shardmq tap`: copies of what passes an exchange, without touching its queues."""

import sys
from typing import TYPE_CHECKING, Final

import click

from shardmq.cmd.messages.consume import print_and_ack
from shardmq.cmd.messages.following import Terms, copies_of, first_of, read_by
from shardmq.cmd.messages.format import write_whole
from shardmq.cmd.messages.stdout_reader import StdoutReader
from shardmq.cmd.terminal.completion import completing
from shardmq.cmd.terminal.connection import connected
from shardmq.cmd.terminal.numbers import WholeNumber
from shardmq.cmd.terminal.options import JSON, URL
from shardmq.cmd.terminal.output import CommandFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardmq.client.api.message import Batch
    from shardmq.client.sync.connection import Connection

ONE_DESTINATION: Final = ("x-consistent-hash", "x-partition")
"""Types of exchanges that choose one destination for a message: a tap there would take messages from the others."""


@click.command(short_help="Print copies of what passes an exchange.")
@click.argument("exchange", shell_complete=completing("exchanges"))
@click.option("--key", "keys", multiple=True, help="Bind with this key, not as its queues are; may be repeated.")
@click.option("--count", "-n", type=WholeNumber(1), help="Stop after so many messages; without it, at Ctrl-C.")
@URL
@JSON
def tap(*, exchange: str, keys: tuple[str, ...], count: int | None, url: str, as_json: bool) -> None:
    """Print copies of what passes EXCHANGE, from now on; its queues and their consumers see no difference.

    The copies come through a queue of this command's own, which is bound as the exchange's destinations are now, and
    is deleted at the end. Whoever is behind by 10,000 messages or 64 MiB misses the oldest.

    On a terminal messages are shown for people, in a pipe as JSON, a line each.
    """
    reader = StdoutReader()
    with connected(url) as connection:
        terms = _terms(connection, exchange, keys)
        with read_by(reader, connection):
            copies = copies_of(connection, exchange, terms, f"Tapping exchange '{exchange}'")
            _print(copies, reader, count, as_json or not sys.stdout.isatty())


def _terms(connection: "Connection", exchange: str, keys: tuple[str, ...]) -> list[Terms]:
    """With which keys and arguments a tap is bound."""
    if not exchange:
        raise CommandFailed("nothing can be bound to the default exchange; `shardmq queue peek QUEUE` looks at a queue")
    (kind,) = [row["type"] for row in connection.topology("exchanges") if row["name"] == exchange] or [None]
    if kind is None:
        raise CommandFailed(f"there is no exchange '{exchange}'; `shardmq exchange list` shows those that there are")
    if kind in ONE_DESTINATION:
        raise CommandFailed(
            f"exchange '{exchange}' of type {kind} gives each message to one destination, so that a tap would take "
            "messages from the others; tap the exchange in front of it, or look into its queues with "
            "`shardmq queue peek`"
        )
    if keys:
        if kind == "headers":
            raise CommandFailed(f"exchange '{exchange}' goes by headers, not by keys; leave --key out")
        return [(key, {}) for key in dict.fromkeys(keys)]
    terms: list[Terms] = []
    for row in connection.topology("bindings"):
        each = row["routing_key"], row["arguments"]
        if row["source"] == exchange and each not in terms:
            terms.append(each)
    if not terms:
        raise CommandFailed(
            f"nothing is bound to exchange '{exchange}', so nothing passes it; --key taps what no queue gets, too"
        )
    return terms


def _print(copies: "Iterator[Batch]", reader: StdoutReader, count: int | None, as_json: bool) -> None:
    """Print copies until there were enough of them."""
    for shown, batch, messages in first_of(copies, count):
        with reader.working():
            if as_json:
                print_and_ack(batch, messages, reader, as_json=True, ack=True)
            else:
                for number, message in enumerate(messages, shown + 1):
                    write_whole(number, message)
                batch.ack()
