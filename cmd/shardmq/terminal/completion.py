"""Completion of names, asked of the broker.

Shells ask while somebody waits at the prompt: the broker has SECONDS to answer, and whatever goes wrong is no names.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from shardmq.cmd.terminal.contexts import default_url
from shardmq.errors import ShardmqError

if TYPE_CHECKING:
    from shardmq.client.sync.connection import Connection

SECONDS: Final = 1.0
"""For the login, and for the answer."""

NAMES_MAX: Final = 200

OF_VHOST: Final = frozenset({"queues", "exchanges", "topics", "groups"})
"""What lists of the broker are to be of the URL's virtual host alone."""

Completion = Callable[[click.Context, click.Parameter, str], list[str]]


def completing(noun: str) -> Completion:
    """A completion of an argument or option.

    Args:
        noun: what it names: "queues", "exchanges", "topics", "groups", "vhosts", "users" or "policies".
    """

    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        try:
            url = context.params.get("url") or default_url()
            return names(url, noun, incomplete, context.params.get("topic"))
        except (ShardmqError, click.ClickException, OSError):
            return []

    return complete


def names(url: str, noun: str, beginning: str, topic: str | None = None) -> list[str]:
    """The first names of a noun that begin so.

    Args:
        url: of the broker.
        noun: as for `completing`.
        beginning: of the names.
        topic: of groups: the topic that they read.

    Raises:
        ShardmqError: the broker refuses, or does not answer in time.
    """
    from shardmq.client.api.url import parse
    from shardmq.client.sync.connection import connect

    with connect(url, timeout=SECONDS, recovery=None) as connection:
        vhost = parse(url).vhost
        rows = _rows(connection, noun, vhost, beginning)
    if noun == "groups":
        rows = [{"name": row["group"]} for row in rows if row["vhost"] == vhost and topic in (None, row["topic"])]
    found = {str(row["name"]) for row in rows if str(row["name"]).startswith(beginning)}
    return sorted(found - {""})[:NAMES_MAX]


def _rows(connection: "Connection", noun: str, vhost: str, beginning: str) -> list[dict[str, Any]]:
    import re

    from shardmq.client.api.statistics import ListQuery

    if noun in ("groups", "policies"):
        return connection.topology(noun)
    query = ListQuery(
        vhost if noun in OF_VHOST else None,
        f"^{re.escape(beginning)}" if beginning else "",
        use_regex=bool(beginning),
        page=1,
        page_size=NAMES_MAX,
        columns=("name",),
        with_statistics=False,
    )
    rows: list[dict[str, Any]] = connection.stats_list(noun, query)["items"]
    return rows
