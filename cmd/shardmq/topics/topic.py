"""`shardmq topic`: list, declare, extend, delete, info; `search` is in a file of its own."""

from typing import Final

import click

from shardmq.cmd.messages.search import search
from shardmq.cmd.terminal.completion import completing
from shardmq.cmd.terminal.connection import carry_out, connected, on_channel, rows_of
from shardmq.cmd.terminal.numbers import WholeNumber
from shardmq.cmd.terminal.options import JSON, LIST, URL, YES
from shardmq.cmd.terminal.output import confirm, print_done, print_json
from shardmq.cmd.terminal.rows import Column, Row, RowChoice, extras, names, numbers, plain
from shardmq.cmd.terminal.tables import print_list
from shardmq.cmd.terminal.values import counted
from shardmq.topology.arguments import PARTITIONERS


def _features(row: Row) -> list[str]:
    return [f"{name.removeprefix('x-')}={plain(value)}" for name, value in row["arguments"].items()] or ["key"]


COLUMNS: Final = (
    *names("name"),
    *numbers("partitions"),
    Column("features", _features, is_wrapped=True),
    *extras("vhost", "epoch", "arguments"),
)

PARTITION_COLUMNS: Final = (
    *numbers("partition"),
    *names("queue"),
    *numbers("shard", "first", "next", "messages", "bytes"),
    *extras("oldest_ms", "newest_ms"),
)


@click.group()
def topic() -> None:
    """Topics: list, declare, extend, delete, info, search."""


topic.add_command(search)


@topic.command("list")
@URL
@LIST
def topic_list(*, url: str, choice: RowChoice, as_json: bool) -> None:
    """Show all topics."""
    print_list("topics", rows_of(url, "topics"), COLUMNS, choice, as_json)


@topic.command("declare")
@click.argument("name", shell_complete=completing("topics"))
@click.option("--partitions", "-p", type=WholeNumber(1), default=1, show_default=True, help="How many.")
@click.option("--retention-ms", type=WholeNumber(0), help="How old messages may be; whole seconds, such as 60000.")
@click.option("--retention-bytes", type=WholeNumber(0), help="Bytes that each partition keeps.")
@click.option("--retention-messages", type=WholeNumber(1), help="Messages that each partition keeps.")
@click.option(
    "--partitioner",
    type=click.Choice(PARTITIONERS),
    default="key",
    show_default=True,
    help="What picks a message's partition: its routing key, turns, or its header x-partition.",
)
@URL
@JSON
def topic_declare(
    *,
    name: str,
    partitions: int,
    retention_ms: int | None,
    retention_bytes: int | None,
    retention_messages: int | None,
    partitioner: str,
    url: str,
    as_json: bool,
) -> None:
    """Declare topic NAME: make it with its partitions, or find the same one there."""
    with connected(url) as connection:
        connection.channel().topic_declare(
            name,
            partitions,
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
            retention_messages=retention_messages,
            partitioner=partitioner,
        )
    print_done(f"Declared topic '{name}' with {counted(partitions, 'partition')}", as_json, partitions=partitions)


@topic.command("extend")
@click.argument("name", shell_complete=completing("topics"))
@click.argument("partitions", type=WholeNumber(1))
@URL
@JSON
def topic_extend(*, name: str, partitions: int, url: str, as_json: bool) -> None:
    """Add partitions to topic NAME until it has so many. Keys go to other partitions then."""
    with connected(url) as connection:
        connection.channel().topic_extend(name, partitions)
    print_done(f"Extended topic '{name}' to {counted(partitions, 'partition')}", as_json, partitions=partitions)


@topic.command("delete")
@click.argument("name", shell_complete=completing("topics"))
@click.option("--if-unused", is_flag=True, help="Only where nobody consumes from it.")
@YES
@URL
@JSON
def topic_delete(*, name: str, if_unused: bool, yes: bool, url: str, as_json: bool) -> None:
    """Remove topic NAME with all its messages."""
    confirm(f"Delete topic '{name}' with its messages?", f"deleting topic '{name}' deletes its messages", yes)
    delete = on_channel(lambda channel: channel.topic_delete(name, if_unused=if_unused))
    carry_out(url, as_json, f"Deleted topic '{name}'", delete)


@topic.command("info")
@click.argument("name", shell_complete=completing("topics"))
@URL
@LIST
def topic_info(*, name: str, url: str, choice: RowChoice, as_json: bool) -> None:
    """Show the partitions of topic NAME."""
    with connected(url) as connection:
        info = connection.channel().topic_info(name)
    if as_json and not choice.columns:
        print_json({**info, "partitions": choice.rows(info["partitions"], PARTITION_COLUMNS)})
    else:
        print_list("partitions", info["partitions"], PARTITION_COLUMNS, choice, as_json)
