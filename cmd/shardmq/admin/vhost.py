"""`shardmq vhost`: list, add, delete, limits."""

import sys

import click

from shardmq.cmd.admin.limits import LIMIT, changed_limits
from shardmq.cmd.terminal.connection import JSON, URL
from shardmq.cmd.terminal.tables import carry_out, rows_of, show


@click.group()
def vhost() -> None:
    """Virtual hosts: list, add, delete, limits."""


@vhost.command("list")
@URL
@JSON
def vhost_list(*, url: str, as_json: bool) -> None:
    """Show the virtual hosts this user may see."""
    show("virtual hosts", rows_of(url, "vhosts"), as_json, ("name", "description", "tags", "limits"))


@vhost.command("add")
@click.argument("name")
@click.option("--description", default="", help="What it is for.")
@click.option("--tag", "tags", multiple=True, help="A word about it; may be given several times.")
@URL
@JSON
def vhost_add(*, name: str, description: str, tags: tuple[str, ...], url: str, as_json: bool) -> None:
    """Make virtual host NAME, or change what is said of it. Users need permissions to open it."""
    carry_out(
        url,
        as_json,
        f"virtual host '{name}' is there; `shardmq permission set --vhost {name} USER '.*' '.*' '.*'` lets a user in",
        lambda connection: connection.vhost_put(name, description=description, tags=list(tags)),
    )


@vhost.command("delete")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@URL
@JSON
def vhost_delete(*, name: str, yes: bool, url: str, as_json: bool) -> None:
    """Remove virtual host NAME with all its queues and messages, and close its connections."""
    if not (yes or sys.stdin.isatty()):
        raise click.UsageError(
            f"it takes all queues and messages of '{name}' with it, and nobody can be asked: give --yes"
        )
    if not yes:
        click.confirm(f"Delete virtual host '{name}' with everything in it?", abort=True, err=True)
    carry_out(url, as_json, f"virtual host '{name}' is deleted", lambda connection: connection.vhost_delete(name))


@vhost.command("limits")
@click.argument("name")
@LIMIT
@URL
@JSON
def vhost_limits(*, name: str, limits: dict[str, int | None], url: str, as_json: bool) -> None:
    """Set, lift or show the limits of virtual host NAME: max-connections, max-queues."""
    changed_limits("vhost", name, limits, url, as_json)
