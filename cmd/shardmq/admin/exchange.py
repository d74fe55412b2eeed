"""`shardmq exchange`: list, declare, delete."""

from typing import Any

import click

from shardmq.cmd.terminal.connection import JSON, URL
from shardmq.cmd.terminal.tables import ARGUMENTS, DURABLE, carry_out, on_channel, rows_of, show, with_features


@click.group()
def exchange() -> None:
    """Exchanges: list, declare, delete."""


@exchange.command("list")
@URL
@JSON
def exchange_list(*, url: str, as_json: bool) -> None:
    """Show all exchanges."""
    rows = rows_of(url, "exchanges")
    if not as_json:
        rows = with_features(rows, "durable", "auto_delete", "internal")
    show("exchanges", rows, as_json, ("name", "type", "features", "arguments"))


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
    """Make exchange NAME, or find the same one there."""
    carry_out(
        url,
        as_json,
        f"exchange '{name}' is there",
        on_channel(
            lambda channel: channel.exchange_declare(
                name, kind, durable=durable, arguments=arguments, auto_delete=auto_delete, internal=internal
            )
        ),
    )


@exchange.command("delete")
@click.argument("name")
@click.option("--if-unused", is_flag=True, help="Only where nothing is bound to it.")
@URL
@JSON
def exchange_delete(*, name: str, if_unused: bool, url: str, as_json: bool) -> None:
    """Remove exchange NAME and its bindings."""
    carry_out(
        url,
        as_json,
        f"exchange '{name}' is deleted",
        on_channel(lambda channel: channel.exchange_delete(name, if_unused=if_unused)),
    )
