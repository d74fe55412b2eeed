"""`shardmq exchange`: list, declare, delete."""

from typing import Any, Final

import click

from shardmq.cmd.terminal.completion import completing
from shardmq.cmd.terminal.connection import carry_out, connected, on_channel, rows_of
from shardmq.cmd.terminal.options import ARGUMENTS, DURABLE, JSON, LIST, URL
from shardmq.cmd.terminal.output import print_done
from shardmq.cmd.terminal.rows import Column, RowChoice, extras, features, names
from shardmq.cmd.terminal.tables import print_list

COLUMNS: Final = (
    *names("name", "type"),
    features("durable", "auto_delete", "internal"),
    Column("arguments", is_wrapped=True),
    *extras("vhost", "durable", "auto_delete", "internal"),
)


@click.group()
def exchange() -> None:
    """Exchanges: list, declare, delete."""


@exchange.command("list")
@URL
@LIST
def exchange_list(*, url: str, choice: RowChoice, as_json: bool) -> None:
    """Show all exchanges."""
    print_list("exchanges", rows_of(url, "exchanges"), COLUMNS, choice, as_json)


@exchange.command("declare")
@click.argument("name")
@click.option(
    "--type", "kind", default="direct", show_default=True, help="direct, fanout, topic, headers or x-consistent-hash."
)
@DURABLE
@click.option("--auto-delete", is_flag=True, help="It goes when the last thing bound to it is gone.")
@click.option("--internal", is_flag=True, help="Only other exchanges publish to it.")
@ARGUMENTS
@URL
@JSON
def exchange_declare(
    *,
    name: str,
    kind: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: dict[str, Any],
    url: str,
    as_json: bool,
) -> None:
    """Declare exchange NAME: make it, or find the same one there."""
    with connected(url) as connection:
        connection.channel().exchange_declare(
            name, kind, durable=durable, arguments=arguments, auto_delete=auto_delete, internal=internal
        )
    print_done(f"Declared exchange '{name}' ({kind})", as_json)


@exchange.command("delete")
@click.argument("name", shell_complete=completing("exchanges"))
@click.option("--if-unused", is_flag=True, help="Only where nothing is bound to it.")
@URL
@JSON
def exchange_delete(*, name: str, if_unused: bool, url: str, as_json: bool) -> None:
    """Remove exchange NAME and its bindings."""
    delete = on_channel(lambda channel: channel.exchange_delete(name, if_unused=if_unused))
    carry_out(url, as_json, f"Deleted exchange '{name}'", delete)
