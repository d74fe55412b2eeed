"""`shardmq queue`: list, declare, delete, purge; `peek` and `move` are in files of their own."""

from typing import Any

import click

from shardmq.cmd.messages.move import move
from shardmq.cmd.messages.peek import peek
from shardmq.cmd.terminal.connection import JSON, URL, connected, counted, print_json
from shardmq.cmd.terminal.tables import ARGUMENTS, DURABLE, Row, carry_out, on_channel, rows_of, show, with_features


@click.group()
def queue() -> None:
    """Queues: list, declare, delete, purge, peek, move."""


queue.add_command(peek)
queue.add_command(move)


@queue.command("list")
@URL
@JSON
def queue_list(*, url: str, as_json: bool) -> None:
    """Show all queues and what is in them; `shardmq status` shows rates."""
    rows = rows_of(url, "queues")
    if not as_json:
        rows = [with_arguments(row) for row in with_features(rows, "durable", "auto_delete", "exclusive")]
    numbers = ("ready", "unacked", "delayed", "consumers")
    show("queues", rows, as_json, ("name", "features"), numbers)


def with_arguments(row: Row) -> Row:
    """The row with its arguments among the features, named without x-: a column of their own fits no terminal."""
    arguments = [f"{name.removeprefix('x-')}={value}" for name, value in row["arguments"].items()]
    return {**row, "features": [*row["features"], *arguments]}


@queue.command("declare")
@click.argument("name", default="")
@DURABLE
@click.option("--auto-delete", is_flag=True, help="It goes when its last consumer is gone.")
@ARGUMENTS
@URL
@JSON
def queue_declare(
    *, name: str, durable: bool, auto_delete: bool, arguments: dict[str, Any], url: str, as_json: bool
) -> None:
    """Make queue NAME, or find the same one there. Without a NAME the broker makes one up."""
    with connected(url) as connection:
        declared = connection.channel().queue_declare(
            name, durable=durable, arguments=arguments, auto_delete=auto_delete
        )
    if as_json:
        print_json(
            {"ok": True, "queue": declared.queue, "messages": declared.messages, "consumers": declared.consumers}
        )
    else:
        click.echo(f"queue '{declared.queue}' is there with {counted(declared.messages, 'message')}")


@queue.command("delete")
@click.argument("name")
@click.option("--if-unused", is_flag=True, help="Only where it has no consumers.")
@click.option("--if-empty", is_flag=True, help="Only where it has no ready messages.")
@URL
@JSON
def queue_delete(*, name: str, if_unused: bool, if_empty: bool, url: str, as_json: bool) -> None:
    """Remove queue NAME with its messages and bindings."""
    carry_out(
        url,
        as_json,
        f"queue '{name}' is deleted, {{messages}} with it",
        on_channel(lambda channel: channel.queue_delete(name, if_unused=if_unused, if_empty=if_empty)),
    )


@queue.command("purge")
@click.argument("name")
@URL
@JSON
def queue_purge(*, name: str, url: str, as_json: bool) -> None:
    """Remove the messages that are ready in queue NAME."""
    carry_out(
        url,
        as_json,
        f"{{messages}} removed from queue '{name}'",
        on_channel(lambda channel: channel.queue_purge(name)),
    )
