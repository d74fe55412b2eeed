"""`shardmq trace`: on, off, status, follow; what is published and delivered in a virtual host."""

import shutil
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from shardmq.cmd.admin.permission import VHOST, named_vhost
from shardmq.cmd.messages.following import Terms, copies_of, first_of, read_by
from shardmq.cmd.messages.format import described
from shardmq.cmd.messages.stdout_reader import StdoutReader
from shardmq.cmd.terminal.connection import carry_out, connected, rows_of
from shardmq.cmd.terminal.numbers import Number, WholeNumber
from shardmq.cmd.terminal.options import BROKER, JSON, LIST, URL
from shardmq.cmd.terminal.output import CommandFailed, print_json
from shardmq.cmd.terminal.rows import Column, Row, RowChoice, names, plain
from shardmq.cmd.terminal.tables import print_list
from shardmq.cmd.terminal.values import size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardmq.client.api.message import Batch, Message

EXCHANGE: Final = "amq.rabbitmq.trace"
COLUMNS: Final = (
    *names("name"),
    Column("tracing", text=lambda value: "on" if value else "off"),
    Column("trace_sample", is_number=True, text=lambda value: f"{value:g}" if value else ""),
)


@click.group()
def trace() -> None:
    """Copies of all that is published and delivered in a virtual host: on, off, status, follow."""


@trace.command("on")
@click.option(
    "--sample",
    type=Number(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    metavar="SHARE",
    help="Which part of the messages is copied: 0.01 is one of a hundred.",
)
@VHOST
@BROKER
@JSON
def trace_on(*, sample: float, vhost: str | None, url: str, as_json: bool) -> None:
    """Have messages of a virtual host copied to its exchange amq.rabbitmq.trace, until the broker stops.

    A copy costs as much as a message. Whoever may read that exchange sees them, bodies included.
    """
    place = named_vhost(vhost, url)
    which = "all messages" if sample == 1 else f"{sample:g} of the messages"
    done = f"Tracing {which} of virtual host '{place}'; `shardmq trace follow` shows them"
    carry_out(url, as_json, done, lambda connection: connection.tracing_put(place, sample))


@trace.command("off")
@VHOST
@BROKER
@JSON
def trace_off(*, vhost: str | None, url: str, as_json: bool) -> None:
    """Have messages of a virtual host copied no longer."""
    place = named_vhost(vhost, url)
    done = f"Stopped tracing virtual host '{place}'"
    carry_out(url, as_json, done, lambda connection: connection.tracing_put(place, 0))


@trace.command("status")
@BROKER
@LIST
def trace_status(*, url: str, choice: RowChoice, as_json: bool) -> None:
    """Show which virtual hosts are traced, and which part of their messages."""
    rows = [{column.name: row[column.name] for column in COLUMNS} for row in rows_of(url, "vhosts")]
    print_list("virtual hosts", rows, COLUMNS, choice, as_json)


@trace.command("follow")
@click.option("--exchange", "exchanges", multiple=True, help="Only publishes to this exchange; may be repeated.")
@click.option("--queue", "queues", multiple=True, help="Only deliveries from this queue; may be repeated.")
@click.option("--count", "-n", type=WholeNumber(1), help="Stop after so many; without it, at Ctrl-C.")
@URL
@JSON
def trace_follow(
    *, exchanges: tuple[str, ...], queues: tuple[str, ...], count: int | None, url: str, as_json: bool
) -> None:
    """Print publishes and deliveries of a virtual host that is traced, as they come.

    Whoever is behind by 10,000 of them or 64 MiB misses the oldest.

    On a terminal they are shown for people, in a pipe as JSON, a line each.
    """
    reader = StdoutReader()
    place = named_vhost(None, url)
    with connected(url) as connection:
        if not any(row["name"] == place and row["tracing"] for row in connection.topology("vhosts")):
            raise CommandFailed(
                f"virtual host '{place}' is not traced; `shardmq trace on --vhost {place}` has it traced"
            )
        keys = [f"publish.{name}" for name in exchanges] + [f"deliver.{name}" for name in queues]
        terms: list[Terms] = [(key, {}) for key in keys or ["#"]]
        with read_by(reader, connection):
            copies = copies_of(connection, EXCHANGE, terms, f"Following virtual host '{place}'")
            _print(copies, reader, count, as_json or not sys.stdout.isatty())


def _print(copies: "Iterator[Batch]", reader: StdoutReader, count: int | None, as_json: bool) -> None:
    """Print copies until there were enough of them."""
    for _, batch, messages in first_of(copies, count):
        with reader.working():
            for message in messages:
                facts = traced(message)
                if as_json:
                    print_json(facts)
                else:
                    click.echo(line(facts, len(message.body), shutil.get_terminal_size().columns))
            reader.flush()
            batch.ack()


def traced(message: "Message") -> Row:
    """What a copy says of a message: `event` is "publish" or "deliver"; body and headers as they were."""
    event, _, name = message.routing_key.partition(".")
    facts: dict[str, Any] = {"event": event, "timestamp_ms": message.timestamp_ms}
    if event == "deliver":
        facts["queue"] = name
    facts |= message.properties.headers or {}
    facts |= {name: value for name, value in described(message).items() if name in ("body", "body_base64")}
    return facts


def line(facts: Row, body_bytes: int, width: int) -> str:
    """A copy as one line for people.

    Args:
        facts: as `traced` gives them.
        body_bytes: the size of the body.
        width: of the terminal; the body is cut off there.
    """
    at = datetime.fromtimestamp(facts["timestamp_ms"] / 1000).strftime("%H:%M:%S.%f")[:-3]
    exchange = facts["exchange_name"] or "(default)"
    keys = ", ".join(map(str, facts["routing_keys"]))
    if facts["event"] == "deliver":
        again = " again" if facts.get("redelivered") else ""
        what = f"deliver from {facts['queue']}{again}: {exchange} '{keys}'"
    else:
        what = f"publish to {exchange} '{keys}' -> {', '.join(facts.get('routed_queues', ())) or 'nowhere'}"
    head = f"{at} {what} ({facts['user']}, {size(body_bytes)}) "
    body = facts.get("body", "base64: " + facts.get("body_base64", ""))
    return plain(head + body[:width])[: max(width, len(head))]
