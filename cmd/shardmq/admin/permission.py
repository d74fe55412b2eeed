"""`shardmq permission`: list, set, clear; of topics likewise."""

from typing import Final

import click

from shardmq.cmd.terminal.completion import completing
from shardmq.cmd.terminal.connection import carry_out, rows_of
from shardmq.cmd.terminal.options import BROKER, JSON, LIST
from shardmq.cmd.terminal.rows import Column, RowChoice, names
from shardmq.cmd.terminal.tables import print_list


def _pattern(name: str) -> Column:
    return Column(name, text=lambda value: value or "(nothing)")


COLUMNS: Final = (*names("user", "vhost"), _pattern("configure"), _pattern("write"), _pattern("read"))

VHOST: Final = click.option(
    "--vhost", "-p", metavar="NAME", shell_complete=completing("vhosts"), help="The virtual host.  [default: the URL's]"
)


@click.group(short_help="Permissions: list, set, clear.")
def permission() -> None:
    """Permissions of users in virtual hosts: list, set, clear."""


@permission.command("list")
@click.option("--vhost", "-p", metavar="NAME", shell_complete=completing("vhosts"), help="Only of this virtual host.")
@BROKER
@LIST
def permission_list(*, vhost: str | None, url: str, choice: RowChoice, as_json: bool) -> None:
    """Show who may do what in which virtual host, as far as this user may see."""
    rows = [row for row in rows_of(url, "permissions") if vhost in (None, row["vhost"])]
    print_list("permissions", rows, COLUMNS, choice, as_json)


@permission.command("set", short_help="Say what USER may CONFIGURE, WRITE and READ.")
@click.argument("user", shell_complete=completing("users"))
@click.argument("configure")
@click.argument("write")
@click.argument("read")
@VHOST
@BROKER
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
@click.argument("user", shell_complete=completing("users"))
@VHOST
@BROKER
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


TOPIC_COLUMNS: Final = (*names("user", "vhost", "exchange"), _pattern("write"), _pattern("read"))


@permission.group("topic", short_help="Routing keys of topic exchanges: list, set, clear.")
def topic_permission() -> None:
    """Which routing keys users may use with topic exchanges: list, set, clear. Without such a permission: any."""


@topic_permission.command("list")
@click.option("--vhost", "-p", metavar="NAME", shell_complete=completing("vhosts"), help="Only of this virtual host.")
@BROKER
@LIST
def topic_list(*, vhost: str | None, url: str, choice: RowChoice, as_json: bool) -> None:
    """Show who may use which routing keys, as far as this user may see."""
    rows = [row for row in rows_of(url, "topic-permissions") if vhost in (None, row["vhost"])]
    print_list("topic permissions", rows, TOPIC_COLUMNS, choice, as_json)


@topic_permission.command("set", short_help="Say which keys USER may WRITE to and READ from EXCHANGE.")
@click.argument("user", shell_complete=completing("users"))
@click.argument("exchange", shell_complete=completing("exchanges"))
@click.argument("write")
@click.argument("read")
@VHOST
@BROKER
@JSON
def topic_set(*, user: str, exchange: str, write: str, read: str, vhost: str | None, url: str, as_json: bool) -> None:
    """Say which routing keys USER may WRITE to the topic exchange EXCHANGE, and READ from it, that is, bind by.

    Both are regular expressions, found anywhere in a key; {username} and {vhost} stand for the connection's.
    """
    place = named_vhost(vhost, url)
    carry_out(
        url,
        as_json,
        f"Set topic permission of user '{user}' for exchange '{exchange}' in virtual host '{place}': "
        f"write '{write}', read '{read}'",
        lambda connection: connection.topic_permission_put(user, place, exchange, write, read),
    )


@topic_permission.command("clear", short_help="Let USER use any routing key again.")
@click.argument("user", shell_complete=completing("users"))
@click.argument("exchange", required=False)
@VHOST
@BROKER
@JSON
def topic_clear(*, user: str, exchange: str | None, vhost: str | None, url: str, as_json: bool) -> None:
    """Let USER use any routing key of EXCHANGE again; of all exchanges where it is left out."""
    place = named_vhost(vhost, url)
    what = "all exchanges" if exchange is None else f"exchange '{exchange}'"
    carry_out(
        url,
        as_json,
        f"Cleared the topic permissions of user '{user}' for {what} in virtual host '{place}'",
        lambda connection: connection.topic_permission_delete(user, place, exchange),
    )


def named_vhost(vhost: str | None, url: str) -> str:
    """The virtual host that was named, else the URL's: nobody may open one that was just made."""
    from shardmq.client.api.url import parse

    return parse(url).vhost if vhost is None else vhost
