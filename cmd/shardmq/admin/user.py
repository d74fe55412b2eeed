"""`shardmq user`: list, add, delete, password, tags, limits."""

import sys
from typing import Final

import click

from shardmq.cmd.admin.limits import LIMIT, changed_limits
from shardmq.cmd.terminal.connection import JSON, URL, connected
from shardmq.cmd.terminal.tables import carry_out, rows_of, show

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
@URL
@JSON
def user_list(*, url: str, as_json: bool) -> None:
    """Show all users; --json has the hashes of their passwords, for definitions."""
    show("users", rows_of(url, "users"), as_json, ("name", "tags", "limits"))


@user.command("add")
@click.argument("name")
@PASSWORD
@TAG
@URL
@JSON
def user_add(*, name: str, password: str | None, tags: tuple[str, ...], url: str, as_json: bool) -> None:
    """Make user NAME. `shardmq permission set` says what the user may do."""
    from shardmq.errors import PreconditionFailed

    secret = asked(password)
    with connected(url) as connection:
        if any(row["name"] == name for row in connection.topology("users")):
            raise PreconditionFailed(f"user '{name}' is there already; `shardmq user password {name}` changes it")
        connection.user_put(name, password=secret, tags=list(tags))
    told(as_json, f"user '{name}' is there; `shardmq permission set {name} '.*' '.*' '.*'` allows everything")


def asked(password: str | None) -> str:
    """The password: the one given, else asked for where somebody is there to ask, else the first line of stdin.

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


def told(as_json: bool, sentence: str) -> None:
    """Say that it is done."""
    click.echo('{"ok":true}' if as_json else sentence)


@user.command("delete")
@click.argument("name")
@URL
@JSON
def user_delete(*, name: str, url: str, as_json: bool) -> None:
    """Remove user NAME with all permissions, and close the user's connections."""
    carry_out(url, as_json, f"user '{name}' is deleted", lambda connection: connection.user_delete(name))


@user.command("password")
@click.argument("name")
@PASSWORD
@URL
@JSON
def user_password(*, name: str, password: str | None, url: str, as_json: bool) -> None:
    """Change the password of user NAME. Connections that are open stay so."""
    change(name, url, password=asked(password))
    told(as_json, f"user '{name}' has a new password")


@user.command("tags")
@click.argument("name")
@click.argument("tags", nargs=-1)
@URL
@JSON
def user_tags(*, name: str, tags: tuple[str, ...], url: str, as_json: bool) -> None:
    """Give user NAME these TAGS and no others: administrator, monitoring, policymaker, management, impersonator."""
    change(name, url, tags=tags)
    told(as_json, f"user '{name}' has {'the tags ' + ', '.join(tags) if tags else 'no tags'}")


def change(name: str, url: str, *, password: str | None = None, tags: tuple[str, ...] | None = None) -> None:
    """Change a user that is there.

    Raises:
        NotFound: there is none of that name; making one by a slip of the pen would be worse.
    """
    from shardmq.errors import NotFound

    with connected(url) as connection:
        if not any(row["name"] == name for row in connection.topology("users")):
            raise NotFound(f"there is no user '{name}'; `shardmq user add {name}` makes one")
        connection.user_put(name, password=password, tags=None if tags is None else list(tags))


@user.command("limits")
@click.argument("name")
@LIMIT
@URL
@JSON
def user_limits(*, name: str, limits: dict[str, int | None], url: str, as_json: bool) -> None:
    """Set, lift or show the limits of user NAME: max-connections, max-channels."""
    changed_limits("user", name, limits, url, as_json)
