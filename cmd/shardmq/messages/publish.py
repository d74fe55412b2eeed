"""`shardmq publish`: messages from an argument, a file or stdin."""

import shlex
import sys
import time
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from shardmq.cmd.terminal.completion import completing
from shardmq.cmd.terminal.connection import connected
from shardmq.cmd.terminal.numbers import WholeNumber
from shardmq.cmd.terminal.options import JSON, URL, named_texts, named_values
from shardmq.cmd.terminal.output import CommandFailed, print_json, warn
from shardmq.cmd.terminal.values import counted
from shardmq.errors import Unroutable
from shardmq.limits import DELAY_MS_MAX

if TYPE_CHECKING:
    from shardmq.client.sync.connection import Connection
    from shardmq.message.properties import Properties

TAG: Final = "x-stream-filter-value"

PROGRESS_STEP: Final = 500
"""Messages between two looks at the progress bar."""


@click.command(context_settings={"allow_extra_args": True})
@click.argument("routing_key", shell_complete=completing("queues"))
@click.argument("body", required=False)
@click.option(
    "--exchange",
    "-e",
    default="",
    shell_complete=completing("exchanges"),
    help="Where to; without it, to the queue named ROUTING_KEY.",
)
@click.option(
    "--file",
    "-f",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The body is this file's content.",
)
@click.option("--lines", "-l", is_flag=True, help="Each line of --file or stdin is a message.")
@click.option("--count", "-n", type=WholeNumber(1), default=1, show_default=True, help="Publish it so many times.")
@click.option("--transient", is_flag=True, help="The messages need not survive a restart.")
@click.option("--content-type", help="MIME type of the bodies.")
@click.option("--mandatory", is_flag=True, help="Fail where no queue takes a message; else it is dropped.")
@click.option("--delay", type=WholeNumber(0, DELAY_MS_MAX), default=0, metavar="MS", help="They arrive so much later.")
@click.option("--priority", type=WholeNumber(0, 255), help="For queues with x-max-priority.")
@click.option(
    "--expiration", type=WholeNumber(0, DELAY_MS_MAX), metavar="MS", help="How long they may wait in a queue."
)
@click.option(
    "--header",
    "headers",
    callback=named_values,
    multiple=True,
    metavar="NAME=VALUE",
    help="A header; a value that is JSON is taken as such, else as a string.",
)
@click.option("--tag", help="By which readers of streams and groups choose: the header x-stream-filter-value.")
@click.option(
    "--property",
    "others",
    callback=named_texts,
    multiple=True,
    metavar="NAME=TEXT",
    help="Another property of AMQP 0-9-1, as message_id=a1 or reply_to=answers.",
)
@URL
@JSON
def publish(
    *,
    routing_key: str,
    body: str | None,
    exchange: str,
    path: Path | None,
    lines: bool,
    count: int,
    transient: bool,
    content_type: str | None,
    mandatory: bool,
    delay: int,
    priority: int | None,
    expiration: int | None,
    headers: dict[str, Any],
    tag: str | None,
    others: dict[str, str],
    url: str,
    as_json: bool,
) -> None:
    """Publish BODY, or --file, or what comes on stdin. Returns when the broker has confirmed all of it."""
    check_quoted(routing_key, body)
    if body is not None and (path is not None or lines):
        raise click.UsageError("BODY does not go together with --file or --lines")
    if lines and count > 1:
        raise click.UsageError("--lines does not go together with --count")
    if body is None and path is None and sys.stdin.isatty():
        raise click.UsageError("nothing to publish: give a BODY, --file PATH, or something on stdin")
    properties = properties_of(
        {
            **others,
            "content_type": content_type,
            "delivery_mode": 1 if transient else None,
            "priority": priority,
            "expiration": None if expiration is None else str(expiration),
            "headers": ({} if tag is None else {TAG: tag}) | headers or None,
        }
    )
    published = 0
    with connected(url) as connection:
        connection.on_blocked(warn_blocked)
        if not exchange:
            check_queue(connection, routing_key)
        started_at = time.monotonic()
        try:
            with connection.channel().publisher() as publisher:
                for message in with_progress(bodies(body, path, lines, count), None if lines else count, as_json):
                    # Always mandatory: what no queue takes comes back, and is told of.
                    publisher.publish(exchange, routing_key, message, properties, mandatory=True, delay_ms=delay)
                    published += 1
        except Unroutable as fault:
            if mandatory or fault.refused:
                raise
            what = "the message was" if published == 1 else "messages were"
            warn(f"{what} dropped: exchange '{exchange}' has no queue for routing key '{routing_key}'")
        seconds = time.monotonic() - started_at
    if as_json:
        print_json({"published": published, "seconds": round(seconds, 6)})
    else:
        click.echo(f"Published {counted(published, 'message')} in {seconds:.2f} s, confirmed by the broker")


def check_quoted(routing_key: str, body: str | None) -> None:
    """Make sure that BODY is one argument.

    Raises:
        UsageError: there are more; it says how the line is quoted.
    """
    more = click.get_current_context().args
    if body is not None and more:
        line = shlex.join(["shardmq", "publish", routing_key, " ".join([body, *more])])
        raise click.UsageError(f"BODY is one argument, and there are {len(more)} more; quote it: {line}")


def properties_of(values: dict[str, Any]) -> "Properties":
    """Properties from the command line; None is not set.

    Raises:
        UsageError: there is no such property, or the value is none for it.
    """
    import msgspec

    from shardmq.message.properties import Properties

    given = {name: value for name, value in values.items() if value is not None}
    try:
        return msgspec.convert(given, Properties, strict=False)  # numbers come as text
    except msgspec.ValidationError as fault:
        known = ", ".join(Properties.__struct_fields__)
        raise click.UsageError(f"the properties make no sense: {fault}; there are {known}") from fault


def warn_blocked(reason: str) -> None:
    """Say why nothing goes on."""
    warn(f"waiting: the broker takes no publishes now: {reason}")


def check_queue(connection: "Connection", name: str) -> None:
    """Refuse a queue that does not exist: the default exchange would drop the messages.

    Raises:
        CommandFailed: there is no such queue.
    """
    if not any(queue["name"] == name for queue in connection.topology("queues")):
        if any(topic["name"] == name for topic in connection.topology("topics")):
            raise CommandFailed(f"'{name}' is a topic: `shardmq publish --exchange {name} KEY BODY` publishes to it")
        raise CommandFailed(f"there is no queue '{name}'; `shardmq queue declare {name}` makes it")


def bodies(body: str | None, path: Path | None, lines: bool, count: int) -> Iterator[bytes]:
    """What is to be published."""
    if body is not None:
        yield from repeat(body.encode("utf-8", "surrogateescape"), count)
        return
    source: IO[bytes] = sys.stdin.buffer if path is None else path.open("rb")
    with source:
        if lines:
            yield from (line.removesuffix(b"\n").removesuffix(b"\r") for line in source)
        else:
            yield from repeat(source.read(), count)


def with_progress(messages: Iterator[bytes], total: int | None, as_json: bool) -> Iterator[bytes]:
    """The same messages, with a progress bar when there are many and somebody watches."""
    if as_json or (total is not None and total <= PROGRESS_STEP) or not sys.stderr.isatty():
        yield from messages
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    with Progress(
        "publishing", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=Console(stderr=True)
    ) as bar:
        task = bar.add_task("publishing", total=total)
        number = 0
        for number, message in enumerate(messages, 1):
            yield message
            if number % PROGRESS_STEP == 0:
                bar.update(task, completed=number)
        bar.update(task, completed=number)
