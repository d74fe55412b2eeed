"""`shardmq exchange`, `queue` and `binding`: list, declare, delete; and `queue purge`."""

from collections.abc import Callable
from typing import Any, Final

import click

from shardmq.cmd.session import JSON, URL, counted, new_table, print_json

DURABLE: Final = click.option(
    "--durable/--transient", default=True, show_default=True, help="Whether it survives a restart of the broker."
)

COLUMNS: Final = {
    "exchanges": ("name", "type", "durable", "arguments"),
    "queues": ("name", "shard", "durable", "arguments"),
    "bindings": ("exchange", "queue", "routing_key", "arguments"),
}
"""What `list` shows of each noun."""


@click.group()
def exchange() -> None:
    """Exchanges: list, declare, delete."""


@click.group()
def queue() -> None:
    """Queues: list, declare, delete, purge."""


@click.group()
def binding() -> None:
    """Bindings: list, declare, delete."""


def show_list(url: str, as_json: bool, noun: str) -> None:
    """Print all of a noun that the virtual host has."""
    from shardmq.client.connection import connect

    with connect(url) as connection:
        rows = connection.topology(noun)
    if as_json:
        print_json(rows)
        return
    from rich.console import Console

    columns = tuple(column.replace("_", " ") for column in COLUMNS[noun])
    table = new_table(noun, columns, caption=counted(len(rows), noun.removesuffix("s")))
    for row in rows:
        table.add_row(*(cell(row[column]) for column in COLUMNS[noun]))
    Console().print(table)


def cell(value: Any) -> str:
    """A value as a table shows it."""
    from rich.markup import escape

    if isinstance(value, bool):
        return "yes" if value else "no"
    if value == {}:
        return ""
    return "(default)" if value == "" else escape(str(value))


def carry_out(url: str, as_json: bool, sentence: str, action: Callable[[Any], int | None]) -> None:
    """Do one thing on a channel and say that it is done.

    Args:
        url: the broker.
        as_json: for machines.
        sentence: what was done; `{messages}` stands for what the action returned.
        action: gets the channel; returns a number of messages, or None where there is none to tell.
    """
    from shardmq.client.connection import connect

    with connect(url) as connection:
        messages = action(connection.channel())
    if as_json:
        print_json({"ok": True} if messages is None else {"ok": True, "messages": messages})
    else:
        click.echo(sentence.replace("{messages}", counted(messages or 0, "message")))


@exchange.command("list")
@URL
@JSON
def exchange_list(*, url: str, as_json: bool) -> None:
    """Show all exchanges."""
    show_list(url, as_json, "exchanges")


@exchange.command("declare")
@click.argument("name")
@click.option("--type", "kind", default="direct", show_default=True, help="direct, fanout or topic.")
@DURABLE
@URL
@JSON
def exchange_declare(*, name: str, kind: str, durable: bool, url: str, as_json: bool) -> None:
    """Make exchange NAME, or find the same one there."""
    carry_out(
        url,
        as_json,
        f"exchange '{name}' is there",
        lambda channel: channel.exchange_declare(name, kind, durable=durable),
    )


@exchange.command("delete")
@click.argument("name")
@URL
@JSON
def exchange_delete(*, name: str, url: str, as_json: bool) -> None:
    """Remove exchange NAME and its bindings."""
    carry_out(url, as_json, f"exchange '{name}' is deleted", lambda channel: channel.exchange_delete(name))


@queue.command("list")
@URL
@JSON
def queue_list(*, url: str, as_json: bool) -> None:
    """Show all queues; `shardmq status` shows what is in them."""
    show_list(url, as_json, "queues")


@queue.command("declare")
@click.argument("name")
@DURABLE
@URL
@JSON
def queue_declare(*, name: str, durable: bool, url: str, as_json: bool) -> None:
    """Make queue NAME, or find the same one there."""

    def declare(channel: Any) -> None:
        channel.queue_declare(name, durable=durable)

    carry_out(url, as_json, f"queue '{name}' is there", declare)


@queue.command("delete")
@click.argument("name")
@URL
@JSON
def queue_delete(*, name: str, url: str, as_json: bool) -> None:
    """Remove queue NAME with its messages and bindings."""
    carry_out(
        url, as_json, f"queue '{name}' is deleted, {{messages}} with it", lambda channel: channel.queue_delete(name)
    )


@queue.command("purge")
@click.argument("name")
@URL
@JSON
def queue_purge(*, name: str, url: str, as_json: bool) -> None:
    """Remove the messages that are ready in queue NAME."""
    carry_out(url, as_json, f"{{messages}} removed from queue '{name}'", lambda channel: channel.queue_purge(name))


@binding.command("list")
@URL
@JSON
def binding_list(*, url: str, as_json: bool) -> None:
    """Show all bindings."""
    show_list(url, as_json, "bindings")


@binding.command("declare")
@click.argument("exchange")
@click.argument("queue")
@click.argument("routing_key", default="")
@URL
@JSON
def binding_declare(*, exchange: str, queue: str, routing_key: str, url: str, as_json: bool) -> None:
    """Bind QUEUE to EXCHANGE with ROUTING_KEY."""
    carry_out(
        url,
        as_json,
        f"queue '{queue}' gets what is published to '{exchange}' with '{routing_key}'",
        lambda channel: channel.queue_bind(queue, exchange, routing_key),
    )


@binding.command("delete")
@click.argument("exchange")
@click.argument("queue")
@click.argument("routing_key", default="")
@URL
@JSON
def binding_delete(*, exchange: str, queue: str, routing_key: str, url: str, as_json: bool) -> None:
    """Remove the binding of QUEUE to EXCHANGE with ROUTING_KEY."""
    carry_out(
        url,
        as_json,
        f"queue '{queue}' is not bound to '{exchange}' with '{routing_key}' any more",
        lambda channel: channel.queue_unbind(queue, exchange, routing_key),
    )
