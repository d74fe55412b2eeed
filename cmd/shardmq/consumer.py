"""`shardmq consumer`: list."""

import click

from shardmq.cmd.listing import rows_of, show
from shardmq.cmd.session import JSON, URL


@click.group()
def consumer() -> None:
    """Consumers: list."""


@consumer.command("list")
@URL
@JSON
def consumer_list(*, url: str, as_json: bool) -> None:
    """Show the consumers of the connections this user may see."""
    columns = ("queue", "vhost", "tag", "connection", "channel", "auto_ack", "exclusive")
    show("consumers", rows_of(url, "consumers"), as_json, columns, ("priority", "prefetch"))
