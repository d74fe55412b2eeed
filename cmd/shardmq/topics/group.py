"""`shardmq group`: list, describe, reset, commit, delete."""

import time
from typing import TYPE_CHECKING, Final

import click

from shardmq.cmd.terminal.completion import completing
from shardmq.cmd.terminal.connection import carry_out, connected, on_channel, rows_of
from shardmq.cmd.terminal.numbers import WholeNumber
from shardmq.cmd.terminal.options import JSON, LIST, URL, YES
from shardmq.cmd.terminal.output import CommandFailed, confirm, print_json
from shardmq.cmd.terminal.rows import Column, Row, RowChoice, extras, names, numbers
from shardmq.cmd.terminal.tables import print_list
from shardmq.cmd.terminal.values import WHERE_HELP, counted, duration, is_sendable, read_where

if TYPE_CHECKING:
    from shardmq.client.sync.channel import Channel


def _partitions(found: list[int]) -> str:
    return f"partition {', '.join(map(str, found))}" if found else ""


COLUMNS: Final = (
    *names("topic", "group", "type"),
    *numbers("partitions", "consumers", "unacked", "lag"),
    Column("damaged", text=_partitions),
    Column("unknown", text=_partitions),
    *extras("vhost", "read", "members"),
)
"""Of the list."""

PARTITION_COLUMNS: Final = (
    *numbers("partition", "offset", "end", "lag"),
    Column("oldest_unread", text=duration, is_number=True),
    *numbers("unacked", "consumers"),
    *names("member"),
    *numbers("epoch"),
    *extras("first", "type", "acked_above", "delayed", "dying", "lost"),
)
"""Of one group."""


@click.group()
def group() -> None:
    """Consumer groups of topics and streams: list, describe, reset, commit, delete."""


@group.command("list")
@URL
@LIST
def group_list(*, url: str, choice: RowChoice, as_json: bool) -> None:
    """Show all groups, and how many messages are before them."""
    print_list("groups", rows_of(url, "groups"), COLUMNS, choice, as_json)


@group.command("describe")
@click.argument("topic", shell_complete=completing("topics"))
@click.argument("name", shell_complete=completing("groups"))
@URL
@LIST
def group_describe(*, topic: str, name: str, url: str, choice: RowChoice, as_json: bool) -> None:
    """Show where group NAME of TOPIC is, in each partition: lag, owner, and the age of its oldest unread message."""
    with connected(url) as connection:
        channel = connection.channel()
        rows = channel.group_offsets(topic, name)
        if all(row["offset"] is None for row in rows):
            raise CommandFailed(
                f"no group '{name}' has read topic '{topic}'; `shardmq group list` shows those there are"
            )
        now_ms = time.time() * 1000
        for row in rows:
            row["oldest_unread"] = _age(channel, topic, row, now_ms)
    print_list("partitions", rows, PARTITION_COLUMNS, choice, as_json)


def _age(channel: "Channel", topic: str, row: Row, now_ms: float) -> float | None:
    """How long the message that a group reads next has waited, in seconds; None where there is none."""
    if not row["lag"]:
        return None
    start = max(row["offset"], row["first"])
    messages = channel.pull(topic, row["partition"], start, 1).messages
    return max(0.0, round(now_ms - messages[0].timestamp_ms) / 1000) if messages else None


@group.command("reset")
@click.argument("topic", shell_complete=completing("topics"))
@click.argument("name", shell_complete=completing("groups"))
@click.option("--to", "to", required=True, metavar="WHERE", help=WHERE_HELP)
@click.option("--partition", "partitions", type=WholeNumber(), multiple=True, help="Only this one; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@YES
@URL
@JSON
def group_reset(
    *, topic: str, name: str, to: str, partitions: tuple[int, ...], dry_run: bool, yes: bool, url: str, as_json: bool
) -> None:
    """Have group NAME of TOPIC go on elsewhere, also while its members consume."""
    start = read_where(to, "--to")
    if not dry_run:
        question = f"Have group '{name}' of topic '{topic}' go on at {to}?"
        confirm(question, f"resetting group '{name}' skips messages or brings them again", yes)
    with connected(url) as connection:
        channel = connection.channel()
        groups = channel.topic_info(topic)["groups"]
        damaged = {number for row in groups if row["group"] == name for number in row["damaged"]}
        moves = channel.group_reset(topic, name, start, partitions or None, dry_run)
    if as_json:
        moved = [
            {"partition": number, "old": old, "new": new, "damaged": number in damaged}
            for number, (old, new) in sorted(moves.items())
        ]
        print_json({"ok": True, "dry_run": dry_run, "partitions": moved})
        return
    verb = "Would reset" if dry_run else "Reset"
    click.echo(f"{verb} group '{name}' of topic '{topic}' in {counted(len(moves), 'partition')}")
    for number, (old, new) in sorted(moves.items()):
        missing = "a damaged offset" if number in damaged else "no offset"
        click.echo(f"  partition {number}: {missing if old is None else f'{old:,}'} to {new:,}")


@group.command("commit")
@click.argument("topic", shell_complete=completing("topics"))
@click.argument("name", shell_complete=completing("groups"))
@click.argument("offsets", nargs=-1, required=True, metavar="PARTITION=OFFSET…")
@URL
@JSON
def group_commit(*, topic: str, name: str, offsets: tuple[str, ...], url: str, as_json: bool) -> None:
    """Move group NAME of TOPIC on, to PARTITION=OFFSET: what is below is read."""
    wanted = dict(_read_offset(text) for text in offsets)
    sentence = f"Committed {counted(len(wanted), 'offset')} of group '{name}' of topic '{topic}'"
    carry_out(url, as_json, sentence, on_channel(lambda channel: channel.group_commit(topic, name, wanted)))


@group.command("delete")
@click.argument("topic", shell_complete=completing("topics"))
@click.argument("name", shell_complete=completing("groups"))
@YES
@URL
@JSON
def group_delete(*, topic: str, name: str, yes: bool, url: str, as_json: bool) -> None:
    """Forget the offsets of group NAME of TOPIC."""
    confirm(f"Delete group '{name}' of topic '{topic}'?", f"deleting group '{name}' forgets what it has read", yes)
    delete = on_channel(lambda channel: channel.group_delete(topic, name))
    carry_out(url, as_json, f"Deleted group '{name}' of topic '{topic}'", delete)


def _read_offset(text: str) -> tuple[int, int]:
    partition, _, offset = text.partition("=")
    if not all(number.isdecimal() and is_sendable(number) for number in (partition, offset)):
        raise click.BadParameter(f"'{text}' is no PARTITION=OFFSET, such as 3=1200", param_hint="OFFSETS")
    return int(partition), int(offset)
