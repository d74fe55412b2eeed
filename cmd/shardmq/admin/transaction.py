"""`shardmq transaction`: list, abort."""

from typing import Final

import click

from shardmq.cmd.terminal.connection import connected, rows_of
from shardmq.cmd.terminal.options import JSON, LIST, URL, YES
from shardmq.cmd.terminal.output import CommandFailed, confirm, print_done
from shardmq.cmd.terminal.rows import Column, RowChoice, extras, names, numbers
from shardmq.cmd.terminal.tables import print_list
from shardmq.cmd.terminal.values import duration, size

COLUMNS: Final = (
    *names("name", "user"),
    Column("idle", lambda row: row["idle_ms"] / 1000, is_number=True, text=duration),
    Column("timeout", lambda row: row["timeout_ms"] / 1000, is_number=True, text=duration),
    *numbers("attempts", "messages"),
    Column("bytes", is_number=True, text=size),
    *extras("number", "vhost", "idle_ms", "timeout_ms"),
)


@click.group()
def transaction() -> None:
    """Transactions that nobody has decided about: list, abort."""


@transaction.command("list")
@URL
@LIST
def transaction_list(*, url: str, choice: RowChoice, as_json: bool) -> None:
    """Show the undecided transactions of the virtual host: whose, how long they may go on, what is staged for them."""
    print_list("transactions", rows_of(url, "transactions"), COLUMNS, choice, as_json)


@transaction.command("abort")
@click.argument("name")
@YES
@URL
@JSON
def transaction_abort(*, name: str, yes: bool, url: str, as_json: bool) -> None:
    """Give up transaction NAME: what was published in it never appears, and its bytes go back to the store."""
    question = f"Abort transaction '{name}' with all that was published in it?"
    confirm(question, f"aborting transaction '{name}' loses what was published in it", yes)
    with connected(url) as connection:
        is_undecided = any(row["name"] == name for row in connection.topology("transactions"))
        connection.channel().transaction_abort(name)  # refused where it was committed
    if not is_undecided:
        raise CommandFailed(f"there is no undecided transaction '{name}'; `shardmq transaction list` shows all")
    print_done(f"Aborted transaction '{name}'", as_json)
