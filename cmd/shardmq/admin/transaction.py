"""`shardmq transaction`: list, abort."""

import sys

import click

from shardmq.cmd.terminal.connection import JSON, URL
from shardmq.cmd.terminal.tables import Row, carry_out, on_channel, rows_of, show
from shardmq.cmd.terminal.values import duration, size


@click.group()
def transaction() -> None:
    """Transactions that nobody has decided about: list, abort."""


@transaction.command("list")
@URL
@JSON
def transaction_list(*, url: str, as_json: bool) -> None:
    """Show the undecided transactions of the virtual host: whose, how long they may go on, what is staged for them."""
    rows = rows_of(url, "transactions")
    if not as_json:
        rows = [readable(row) for row in rows]
    show("transactions", rows, as_json, ("name", "user"), ("idle", "timeout", "attempts", "messages", "bytes"))


def readable(row: Row) -> Row:
    """The row with times and bytes as people read them."""
    return {
        **row,
        "idle": duration(row["idle_ms"] / 1000),
        "timeout": duration(row["timeout_ms"] / 1000),
        "bytes": None if row["bytes"] is None else size(row["bytes"]),
    }


@transaction.command("abort")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@URL
@JSON
def transaction_abort(*, name: str, yes: bool, url: str, as_json: bool) -> None:
    """Give up transaction NAME: what was published in it never appears, and its bytes go back to the store."""
    if not (yes or sys.stdin.isatty()):
        raise click.UsageError(f"what was published in '{name}' is lost with it, and nobody can be asked: give --yes")
    if not yes:
        click.confirm(f"Abort transaction '{name}' with all that was published in it?", abort=True, err=True)
    carry_out(
        url,
        as_json,
        f"transaction '{name}' is not open any more",
        on_channel(lambda channel: channel.transaction_abort(name)),
    )
