"""`shardmq channel`: list."""

import click

from shardmq.cmd.terminal.connection import JSON, URL
from shardmq.cmd.terminal.tables import rows_of, show


@click.group()
def channel() -> None:
    """Channels: list."""


@channel.command("list")
@URL
@JSON
def channel_list(*, url: str, as_json: bool) -> None:
    """Show the channels of the connections this user may see."""
    columns = ("connection", "number", "user", "vhost")
    rows = rows_of(url, "channels")
    if not as_json:
        rows = [{**row, "mode": [mode for mode in ("confirm", "transactional") if row[mode]]} for row in rows]
    show("channels", rows, as_json, (*columns, "mode"), ("consumers", "unacked", "unconfirmed"))
