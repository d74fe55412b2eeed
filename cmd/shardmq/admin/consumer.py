"""`shardmq consumer`: list."""

import click

from shardmq.cmd.terminal.connection import JSON, URL
from shardmq.cmd.terminal.tables import rows_of, show, with_features


@click.group()
def consumer() -> None:
    """Consumers: list."""


@consumer.command("list")
@URL
@JSON
def consumer_list(*, url: str, as_json: bool) -> None:
    """Show the consumers of the connections this user may see."""
    rows = rows_of(url, "consumers")
    if not as_json:
        rows = with_features(rows, "auto_ack", "exclusive", otherwise="")
    columns = ("queue", "vhost", "tag", "connection", "features")
    show("consumers", rows, as_json, columns, ("priority", "prefetch"))
