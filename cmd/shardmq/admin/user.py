"""`shardmq user`: list, add, delete, password, tags, limits."""

import sys
from typing import Final

import click

from shardmq.cmd.admin.limits import LIMIT, change_limits
from shardmq.cmd.terminal.completion import completing
from shardmq.cmd.terminal.connection import carry_out, connected, rows_of
from shardmq.cmd.terminal.options import BROKER, JSON, LIST, YES
from shardmq.cmd.terminal.output import CommandFailed, confirm, print_done
from shardmq.cmd.terminal.rows import Column, RowChoice, extras, names
from shardmq.cmd.terminal.tables import print_list

COLUMNS: Final = (
    *names("name"),
    Column("tags", is_wrapped=True),
    Column("limits", is_wrapped=True),
    *extras("password_hash", "hashing_algorithm"),
)

PASSWORD: Final = click.option(
    "--password",
    envvar="SHARDMQ_NEW_PASSWORD",
    show_envvar=True,
    help="Asked for, or read from stdin, when not given: what is given here others can see.",
)
TAG: Final = click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="TAG",
    help="administrator, monitoring, policymaker, management or impersonator; may be given several times.",
)


@click.group()
def user() -> None:
    """Users: list, add, delete, password, tags, limits."""


@user.command("list")
@BROKER
@LIST
def user_list(*, url: str, choice: RowChoice, as_json: bool) -> None:
    """Show all users; --json has the hashes of their passwords, for definitions."""
    print_list("users", rows_of(url, "users"), COLUMNS, choice, as_json)


@user.command("add")
@click.argument("name", shell_complete=completing("users"))
@PASSWORD
@TAG
@BROKER
@JSON
def user_add(*, name: str, password: str | None, tags: tuple[str, ...], url: str, as_json: bool) -> None:
    """Make user NAME. `shardmq permission set` says what the user may do."""
    secret = read_password(password)
    with connected(url) as connection:
        if any(row["name"] == name for row in connection.topology("users")):
            raise CommandFailed(f"user '{name}' exists already; `shardmq user password {name}` changes it")
        connection.user_put(name, password=secret, tags=list(tags))
    hint = f"`shardmq permission set {name} '.*' '.*' '.*'` lets the user do everything"
    print_done(f"Added user '{name}'; {hint}", as_json)


def read_password(password: str | None) -> str:
    """The password: the one given, else asked for on a terminal, else the first line of stdin.

    Raises:
        UsageError: there is none.
    """
    if password is None and sys.stdin.isatty():
        password = str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    elif password is None:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise click.UsageError("there is no password: give --password, or a line on stdin")
    return password


@user.command("delete")
@click.argument("name", shell_complete=completing("users"))
@YES
@BROKER
@JSON
def user_delete(*, name: str, yes: bool, url: str, as_json: bool) -> None:
    """Remove user NAME with all permissions, and close the user's connections."""
    loss = f"deleting user '{name}' deletes the permissions and closes the connections"
    confirm(f"Delete user '{name}' with all permissions?", loss, yes)
    carry_out(url, as_json, f"Deleted user '{name}'", lambda connection: connection.user_delete(name))


@user.command("password")
@click.argument("name", shell_complete=completing("users"))
@PASSWORD
@BROKER
@JSON
def user_password(*, name: str, password: str | None, url: str, as_json: bool) -> None:
    """Change the password of user NAME. Connections that are open stay so."""
    change(name, url, password=read_password(password))
    print_done(f"Changed the password of user '{name}'", as_json)


@user.command("tags")
@click.argument("name", shell_complete=completing("users"))
@click.argument("tags", nargs=-1)
@BROKER
@JSON
def user_tags(*, name: str, tags: tuple[str, ...], url: str, as_json: bool) -> None:
    """Give user NAME these TAGS and no others: administrator, monitoring, policymaker, management, impersonator."""
    change(name, url, tags=tags)
    done = f"Set the tags of user '{name}': {', '.join(tags)}" if tags else f"Removed all tags of user '{name}'"
    print_done(done, as_json)


def change(name: str, url: str, *, password: str | None = None, tags: tuple[str, ...] | None = None) -> None:
    """Change a user that exists.

    Raises:
        CommandFailed: there is none of that name; a typo must not make one.
    """
    with connected(url) as connection:
        if not any(row["name"] == name for row in connection.topology("users")):
            raise CommandFailed(f"there is no user '{name}'; `shardmq user add {name}` makes one")
        connection.user_put(name, password=password, tags=None if tags is None else list(tags))


@user.command("limits")
@click.argument("name", shell_complete=completing("users"))
@LIMIT
@BROKER
@JSON
def user_limits(*, name: str, limits: dict[str, int | None], url: str, as_json: bool) -> None:
    """Set, lift or show the limits of user NAME: max-connections, max-channels."""
    change_limits("user", name, limits, url, as_json)
