"""`shardmq permission`: list, set, clear."""

from typing import Final

import click

from shardmq.cmd.terminal.connection import carry_out, rows_of
from shardmq.cmd.terminal.options import JSON, LIST, URL
from shardmq.cmd.terminal.rows import Column, RowChoice, names
from shardmq.cmd.terminal.tables import print_list


def _pattern(name: str) -> Column:
    return Column(name, text=lambda value: value or "(nothing)")


COLUMNS: Final = (*names("user", "vhost"), _pattern("configure"), _pattern("write"), _pattern("read"))

VHOST: Final = click.option("--vhost", "-p", metavar="NAME", help="The virtual host.  [default: the URL's]")


@click.group(short_help="Permissions: list, set, clear.")
def permission() -> None:
    """Permissions of users in virtual hosts: list, set, clear."""


@permission.command("list")
@click.option("--vhost", "-p", metavar="NAME", help="Only of this virtual host.")
@URL
@LIST
def permission_list(*, vhost: str | None, url: str, choice: RowChoice, as_json: bool) -> None:
    """Show who may do what in which virtual host, as far as this user may see."""
    rows = [row for row in rows_of(url, "permissions") if vhost in (None, row["vhost"])]
    print_list("permissions", rows, COLUMNS, choice, as_json)


@permission.command("set", short_help="Say what USER may CONFIGURE, WRITE and READ.")
@click.argument("user")
@click.argument("configure")
@click.argument("write")
@click.argument("read")
@VHOST
@URL
@JSON
def permission_set(
    *, user: str, configure: str, write: str, read: str, vhost: str | None, url: str, as_json: bool
) -> None:
    """Say what USER may CONFIGURE, WRITE and READ in a virtual host, as regular expressions.

    An expression matches when it is found anywhere in a name: '.*' is everything, '' is nothing, '^mine[.]' all that
    begins so.
    """
    place = named_vhost(vhost, url)
    carry_out(
        url,
        as_json,
        f"Set permissions of user '{user}' in virtual host '{place}': "
        f"configure '{configure}', write '{write}', read '{read}'",
        lambda connection: connection.permission_put(user, place, configure, write, read),
    )


@permission.command("clear", short_help="Let USER do nothing in a virtual host any more.")
@click.argument("user")
@VHOST
@URL
@JSON
def permission_clear(*, user: str, vhost: str | None, url: str, as_json: bool) -> None:
    """Let USER do nothing in a virtual host any more, nor open it."""
    place = named_vhost(vhost, url)
    carry_out(
        url,
        as_json,
        f"Cleared the permissions of user '{user}' in virtual host '{place}'",
        lambda connection: connection.permission_delete(user, place),
    )


def named_vhost(vhost: str | None, url: str) -> str:
    """The virtual host that was named, else the URL's: nobody may open one that was just made."""
    from shardmq.client.api.url import parse

    return parse(url).vhost if vhost is None else vhost
