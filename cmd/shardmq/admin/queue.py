"""`shardmq queue`: list, declare, delete, purge; `peek`, `search`, `move` and `republish` are in files of their own."""

from typing import Any, Final

import click

from shardmq.cmd.messages.move import move
from shardmq.cmd.messages.peek import peek
from shardmq.cmd.messages.republish import republish
from shardmq.cmd.messages.search import search
from shardmq.cmd.terminal.completion import completing
from shardmq.cmd.terminal.connection import carry_out, connected, on_channel, rows_of
from shardmq.cmd.terminal.options import ARGUMENTS, DURABLE, JSON, LIST, URL, YES
from shardmq.cmd.terminal.output import confirm, print_done
from shardmq.cmd.terminal.rows import Column, Row, RowChoice, extras, features, names, numbers, plain
from shardmq.cmd.terminal.tables import print_list
from shardmq.cmd.terminal.values import counted

FEATURES: Final = features("durable", "auto_delete", "exclusive")


def _features(row: Row) -> list[str]:
    """The features, and the arguments without their "x-": a column of their own fits no terminal."""
    arguments = [f"{name.removeprefix('x-')}={plain(value)}" for name, value in row["arguments"].items()]
    return [*FEATURES.of(row), *arguments]


COLUMNS: Final = (
    *names("name"),
    *numbers("ready", "unacked", "delayed", "consumers"),
    Column("features", _features, is_wrapped=True),
    *extras("vhost", "shard", "messages", "bytes", "durable", "auto_delete", "exclusive", "owner", "arguments"),
)


@click.group()
def queue() -> None:
    """Queues: list, declare, delete, purge, peek, search, move, republish."""


queue.add_command(peek)
queue.add_command(search)
queue.add_command(move)
queue.add_command(republish)


@queue.command("list")
@URL
@LIST
def queue_list(*, url: str, choice: RowChoice, as_json: bool) -> None:
    """Show all queues and what is in them; `shardmq status` shows rates."""
    print_list("queues", rows_of(url, "queues"), COLUMNS, choice, as_json)


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
    """Declare queue NAME: make it, or find the same one there. Without a NAME the broker makes one up."""
    with connected(url) as connection:
        declared = connection.channel().queue_declare(
            name, durable=durable, arguments=arguments, auto_delete=auto_delete
        )
    sentence = f"Declared queue '{declared.queue}' ({counted(declared.messages, 'message')})"
    facts = {"queue": declared.queue, "messages": declared.messages, "consumers": declared.consumers}
    print_done(sentence, as_json, **facts)


@queue.command("delete")
@click.argument("name", shell_complete=completing("queues"))
@click.option("--if-unused", is_flag=True, help="Only where it has no consumers.")
@click.option("--if-empty", is_flag=True, help="Only where it has no ready messages.")
@YES
@URL
@JSON
def queue_delete(*, name: str, if_unused: bool, if_empty: bool, yes: bool, url: str, as_json: bool) -> None:
    """Remove queue NAME with its messages and bindings."""
    confirm(f"Delete queue '{name}' with its messages?", f"deleting queue '{name}' deletes its messages", yes)
    delete = on_channel(lambda channel: channel.queue_delete(name, if_unused=if_unused, if_empty=if_empty))
    carry_out(url, as_json, f"Deleted queue '{name}' with {{messages}}", delete)


@queue.command("purge")
@click.argument("name", shell_complete=completing("queues"))
@YES
@URL
@JSON
def queue_purge(*, name: str, yes: bool, url: str, as_json: bool) -> None:
    """Remove the messages that are ready in queue NAME."""
    confirm(f"Remove all ready messages from queue '{name}'?", f"purging queue '{name}' removes its messages", yes)
    purge = on_channel(lambda channel: channel.queue_purge(name))
    carry_out(url, as_json, f"Purged {{messages}} from queue '{name}'", purge)
