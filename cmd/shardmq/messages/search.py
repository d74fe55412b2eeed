"""`shardmq queue search` and `shardmq topic search`: the broker finds messages, and they stay where they are."""

import sys
import time
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from shardmq.cmd.messages.format import described, write_whole
from shardmq.cmd.terminal.completion import completing
from shardmq.cmd.terminal.connection import connected
from shardmq.cmd.terminal.numbers import WholeNumber
from shardmq.cmd.terminal.options import JSON, URL, all_of
from shardmq.cmd.terminal.output import print_json
from shardmq.cmd.terminal.values import counted
from shardmq.limits import SEARCH_FOUND_MAX
from shardmq.topology.arguments import age_ms

if TYPE_CHECKING:
    from shardmq.client.api.results import SearchPage
    from shardmq.client.sync.channel import Channel
    from shardmq.search.filters import DeathFilters, SearchFilters

CONTENT: Final = (
    click.option("--key", default="", help="With this routing key; * is any text, ? one character, [ab] one of these."),
    click.option("--header", multiple=True, metavar="NAME[=VALUE]", help="With this header; repeatable."),
    click.option("--text", default="", help="With this in the body."),
    click.option("--regex", default="", help="With a match of this regular expression in the body."),
    click.option("--where", multiple=True, metavar="CONDITION", help="As '$.order.total >= 100'; repeatable."),
)
"""Options that say what is in the messages that are looked for."""

CLEAR_LINE: Final = "\r\x1b[2K"
"""What a terminal deletes its last line by, so that progress leaves no trace."""


class Moment(click.ParamType[int]):
    """A time in milliseconds since 1970, given as a time or as how long ago it was."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it.

        Raises:
            BadParameter: it is neither.
        """
        if isinstance(value, int):
            return value
        ago_ms = age_ms(value)
        if ago_ms is not None:
            return max(0, round(time.time() * 1000) - ago_ms)
        try:
            return round(datetime.fromisoformat(value).astimezone().timestamp() * 1000)
        except ValueError:
            self.fail(f"'{value}' is neither an age such as 1h, nor a time such as 2026-11-23T08:00", param, ctx)


class Progress:
    """How far a search is.

    Attributes:
        looked_at: messages so far.
        found: of these, the ones that fit.
        cut: bodies that were looked into in part only.
        left: about how many messages of the partition are left.
        partition: which is searched.
        place: where it goes on; None at the end.
    """

    def __init__(self, partition: int, first: int) -> None:
        self.looked_at = self.found = self.cut = self.left = 0
        self.partition = partition
        self.place: int | None = first
        self._is_shown = sys.stderr.isatty()

    def take(self, page: "SearchPage") -> None:
        """Count a page."""
        self.looked_at += page.looked_at
        self.found += len(page.messages)
        self.cut += page.cut
        self.left = page.left
        self.place = page.next

    def show(self) -> None:
        """Write it over the last line of the terminal, where stderr is one."""
        if self._is_shown:
            text = f"{self.looked_at:,} looked at, {self.left:,} to go, {self.found:,} found; Ctrl-C ends the search"
            click.echo(f"{CLEAR_LINE}{text}", err=True, nl=False)

    def hide(self) -> None:
        """Take it from the terminal."""
        if self._is_shown:
            click.echo(CLEAR_LINE, err=True, nl=False)

    def say(self, name: str) -> None:
        """Say to stderr what came of it, and how it goes on."""
        self.hide()
        text = f"Found {counted(self.found, 'message')} of {self.looked_at:,} looked at in '{name}'"
        if self.cut:
            text += f"; bodies looked into in part only: {self.cut:,}"
        if self.place is not None:
            text += f"; --from {self.place} goes on"
            text += f" in partition {self.partition}" if self.partition else ""
        click.echo(text, err=True)


@click.command()
@click.argument("name", shell_complete=completing("queues"))
@lambda command: all_of(command, CONTENT)
@click.option("--id", "message_id", default="", help="With this message id, the publisher's or the broker's.")
@click.option("--since", type=Moment(), default=0, help="Received since then, as 1h or 2026-11-23T08:00.")
@click.option("--until", type=Moment(), default=0, help="Received before then.")
@click.option("--from", "first", type=WholeNumber(0, 2**63 - 1), default=0, help="From this position or offset on.")
@click.option("--partition", type=WholeNumber(0), help="Of a topic.  [default: all, one after the other]")
@click.option("--count", "-n", type=WholeNumber(1), default=100, show_default=True, help="Find so many at most.")
@URL
@JSON
def search(*, name: str, first: int, partition: int | None, count: int, url: str, as_json: bool, **given: Any) -> None:
    """Find messages in queue, stream or topic NAME, and leave all as it is: nobody gets them marked as redelivered.

    The broker searches, page by page, beside its other work. All filters have to hold. Bodies are looked into behind
    gzip and deflate, and --where reads JSON and MessagePack. On a terminal, stderr shows how far the search is.
    """
    if given["until"] and given["since"] >= given["until"]:
        raise click.UsageError("--since is not before --until: nothing was received between them")
    filters = filters_of(given)
    progress = Progress(partition or 0, first)
    with connected(url) as connection:
        try:
            for page in _pages(connection.channel(), name, filters, progress, partition is None, count):
                progress.hide()
                for message in page.messages:
                    if as_json:
                        print_json(
                            {"partition": progress.partition, "position": message.position, **described(message)}
                        )
                    else:
                        write_whole(message.position or 0, message)
                progress.show()
        except KeyboardInterrupt:
            progress.say(name)
            raise
        finally:
            progress.hide()
    if not as_json:
        progress.say(name)


def filters_of(given: dict[str, Any], death: "DeathFilters | None" = None) -> "SearchFilters":
    """What options say, and how the messages died.

    Raises:
        BadParameter: a header has no name.
    """
    from shardmq.search.filters import SearchFilters

    if "" in given["header"]:
        raise click.BadParameter("a header has a name; write it as NAME or NAME=VALUE", param_hint="--header")

    headers = [text.partition("=") for text in given["header"]]
    return SearchFilters(
        key=given["key"],
        headers=tuple([(name, value if equals else None) for name, equals, value in headers]),
        text=given["text"],
        regex=given["regex"],
        json=tuple(given["where"]),
        message_id=given.get("message_id", ""),
        since_ms=given.get("since", 0),
        until_ms=given.get("until", 0),
        death=death,
    )


def _pages(
    channel: "Channel", name: str, filters: "SearchFilters", progress: Progress, is_all: bool, count: int
) -> "Iterator[SearchPage]":
    """Pages of a search until enough is found, partition by partition."""
    first = progress.place or 0
    while progress.place is not None and progress.found < count:
        wanted = min(count - progress.found, SEARCH_FOUND_MAX)
        page = channel.messages_search(name, filters, progress.place, wanted, progress.partition)
        progress.take(page)
        yield page
        if page.next is None and is_all and progress.partition + 1 < page.partitions:
            progress.partition += 1
            progress.place = first
