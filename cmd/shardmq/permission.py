"""`shardmq permission`: list, set, clear."""

import click

from shardmq.cmd.listing import carry_out, rows_of, show
from shardmq.cmd.session import JSON, URL


@click.group()
def permission() -> None:
    """Permissions in a virtual host, that of the URL: list, set, clear."""


@permission.command("list")
@URL
@JSON
def permission_list(*, url: str, as_json: bool) -> None:
    """Show who may do what in the URL's virtual host."""
    rows = rows_of(url, "permissions")
    if not as_json:
        rows = [{name: value or "(nothing)" for name, value in row.items()} for row in rows]
    show("permissions", rows, as_json, ("user", "configure", "write", "read"))


@permission.command("set")
@click.argument("user")
@click.argument("configure")
@click.argument("write")
@click.argument("read")
@URL
@JSON
def permission_set(*, user: str, configure: str, write: str, read: str, url: str, as_json: bool) -> None:
    """Say what USER may CONFIGURE, WRITE and READ in the URL's virtual host, as regular expressions.

    An expression matches when it is found anywhere in a name: '.*' is everything, '' is nothing, '^mine[.]' all that
    begins so.
    """
    from shardmq.client.url import parse

    carry_out(
        url,
        as_json,
        f"user '{user}' may configure '{configure}', write '{write}' and read '{read}'",
        lambda connection: connection.permission_put(user, parse(url).vhost, configure, write, read),
    )


@permission.command("clear")
@click.argument("user")
@URL
@JSON
def permission_clear(*, user: str, url: str, as_json: bool) -> None:
    """Let USER do nothing in the URL's virtual host any more, nor open it."""
    from shardmq.client.url import parse

    carry_out(
        url,
        as_json,
        f"user '{user}' may not open this virtual host",
        lambda connection: connection.permission_delete(user, parse(url).vhost),
    )
