"""`shardmq vhost`: list, add, delete, limits."""

from typing import Final

import click

from shardmq.cmd.admin.limits import LIMIT, change_limits
from shardmq.cmd.terminal.completion import completing
from shardmq.cmd.terminal.connection import carry_out, connected, rows_of
from shardmq.cmd.terminal.options import BROKER, JSON, LIST, YES
from shardmq.cmd.terminal.output import confirm, print_done
from shardmq.cmd.terminal.rows import Column, RowChoice, names
from shardmq.cmd.terminal.tables import print_list

COLUMNS: Final = (
    *names("name"),
    Column("description", is_wrapped=True),
    Column("tags", is_wrapped=True),
    Column("limits", is_wrapped=True),
)


@click.group()
def vhost() -> None:
    """Virtual hosts: list, add, delete, limits."""


@vhost.command("list")
@BROKER
@LIST
def vhost_list(*, url: str, choice: RowChoice, as_json: bool) -> None:
    """Show the virtual hosts this user may see."""
    print_list("virtual hosts", rows_of(url, "vhosts"), COLUMNS, choice, as_json)


@vhost.command("add")
@click.argument("name", shell_complete=completing("vhosts"))
@click.option("--description", default="", help="What it is for.")
@click.option("--tag", "tags", multiple=True, help="A word about it; may be given several times.")
@BROKER
@JSON
def vhost_add(*, name: str, description: str, tags: tuple[str, ...], url: str, as_json: bool) -> None:
    """Make virtual host NAME, or change its description and tags. Users need permissions to open it."""
    with connected(url) as connection:
        is_new = not any(row["name"] == name for row in connection.topology("vhosts"))
        connection.vhost_put(name, description=description, tags=list(tags))
    done = f"Added virtual host '{name}'" if is_new else f"Changed description and tags of virtual host '{name}'"
    hint = f"; let a user in with `shardmq permission set --vhost {name} USER '.*' '.*' '.*'`" if is_new else ""
    print_done(done + hint, as_json)


@vhost.command("delete")
@click.argument("name", shell_complete=completing("vhosts"))
@YES
@BROKER
@JSON
def vhost_delete(*, name: str, yes: bool, url: str, as_json: bool) -> None:
    """Remove virtual host NAME with all its queues and messages, and close its connections."""
    loss = f"deleting virtual host '{name}' deletes its queues and messages"
    confirm(f"Delete virtual host '{name}' with everything in it?", loss, yes)
    carry_out(url, as_json, f"Deleted virtual host '{name}'", lambda connection: connection.vhost_delete(name))


@vhost.command("limits")
@click.argument("name", shell_complete=completing("vhosts"))
@LIMIT
@BROKER
@JSON
def vhost_limits(*, name: str, limits: dict[str, int | None], url: str, as_json: bool) -> None:
    """Set, lift or show the limits of virtual host NAME: max-connections, max-queues."""
    change_limits("vhost", name, limits, url, as_json)
