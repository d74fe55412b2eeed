"""`shardmq queue republish`: a changed copy of one message, published; the original stays unless asked otherwise."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardmq.cmd.messages.publish import properties_of
from shardmq.cmd.terminal.completion import completing
from shardmq.cmd.terminal.connection import over
from shardmq.cmd.terminal.numbers import WholeNumber
from shardmq.cmd.terminal.options import JSON, URL, named_texts, named_values
from shardmq.cmd.terminal.output import CommandFailed, print_done

if TYPE_CHECKING:
    from shardmq.client.aio.connection import Connection
    from shardmq.message.properties import Properties


@click.command()
@click.argument("queue", shell_complete=completing("queues"))
@click.argument("position", type=WholeNumber(0, 2**63 - 2))
@click.option("--body", help="Of the copy.  [default: as it is]")
@click.option(
    "--file",
    "-f",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The copy's body is this file's content.",
)
@click.option(
    "--exchange", "-e", shell_complete=completing("exchanges"), help="Where to.  [default: where it came from]"
)
@click.option("--routing-key", help="Of the copy.  [default: as it is]")
@click.option("--content-type", help="MIME type of the copy's body.")
@click.option("--header", "headers", callback=named_values, multiple=True, metavar="NAME=VALUE", help="Set a header.")
@click.option("--without-header", "removed", multiple=True, metavar="NAME", help="Leave a header out.")
@click.option(
    "--property", "others", callback=named_texts, multiple=True, metavar="NAME=TEXT", help="Set another property."
)
@click.option("--without-property", "unset", multiple=True, metavar="NAME", help="Leave another property out.")
@click.option("--remove", is_flag=True, help="Remove the original: the copy takes its place.")
@click.option("--message-id", default="", metavar="ID", help="Only where the message at POSITION has this id.")
@URL
@JSON
def republish(
    *,
    queue: str,
    position: int,
    body: str | None,
    path: Path | None,
    exchange: str | None,
    routing_key: str | None,
    content_type: str | None,
    headers: dict[str, Any],
    removed: tuple[str, ...],
    others: dict[str, str],
    unset: tuple[str, ...],
    remove: bool,
    message_id: str,
    url: str,
    as_json: bool,
) -> None:
    """Publish a changed copy of the ready message at POSITION of QUEUE, to the route that it came by.

    `shardmq queue search QUEUE --json` says the positions of messages.
    """
    from shardmq.client.api.url import parse
    from shardmq.management.republishing import Change, replace
    from shardmq.management.republishing import republish as publish_copy_of

    if body is not None and path is not None:
        raise click.UsageError("--body does not go together with --file")
    given = properties_of({**others, "content_type": content_type})
    if unknown := set(unset) - set(given.__struct_fields__):
        raise click.BadParameter(f"there is no property '{min(unknown)}'", param_hint="--without-property")

    def changed(original: "Properties") -> "Properties":
        return _merged(original, given, headers, removed, unset)

    content = path.read_bytes() if path is not None else None if body is None else body.encode()
    change = Change(changed, exchange, routing_key, content)

    async def work(connection: "Connection") -> bool:
        channel = await connection.channel()
        if remove:
            return await replace(channel, queue, position, change, parse(url).user, message_id)
        return await publish_copy_of(channel, queue, position, change, message_id=message_id)

    if not over(url, work):
        raise CommandFailed(
            f"no queue is bound for the copy, so nothing was published, and queue '{queue}' is as it was"
        )
    done = f"Published a copy of message {position} of queue '{queue}'"
    print_done(f"{done}, and removed it" if remove else done, as_json, position=position, removed=remove)


def _merged(
    original: "Properties",
    given: "Properties",
    headers: dict[str, Any],
    removed: tuple[str, ...],
    unset: tuple[str, ...],
) -> "Properties":
    """The original's properties, with those that are given in their place."""
    from msgspec import structs

    kept = {name: value for name, value in (original.headers or {}).items() if name not in removed}
    set_now = {name: value for name, value in structs.asdict(given).items() if value is not None}
    changes = {"user_id": None, **dict.fromkeys(unset), "headers": {**kept, **headers} or None, **set_now}
    return structs.replace(original, **changes)
